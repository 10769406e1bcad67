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
        "svg": lambda spec: _renumbered(vl_convert.vegalite_to_svg(spec, vl_version=VERSION)).encode(),
        "png": lambda spec: vl_convert.vegalite_to_png(spec, vl_version=VERSION, scale=2),
        "pdf": lambda spec: vl_convert.vegalite_to_pdf(spec, vl_version=VERSION),
    }
    return how[format](whole(picture))


def _renumbered(svg: str) -> str:
    """The same picture with its gradients and clips counted from 0: the renderer counts on from picture to picture.

    >>> _renumbered('<a id="clip7"/><b id="gradient_9"/><c fill="url(#gradient_9)" clip-path="url(#clip7)"/>')
    '<a id="clip0"/><b id="gradient_0"/><c fill="url(#gradient_0)" clip-path="url(#clip0)"/>'
    """
    for kind in ("clip", "gradient_"):
        # ascending, so that no number is taken that is still to be replaced
        for new, old in enumerate(sorted(set(map(int, re.findall(rf'id="{kind}(\d+)"', svg))))):
            svg = re.sub(rf'(id="|#){kind}{old}\b', rf"\g<1>{kind}{new}", svg)
    return svg
