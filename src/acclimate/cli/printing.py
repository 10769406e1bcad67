"""What several commands share: the JSON switch, plain help, and rows of text that fit the terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
NARROWEST = 30
Command = TypeVar("Command", bound=Callable[..., Any])


class Plain(TyperCommand):
    """A command whose help is plain text: where rich is installed, typer escapes brackets for it even so."""

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace("\\[", "[")


class Commands(typer.Typer):
    """Commands with plain help."""

    def command(self, *words: Any, **settings: Any) -> Callable[[Command], Command]:
        return super().command(*words, **{"cls": Plain, **settings})


def width() -> int | None:
    """Columns to fit into; None where nobody looks on, so that files and pipes get everything on one line."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return max(shutil.get_terminal_size().columns, NARROWEST)
    return None


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Rows with the same keys, as aligned columns, as blocks where the terminal is too narrow for them, or as JSON."""
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        typer.echo("nothing here yet")
        return
    texts = [{key: str(value or "") for key, value in row.items()} for row in rows]
    widths = {key: max(len(key), *(len(row[key]) for row in texts)) for key in rows[0]}
    columns = width()
    if columns is not None and sum(widths.values()) + 2 * (len(widths) - 1) > columns:
        typer.echo("\n".join(_block(row, columns) for row in texts))
        return
    for row in [{key: key for key in rows[0]}, *texts]:
        typer.echo("  ".join(f"{row[key]:<{width}}" for key, width in widths.items()).rstrip())


def _block(row: dict[str, str], columns: int) -> str:
    """The first value as a heading, and below it the others that there are."""
    first, *others = row.items()
    lines = [f"{key}: {value}" for key, value in others if value]
    wrapped = [textwrap.fill(line, columns, initial_indent="  ", subsequent_indent="    ") for line in lines]
    return "\n".join([first[1], *wrapped])
