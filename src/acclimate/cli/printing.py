"""What several commands share: the JSON switch and rows of text."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Rows with the same keys, as aligned columns or as JSON."""
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        typer.echo("nothing here yet")
        return
    widths = {key: max(len(key), *(len(str(row[key] or "")) for row in rows)) for key in rows[0]}
    for row in [{key: key for key in rows[0]}, *rows]:
        typer.echo("  ".join(f"{row[key] or ''!s:<{width}}" for key, width in widths.items()).rstrip())
