"""A run as text: the table, and what there is to say about it."""

from __future__ import annotations

import math
import statistics

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from acclimate.errors import shown
from acclimate.report.table import Line, PhaseTraffic, Table, by_remark, named_seeds
from acclimate.store.run import Run

COLUMNS = {"accuracy": "accuracy", "worst_decile": "worst 10 %", "harmed": "harmed"}
COSTS = ("ms/batch", "bytes/slot", "sent once")
STEPPED_IN = "stepped in"  # one more where somebody has a guard
MOST_STREAMS_SIDE_BY_SIDE = 2
NOT_TESTED = "No system has been tested yet."
WIDE = 160  # columns where nobody has a terminal


def render(table: Table, width: int) -> RenderableType:
    """The table for so many columns: side by side if it fits, else stream by stream, else a block per system."""
    if not table.lines:
        return Text(NOT_TESTED)
    for layout in (_side_by_side, _stream_by_stream):
        parts = layout(table)
        if all(Console(width=1000).measure(part).maximum <= width for part in parts):
            break
    else:
        parts = [_block(line, table) for line in table.lines]
    return Group(*parts, Text(_legend(table), style="dim"), *[Text(line) for line in _remarks(table)])


def text(table: Table, run: Run, width: int = WIDE) -> str:
    """A whole report as plain text for so many columns."""
    console = Console(width=width, record=True, file=_Nowhere(), color_system=None, markup=False)  # type: ignore[arg-type]
    console.print(f"Run {table.run}", f"started {run.started}, finished {run.finished or 'not yet'}", sep="\n")
    console.print("versions: " + ", ".join(f"{name} {version}" for name, version in run.versions.items()))
    console.print(render(table, width), *map(traffic, table.phases), sep="\n")
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


def _side_by_side(table: Table) -> list[RenderableType]:
    if len(table.streams) <= MOST_STREAMS_SIDE_BY_SIDE:
        grids = [_grid(table, [(s, m) for s in table.streams for m in COLUMNS], costs=True)]
    else:  # one table per measure, one column per stream
        grids = [_grid(table, [(s, m) for s in table.streams], costs=m == "accuracy") for m in COLUMNS]
    return [*grids, *(_groups(table, stream) for stream in table.streams if _has_groups(table, stream))]


def _stream_by_stream(table: Table) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for stream in table.streams:
        parts.append(_grid(table, [(stream, m) for m in COLUMNS], costs=False))
        parts += [_groups(table, stream)] if _has_groups(table, stream) else []
    return [*parts, _grid(table, [], costs=True)]


def _block(line: Line, table: Table) -> RenderableType:
    """One system in lines that may wrap."""
    lines = []
    for stream, cell in line.cells.items():
        said = [f"{title} {_cell(getattr(cell, measure), measure)}" for measure, title in COLUMNS.items()]
        said += [f"{group} {_cell(values, 'accuracy')}" for group, values in cell.groups.items()]
        lines.append(f"{f'{stream}: ' if len(table.streams) > 1 else ''}{', '.join(said)}")
    lines.append(
        ", ".join(f"{title} {value}" for title, value in zip(_titles(table), _costs(line, table), strict=True))
    )
    return Group(Text(line.title, style="bold"), *(Padding(Text(said), (0, 0, 0, 2)) for said in lines))


def _grid(table: Table, columns: list[tuple[str, str]], costs: bool) -> RichTable:
    grid = RichTable(title=None, header_style="bold", show_lines=False)
    grid.add_column("system", no_wrap=True)
    several = len(table.streams) > 1
    for stream, measure in columns:
        grid.add_column(f"{stream}\n{COLUMNS[measure]}" if several else COLUMNS[measure], justify="right", no_wrap=True)
    for title in _titles(table) if costs else ():
        grid.add_column(title, justify="right", no_wrap=True)
    for line in table.lines:
        cells = [_cell(getattr(line.cells[stream], measure), measure) for stream, measure in columns]
        grid.add_row(_name(line.title), *cells, *(_costs(line, table) if costs else []))
    return grid


def _has_groups(table: Table, stream: str) -> bool:
    return any(line.cells[stream].groups for line in table.lines)


def _groups(table: Table, stream: str) -> RenderableType:
    """Accuracy by group of clients, and the mean over groups."""
    title = "accuracy by group" + (f", stream {stream}" if len(table.streams) > 1 else "")
    grid = RichTable(title=None, header_style="bold", show_lines=False)
    grid.add_column("system", no_wrap=True)
    names = dict.fromkeys(name for line in table.lines for name in line.cells[stream].groups)
    for name in names:
        grid.add_column(_name(name), justify="right", no_wrap=True)
    for line in table.lines:
        grid.add_row(_name(line.title), *(_cell(line.cells[stream].groups.get(name, []), "accuracy") for name in names))
    return Group(Text(title), grid)  # beside the grid: a title of its own would be as narrow as it


def _cell(values: list[float], measure: str) -> str:
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return "–"
    mean = 100 * statistics.fmean(values)
    if measure == "harmed":
        return f"{mean:.0f} %"
    if len(values) == 1 or measure != "accuracy":
        return f"{mean:.1f}"
    return f"{mean:.1f} ± {100 * statistics.stdev(values):.1f}"


def _titles(table: Table) -> list[str]:
    return [*COSTS, *([STEPPED_IN] if table.guarded else [])]


def _costs(line: Line, table: Table) -> list[str]:
    costs = [f"{line.ms_per_batch:.1f}", size(line.bytes_per_slot), size(line.knowledge_bytes)]
    return [*costs, *([share(line.stepped_in)] if table.guarded else [])]


def share(value: float | None) -> str:
    """In per cent; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.0f} %"


def _legend(table: Table) -> str:
    seeds = f"{'mean ± s.d. over ' if len(table.seeds) > 1 else ''}{named_seeds(table.seeds)}"
    return (
        f"accuracy in %, over all test images, {seeds}; worst 10 %: the worst tenth of the clients; "
        "harmed: clients below no adaptation; bytes/slot: up and down per client; sent once: model and knowledge"
        + ("; stepped in: batches at which a guard decided who answers" if table.guarded else "")
    )


def _remarks(table: Table) -> list[str]:
    lines = [] if table.finished else ["This run is not finished: the table shows what there is so far."]
    if table.told:
        lines.append("reset: shift — adapters were told the boundaries of shifts.")
    lines += [
        f"{few} of {all} clients of stream '{stream}' have no labels and were not scored; "
        "what was predicted for them is in the run's folder, under predictions."
        for stream, (few, all) in table.unscored.items()
    ]
    lines += by_remark({line.title: line.remarks for line in table.lines})
    left_out = {line.title: line.left_out for line in table.lines if line.left_out}
    return [*lines, *(f"{name}: {n} uploads could not be used and were left out." for name, n in left_out.items())]


class _Nowhere:
    """A file that forgets; the console records."""

    def write(self, _: str) -> int:
        return 0

    def flush(self) -> None: ...
