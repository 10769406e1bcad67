"""A run as text: the table, and what there is to say about it."""

from __future__ import annotations

import math
import statistics
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from acclimate.errors import shown
from acclimate.report.table import Line, PhaseTraffic, Table, by_remark, named_seeds

COLUMNS = {"accuracy": "accuracy", "worst_decile": "worst 10 %", "harmed": "harmed"}
MOST_STREAMS_SIDE_BY_SIDE = 2


def render(table: Table) -> RenderableType:
    """The table for a terminal (or, through a plain console, for a file)."""
    if len(table.streams) <= MOST_STREAMS_SIDE_BY_SIDE:
        parts: list[RenderableType] = [_grid(table, [(s, m) for s in table.streams for m in COLUMNS], costs=True)]
    else:  # one table per measure, one column per stream
        parts = [_grid(table, [(s, m) for s in table.streams], costs=m == "accuracy") for m in COLUMNS]
    parts += [
        _groups(table, stream) for stream in table.streams if any(line.cells[stream].groups for line in table.lines)
    ]
    return Group(*parts, Text(_legend(table), style="dim"), *[Text(line) for line in _remarks(table)])


def text(table: Table, run: dict[str, Any]) -> str:
    """A whole report as plain text."""
    console = Console(width=160, record=True, file=_Nowhere(), color_system=None)  # type: ignore[arg-type]
    console.print(f"Run {table.run}", f"started {run['started']}, finished {run['finished'] or 'not yet'}", sep="\n")
    console.print("versions: " + ", ".join(f"{name} {version}" for name, version in run["versions"].items()))
    console.print(render(table), *map(traffic, table.phases), sep="\n")
    return console.export_text()


def _name(name: str) -> Text:
    """Somebody's name as it is: no markup, no control characters."""
    return Text(shown(name))


def traffic(phase: PhaseTraffic) -> str:
    """What a phase sends, in words."""
    rounds = f"{phase.rounds} round{'s' if phase.rounds > 1 else ''}"
    each = f"{phase.name}: {rounds}, {size(phase.down)} down and {size(phase.up)} up per client and round"
    if phase.before:
        each += f", after the model ({size(phase.before)}) once: {size(phase.total)} in all for a client of every round"
    if phase.left_out:
        each += f"; {phase.left_out} of {phase.replies} replies could not be used or never came, and were left out"
    return each


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(92), size(12_345), size(494_000)
    ('92 B', '12.3 kB', '494 kB')
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000 or unit == "MB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def _grid(table: Table, columns: list[tuple[str, str]], costs: bool) -> RichTable:
    grid = RichTable(title=None, header_style="bold", show_lines=False)
    grid.add_column("system", no_wrap=True)
    several = len(table.streams) > 1
    for stream, measure in columns:
        grid.add_column(f"{stream}\n{COLUMNS[measure]}" if several else COLUMNS[measure], justify="right", no_wrap=True)
    if costs:
        for title in ("ms/batch", "bytes/slot", "sent once"):
            grid.add_column(title, justify="right", no_wrap=True)
    for line in table.lines:
        cells = [_cell(getattr(line.cells[stream], measure), measure) for stream, measure in columns]
        grid.add_row(_name(line.system), *cells, *(_costs(line) if costs else []))
    return grid


def _groups(table: Table, stream: str) -> RenderableType:
    """Accuracy by group of clients, and the mean over groups."""
    title = "accuracy by group" + (f", stream {stream}" if len(table.streams) > 1 else "")
    grid = RichTable(title=None, header_style="bold", show_lines=False)
    grid.add_column("system", no_wrap=True)
    names = dict.fromkeys(name for line in table.lines for name in line.cells[stream].groups)
    for name in names:
        grid.add_column(_name(name), justify="right", no_wrap=True)
    for line in table.lines:
        grid.add_row(
            _name(line.system), *(_cell(line.cells[stream].groups.get(name, []), "accuracy") for name in names)
        )
    return Group(Text(title), grid)  # beside the grid: a title of its own would be as narrow as it


def _cell(values: list[float], measure: str) -> str:
    if not values or math.isnan(values[0]):
        return "–"
    mean = 100 * statistics.fmean(values)
    if measure == "harmed":
        return f"{mean:.0f} %"
    if len(values) == 1 or measure != "accuracy":
        return f"{mean:.1f}"
    return f"{mean:.1f} ± {100 * statistics.stdev(values):.1f}"


def _costs(line: Line) -> list[str]:
    return [f"{line.ms_per_batch:.1f}", size(line.bytes_per_slot), size(line.knowledge_bytes)]


def _legend(table: Table) -> str:
    seeds = f"{'mean ± s.d. over ' if len(table.seeds) > 1 else ''}{named_seeds(table.seeds)}"
    return (
        f"accuracy in %, over all test images, {seeds}; worst 10 %: the worst tenth of the clients; "
        "harmed: clients below no adaptation; bytes/slot: up and down per client; sent once: model and knowledge"
    )


def _remarks(table: Table) -> list[str]:
    lines = [] if table.finished else ["This run is not finished: the table shows what there is so far."]
    if table.told:
        lines.append("reset: shift — adapters were told the boundaries of shifts.")
    lines += by_remark({line.system: line.remarks for line in table.lines})
    left_out = {line.system: line.left_out for line in table.lines if line.left_out}
    return [*lines, *(f"{name}: {n} uploads could not be used and were left out." for name, n in left_out.items())]


class _Nowhere:
    """A file that forgets; the console records."""

    def write(self, _: str) -> int:
        return 0

    def flush(self) -> None: ...
