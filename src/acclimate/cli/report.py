"""What `acclimate report` writes and prints."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from enum import Enum, StrEnum
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from acclimate.cli.printing import width

if TYPE_CHECKING:
    from acclimate.report.pictures.picture import Asked
    from acclimate.report.pictures.render import Format
    from acclimate.store.run import Run

WANTED = (
    "a picture needs streams of more than one slot (a smaller test.batch_size), an aggregator that weighs uploads "
    "(fedavg, fedamp, pfedgraph, tsa), an adapter that predicts step by step or draws features (fedicon with "
    "picture: true), or atp, whose rates are drawn"
)
PAGE = "report.html"  # in the folder of a run


class PictureFormat(StrEnum):
    """Of a picture's file."""

    svg = "svg"
    png = "png"
    pdf = "pdf"


class Wanted(Enum):
    """What is printed instead of a page, in the order of the options."""

    csv = "csv"
    latex = "latex"
    json = "json"
    text = "text"


def write_page(runs: Sequence[Run], asked: Asked, path: Path) -> None:
    """One HTML file, and where it is; told on stderr, so that tables can be piped.

    In the folder at hand where that of the runs may only be read.
    """
    from acclimate.data.folders import write_whole
    from acclimate.report.page.page import page

    content = page(runs, asked)
    try:
        write_whole(path, methodcaller("write", content.encode()))
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM) or path.name != PAGE:
            raise
        path = Path(f"{runs[0].name}-{PAGE}")
        write_whole(path, methodcaller("write", content.encode()))
    tell_page(path)


def tell_page(path: Path) -> None:
    """Where the page is."""
    typer.echo(f"report: {path} (open it in a browser)", err=True)


def write_pictures(runs: Sequence[Run], asked: Asked, folder: Path, format: Format) -> None:
    """Every picture as a file."""
    from acclimate.data.folders import write_whole
    from acclimate.report.pictures import draw
    from acclimate.report.pictures.render import file_name, render

    drawn = [picture for _, pictures in draw(runs, asked) for picture in pictures]
    for picture in drawn:
        path = folder / file_name(picture, format)
        write_whole(path, methodcaller("write", render(picture, format)))
        typer.echo(f"written: {path}")
    if not drawn:
        typer.echo(f"{', '.join(run.name for run in runs)}: nothing to draw; {WANTED}", err=True)


def printed(runs: Sequence[Run], wanted: Wanted, out: Path | None) -> None:
    """Tables, to the terminal or to a file."""
    content = _content(runs, wanted, None if out else width())
    if out is None:
        typer.echo(content, nl=not content.endswith("\n"))
    else:
        out.write_text(content, encoding="utf-8")
        typer.echo(f"written to {out}")


def _content(runs: Sequence[Run], wanted: Wanted, columns: int | None) -> str:
    from acclimate.report.export import as_csv, as_latex
    from acclimate.report.table import table
    from acclimate.report.text import WIDE, text

    if wanted is Wanted.csv:
        return as_csv(runs)
    if wanted is Wanted.latex:
        return "\n".join(map(as_latex, runs))
    if wanted is Wanted.json:
        return json.dumps([table(run).plain() for run in runs], indent=2)
    return "\n".join(text(table(run), run, columns or WIDE) for run in runs)
