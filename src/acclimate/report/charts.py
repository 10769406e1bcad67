"""Four charts, from plain numbers to SVG: lines over time, heatmaps, bars side by side and clouds of points.

What would be too fine to see is averaged, and the chart says so.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from acclimate.report.svg import (
    GRID,
    INK,
    PALE,
    WIDE,
    Axis,
    Box,
    Values,
    cells,
    colour_bar,
    curve,
    dot,
    element,
    fill,
    frame,
    label,
    length,
    line,
    picture,
    point,
    round_up,
    style,
    text,
)

EDGE = 16  # empty pixels around everything
LEFT = 70  # room for the numbers and the name of a vertical axis
ROW = 19  # of a legend
SMALL = 11  # the size of numbers and names beside a plot
SOFT: dict[str, str | float] = {"font_size": SMALL, "fill": PALE}  # and how they look
SLANT = -40  # degrees, of names that would not fit otherwise
RISE, RUN = 0.65, 0.77  # how far such names reach up and to the right, per pixel of length
PANEL = 320  # pixels a side of a cloud
MOST_POINTS = 600  # of a cloud; more would hide one another
MOST_CELLS = 150  # of a heatmap in each direction


class Mark(NamedTuple):
    """Something that begins at a place of a horizontal axis."""

    at: float
    name: str


class Grid(NamedTuple):
    """One heatmap; marks count in columns."""

    title: str
    values: Values  # not a number: absent
    rows: Sequence[str]
    columns: Sequence[str]
    marks: Sequence[Mark] = ()


class Group(NamedTuple):
    """The bars over one name: a height and the length of its whisker for each series, None where it has none."""

    name: str
    bars: Sequence[tuple[float, float] | None]


def lines(
    title: str,
    notes: Sequence[str],
    named: Mapping[str, Values],
    marks: Sequence[Mark],
    x_name: str,
    y_name: str,
    steps_named: Sequence[str] = (),
) -> str:
    """A smoothed line for each name, one value per step, with marks on the way; steps with names of their own: dots."""
    steps = max(map(len, named.values()))
    window = window_of(steps)
    notes = [*notes, f"Smoothed: a centred mean over {window} {x_name}s."] if window > 1 else notes
    smoothed = {name: smooth(values, window) for name, values in named.items()}
    low, high = (float(find(np.concatenate(list(smoothed.values())))) for find in (np.nanmin, np.nanmax))
    notes = [*notes, *_hidden(smoothed, (high - low) / 300)]
    spare = 0.06 * (high - low) or 1.0
    head, top = _heading(title, notes, 760)
    box = Box(EDGE + LEFT, top + _above(marks) + 8, 640, 320)
    x, y = Axis(0, steps - 1, box.left, box.right), Axis(low - spare, high + spare, box.bottom, box.top)
    parts = [*head, *_y_axis(box, y, y_name), *_marks(box, x, marks, box.bottom), line(*_floor(box), stroke=PALE)]
    numbered = {label(tick): x.at(tick) for tick in x.ticks(10, whole=True)}
    parts += _columns(box, {words: x.at(step) for step, words in enumerate(steps_named)} or numbered, x_name)
    for number, (name, values) in enumerate(smoothed.items()):
        points = [(x.at(step), y.at(value)) for step, value in enumerate(values.tolist())]
        parts.append(curve(points, name, **style(number)))
        parts += [dot(*point, number) for point in points if steps_named and not math.isnan(point[1])]
    legend, width = _legend(box.right + 18, box.top + 6, list(named), swatches=False)
    right = box.right + max(width + 18, _beside(marks)) + EDGE
    bottom = max(box.bottom + 40, box.top + ROW * len(named)) + EDGE
    about = f"{' '.join(notes)} Lines: {', '.join(named)}."
    return picture(right, bottom, title, about, [*parts, *legend])


def heatmaps(
    title: str,
    notes: Sequence[str],
    grids: Sequence[Grid],
    names: tuple[str, str],
    room: tuple[int, int],
    square: bool = False,
) -> str:
    """Heatmaps with the same colours and one colour bar; `names` of rows and columns; `room` for each, in pixels."""
    coarse, notes = [_coarse(grid) for grid in grids], list(notes)
    for name, merged in zip(names, zip(*(each for _, each in coarse), strict=True), strict=True):
        notes += [f"A cell is the mean of {max(merged)} neighbouring {name}s."] if max(merged) > 1 else []
    grids = [grid for grid, _ in coarse]
    notes += ["Sand-coloured: absent."] if any(np.isnan(grid.values).any() for grid in grids) else []
    highest = max(float(np.nanmax(grid.values)) for grid in grids) or 1.0
    tall, wide = (max(grid.values.shape[side] for grid in grids) for side in (0, 1))
    cell_x, cell_y = (max(2, min(60, pixels // number)) for pixels, number in zip(room, (wide, tall), strict=True))
    if square:
        cell_x = cell_y = min(cell_x, cell_y)
    step_x, step_y = cell_x * wide + LEFT + 14, cell_y * tall + 80
    across = max(1, min(len(grids), 960 // step_x))
    bar, above = EDGE + across * step_x + 16, max(_above(grid.marks) for grid in grids)
    width = max(bar + 60, 480, length(title, 17)) + EDGE
    head, top = _heading(title, notes, width - 2 * EDGE)
    top += above + 30
    parts = list(head)
    for number, grid in enumerate(grids):
        row, column = divmod(number, across)
        size = (cell_x * len(grid.columns), cell_y * len(grid.rows))
        box = Box(EDGE + LEFT + column * step_x, top + row * step_y, *size)
        parts += _grid(box, grid, names, highest, above if row == 0 else 0.0)
    parts += colour_bar(Box(bar, top, 14, min(180, step_y - 80)), highest, "weight")
    about = f"{' '.join(notes)} Heatmaps: {', '.join(grid.title for grid in grids)}."
    height = top + math.ceil(len(grids) / across) * step_y - 30 + EDGE
    return picture(width, height, title, about, parts)


def bars(
    title: str, notes: Sequence[str], panels: Mapping[str, Sequence[Group]], series: Sequence[str], y_name: str
) -> str:
    """Panels side by side: over each name one bar per series, with whiskers; a legend where there are several."""
    head, top = _heading(title, notes, 820)
    deepest = max(length(group.name, SMALL) for groups in panels.values() for group in groups)
    parts, left = list(head), EDGE + max(LEFT, RUN * deepest - 10)
    for name, groups in panels.items():
        each = max(34, 11 * len(series) + 14)
        box = Box(left, top + 34, max(240, each * len(groups)), 260)
        parts += [text(box.left, box.top - 14, name, font_weight="bold"), *_bar_panel(box, groups, y_name)]
        left = box.right + 24 + LEFT
    legend, width = _legend(left - LEFT, top + 40, list(series), swatches=True) if len(series) > 1 else ([], 0.0)
    about = f"{' '.join(notes)} Panels: {', '.join(panels)}. Series: {', '.join(series)}."
    size = (left - LEFT + width + EDGE, top + 34 + 260 + RISE * deepest + 24 + EDGE)
    return picture(*size, title, about, [*parts, *legend])


def clouds(title: str, notes: Sequence[str], panels: Mapping[str, Values], kinds: Sequence[int], what: str) -> str:
    """Panels of points [points, 2] side by side on the same scale, coloured by kind; `what` kinds are."""
    each = math.ceil(len(kinds) / MOST_POINTS)
    notes = [*notes, f"One point in {each} is drawn."] if each > 1 else list(notes)
    shown = {name: values[::each] for name, values in panels.items()}
    (low_x, low_y), (high_x, high_y) = (find(np.concatenate([*shown.values()]), axis=0) for find in (np.min, np.max))
    there = sorted(set(kinds[::each]))
    head, top = _heading(title, notes, 2 * PANEL + 100)
    parts, left = list(head), float(EDGE)
    for name, values in shown.items():
        box = Box(left, top + 24, PANEL, PANEL)
        x, y = Axis(low_x, high_x, box.left + 8, box.right - 8), Axis(low_y, high_y, box.bottom - 8, box.top + 8)
        parts += [text(box.left, box.top - 8, name, font_weight="bold"), frame(box)]
        points = zip(values.tolist(), kinds[::each], strict=True)
        parts += [point(x.at(a), y.at(b), there.index(kind)) for (a, b), kind in points]
        left = box.right + 20
    for row, kind in enumerate(there):
        spot = (left + 6, top + 34 + ROW * row)
        parts += [point(*spot, row), text(spot[0] + 12, spot[1] + 4, f"{what} {kind}")]
    about = f"{' '.join(notes)} Panels: {', '.join(panels)}."
    return picture(left + 90, top + 24 + max(PANEL, ROW * len(there)) + EDGE, title, about, parts)


def _hidden(named: Mapping[str, Values], close: float) -> list[str]:
    """A sentence for every line that covers earlier ones."""
    covered: dict[str, str] = {}  # by the last line that does
    for (a, below), (b, above) in itertools.combinations(named.items(), 2):
        if below.shape == above.shape and np.allclose(below, above, rtol=0, atol=close, equal_nan=True):
            covered[a] = b
    under = {top: [a for a, b in covered.items() if b == top] for top in dict.fromkeys(covered.values())}
    return [f"{', '.join(names)} {'lie' if len(names) > 1 else 'lies'} under {top}." for top, names in under.items()]


def smooth(values: Values, window: int) -> Values:
    """A centred mean over `window` values, over fewer at the ends; what is not a number does not count.

    >>> smooth(np.array([0.0, 3.0, 6.0]), 3)
    array([1.5, 3. , 4.5])
    """
    around = np.pad(values, window // 2, constant_values=math.nan)
    return _mean(np.lib.stride_tricks.sliding_window_view(around, window))


def window_of(steps: int) -> int:
    """How many steps to smooth over: about a fiftieth, an odd number.

    >>> window_of(40), window_of(750)
    (1, 15)
    """
    return 2 * (steps // 100) + 1


def binned(values: Values, axis: int, most: int) -> tuple[int, Values]:
    """Neighbours averaged until at most `most` are left, and how many went into one.

    >>> binned(np.array([[1.0, 3.0, 5.0]]), axis=1, most=2)
    (2, array([[2., 5.]]))
    """
    moved = np.moveaxis(values, axis, -1)
    each = math.ceil(moved.shape[-1] / most)
    padding = [(0, 0)] * (moved.ndim - 1) + [(0, -moved.shape[-1] % each)]
    padded = np.pad(moved, padding, constant_values=math.nan)
    return each, np.moveaxis(_mean(padded.reshape(*padded.shape[:-1], -1, each)), -1, axis)


def _heading(title: str, notes: Sequence[str], width: float) -> tuple[list[str], float]:
    """The title and what there is to say, and where they end."""
    parts, y = [text(EDGE, EDGE + 14, title, font_size=16, font_weight="bold")], EDGE + 14.0
    for words in notes:
        for row in textwrap.wrap(words, int(width / (WIDE * 12))):
            y += 17
            parts.append(text(EDGE, y, row, fill=PALE))
    return parts, y + 10


def _y_axis(box: Box, axis: Axis, name: str) -> list[str]:
    ticks = {label(tick): axis.at(tick) for tick in axis.ticks()}
    grid = [line(box.left, y, box.right, y) for y in ticks.values()]
    return [*grid, *_rows(box, ticks, name)]


def _rows(box: Box, labels: Mapping[str, float], name: str) -> list[str]:
    """Labels on the left of a box at their heights, and beside them what they are."""
    parts = [text(box.left - 6, y + 4, words, text_anchor="end", **SOFT) for words, y in labels.items()]
    beside = box.left - 18 - max(length(words, SMALL) for words in labels)
    return [*parts, text(beside, box.top + box.height / 2, name, -90, text_anchor="middle")]


def _columns(box: Box, labels: Mapping[str, float], name: str) -> list[str]:
    """The same below a box."""
    parts = [text(x, box.bottom + 17, words, text_anchor="middle", **SOFT) for words, x in labels.items()]
    return [*parts, text(box.left + box.width / 2, box.bottom + 36, name, text_anchor="middle")]


def _floor(box: Box) -> tuple[float, float, float, float]:
    return box.left, box.bottom, box.right, box.bottom


def _marks(box: Box, axis: Axis, marks: Sequence[Mark], bottom: float, named: bool = True) -> list[str]:
    """A line at each mark and, where there is room, its name above."""
    parts, last = [], -1e9
    for mark in marks:
        x = axis.at(mark.at)
        parts.append(line(x, box.top - 5, x, bottom, stroke="#bdbdbd"))
        if named and mark.name and x - last >= 14:
            last = x
            parts.append(text(x + 3, box.top - 8, mark.name, SLANT, **SOFT))
    return parts


def _above(marks: Sequence[Mark]) -> float:
    return max((RISE * length(mark.name, SMALL) + 8 for mark in marks), default=0.0)


def _beside(marks: Sequence[Mark]) -> float:
    return max((RUN * length(mark.name, SMALL) for mark in marks[-1:]), default=0.0)


def _legend(left: float, top: float, names: Sequence[str], swatches: bool) -> tuple[list[str], float]:
    """One row per name, and how wide they are together."""
    parts = []
    for number, name in enumerate(names):
        y = top + ROW * number
        if swatches:
            parts.append(element("rect", x=left, y=y - 5, width=12, height=10, fill=fill(number)))
        else:
            parts.append(line(left, y, left + 24, y, **{**style(number), "stroke_width": 2.5}))
        parts.append(text(left + (18 if swatches else 31), y + 4, name))
    return parts, 31 + max(map(length, names))


def _coarse(grid: Grid) -> tuple[Grid, tuple[int, int]]:
    """A grid with few enough cells, and how many rows and columns went into one."""
    down, values = binned(grid.values, 0, MOST_CELLS)
    right, values = binned(values, 1, MOST_CELLS)
    marks = [Mark(mark.at / right, mark.name) for mark in grid.marks]
    return Grid(grid.title, values, grid.rows[::down], grid.columns[::right], marks), (down, right)


def _grid(box: Box, grid: Grid, names: tuple[str, str], highest: float, above: float) -> list[str]:
    """A heatmap with its labels; the names of its marks need `above` pixels, or are left out where there are none."""
    parts = [cells(box, grid.values, highest)]
    parts += _marks(box, Axis(0, len(grid.columns), box.left, box.right), grid.marks, box.top, named=above > 0)
    parts.append(text(box.left, box.top - 10 - above, grid.title, font_weight="bold"))
    width, height = box.width / len(grid.columns), box.height / len(grid.rows)
    widest = max(length(words, SMALL) for words in grid.columns)
    shown = range(0, len(grid.rows), _every(13 / height)), range(0, len(grid.columns), _every((widest + 8) / width))
    parts += _rows(box, {grid.rows[at]: box.top + (at + 0.5) * height for at in shown[0]}, names[0])
    return parts + _columns(box, {grid.columns[at]: box.left + (at + 0.5) * width for at in shown[1]}, names[1])


def _every(least: float) -> int:
    """How many labels to go on by, so that they do not touch."""
    return max(1, int(round_up(least)))


def _bar_panel(box: Box, groups: Sequence[Group], y_name: str) -> list[str]:
    ends = [mean + sign * spread for g in groups for mean, spread in filter(None, g.bars) for sign in (-1, 1)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    spare = 0.05 * (high - low) or 1.0
    y = Axis(low - spare * (low < 0), high + spare * (high > 0 or low == 0), box.bottom, box.top)
    parts, each = _y_axis(box, y, y_name), box.width / len(groups)
    for place, group in enumerate(groups):
        start, width = box.left + each * (place + 0.14), each * 0.72 / len(group.bars)
        for number, bar in enumerate(group.bars):
            if bar is not None:
                parts += _bar(y, start + number * width, width, *bar, fill(number))
        middle = box.left + each * (place + 0.5)
        parts.append(text(middle + 4, box.bottom + 14, group.name, SLANT, text_anchor="end", font_size=SMALL, fill=INK))
    return [*parts, line(box.left, y.at(0), box.right, y.at(0), stroke=INK), line(*_floor(box), stroke=GRID)]


def _bar(y: Axis, left: float, width: float, mean: float, spread: float, colour: str) -> list[str]:
    top, bottom, middle = y.at(max(mean, 0.0)), y.at(min(mean, 0.0)), left + width * 0.46
    parts = [element("rect", x=left, y=top, width=width * 0.92, height=bottom - top, fill=colour)]
    if spread:
        ends = [y.at(mean - spread), y.at(mean + spread)]
        parts.append(line(middle, ends[0], middle, ends[1], stroke=INK))
        parts += [line(middle - 3, end, middle + 3, end, stroke=INK) for end in ends]
    return parts


def _mean(values: Values) -> Values:
    """Over the last axis, of what is a number; not a number where nothing is."""
    known = ~np.isnan(values)
    number = known.sum(-1)
    return np.where(number > 0, np.where(known, values, 0.0).sum(-1) / np.maximum(number, 1), math.nan)
