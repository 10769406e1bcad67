"""Pictures as files: SVG for pages, PNG for slides, PDF for papers; offline, the same numbers giving the same bytes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Literal

from acclimate.report.pictures.look import config
from acclimate.report.pictures.picture import Picture, Spec

VERSION = "6.4"  # of Vega-Lite, as the page has it
SCHEMA = f"https://vega.github.io/schema/vega-lite/v{VERSION.partition('.')[0]}.json"
LETTERS = 110  # of a line under a title

Format = Literal["svg", "png", "pdf"]


def whole(picture: Picture, night: bool = False) -> Spec:
    """A specification that needs nothing else: with its title, what there is to say, and its looks."""
    lines = [line for note in picture.notes for line in textwrap.wrap(note, LETTERS)]
    title = {"text": picture.title, "subtitle": lines}
    return {"$schema": SCHEMA, "config": config(night), "title": title, "padding": 14, **picture.spec}


def file_name(picture: Picture, format: Format) -> str:
    """Where it is written to: the run and what it shows, without signs that file systems dislike."""
    return re.sub(r"[^\w.+-]+", "-", f"{picture.run}-{picture.name}") + f".{format}"


def render(picture: Picture, format: Format = "svg") -> bytes:
    """A file's content."""
    import vl_convert

    how: dict[Format, Callable[[Spec], bytes]] = {
        "svg": lambda spec: _numbered_anew(vl_convert.vegalite_to_svg(spec, vl_version=VERSION)).encode(),
        "png": lambda spec: vl_convert.vegalite_to_png(spec, vl_version=VERSION, scale=2),
        "pdf": lambda spec: vl_convert.vegalite_to_pdf(spec, vl_version=VERSION),
    }
    return how[format](whole(picture))


def _numbered_anew(svg: str) -> str:
    """With gradients counted from 0: the converter goes on counting from one picture to the next.

    >>> _numbered_anew('url(#gradient_7) <linearGradient id="gradient_7">')
    'url(#gradient_0) <linearGradient id="gradient_0">'
    """
    found = {name: f"gradient_{number}" for number, name in enumerate(dict.fromkeys(re.findall(r"gradient_\d+", svg)))}
    return re.sub(r"gradient_\d+", lambda match: found[match[0]], svg)
