"""Lines over time with their names beside their ends: what most pictures are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acclimate.report.pictures.look import colour, dash
from acclimate.report.pictures.picture import Spec

Values = NDArray[np.float64]

WIDTH, HEIGHT = 640, 320
APART = 15  # pixels between two names
MOST_POINTS = 200  # of a line: more cannot be seen
LETTER = 6.6  # pixels
PACKED = ("x", "y", "l", "h")
UNPACK = {"flatten": list(PACKED)}


class Line(NamedTuple):
    """Values by step and, where there are several seeds, what they range over; not a number: unknown."""

    mean: Values
    low: Values
    high: Values


def over_seeds(seeds: Sequence[Values]) -> Line:
    """The mean of what is known, and the range."""
    every = np.stack(seeds)
    known = ~np.isnan(every)
    low, high = np.where(known, every, math.inf).min(0), np.where(known, every, -math.inf).max(0)
    return Line(mean(every.T), *(np.where(known.any(0), edge, math.nan) for edge in (low, high)))


def line_data(named: Mapping[str, Line], window: int, names: Sequence[str] = ()) -> list[Spec]:
    """One row for every point that is drawn: smoothed, and thinned where there are too many to see."""
    rows = []
    for name, line in named.items():
        mean_, low, high = (smooth(values, window) for values in line)
        each = math.ceil(len(mean_) / MOST_POINTS)
        for step in range(0, len(mean_), each):
            if not math.isnan(mean_[step]):
                rows.append(
                    {
                        **{"s": name, "x": names[step] if names else step},
                        **{"y": _short(mean_[step]), "l": _short(low[step]), "h": _short(high[step])},
                    }
                )
    return rows


def packed(rows: Sequence[Spec]) -> list[Spec]:
    """The same in a third of the size: one row for each line, to be opened by UNPACK."""
    lines: dict[tuple[str, str], Spec] = {}
    for row in rows:
        line = lines.setdefault((row["s"], row.get("g", "")), {k: [] if k in PACKED else row[k] for k in row})
        for key in PACKED:
            line[key].append(row[key])
    return list(lines.values())


def end_data(rows: Sequence[Spec], height: int = HEIGHT) -> list[Spec]:
    """Where each line ends, and where beside it its name stands: as near as the others' names allow."""
    last = {row["s"]: row for row in rows}
    if not last:
        return []
    low, high = min(row["l"] for row in rows), max(row["h"] for row in rows)
    gap = APART / height * ((high - low) or 1.0)
    ends = sorted(({"s": name, "y": row["y"]} for name, row in last.items()), key=lambda end: end["y"])
    for end, at in zip(ends, spread([end["y"] for end in ends], gap, low, high), strict=True):
        end["at"] = round(at, 4)
    return ends


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Ascending numbers moved as little as needed to be `gap` apart, and below `high` if need be.

    >>> spread([1.0, 1.0, 5.0], 1.0, 0.0, 10.0), spread([1.0, 9.9, 10.0], 1.0, 0.0, 10.0)
    ([0.5, 1.5, 5.0], [1.0, 9.0, 10.0])
    """
    groups: list[list[float]] = []  # wanted places of names that touch
    for value in values:
        groups.append([value])
        while len(groups) > 1 and _first(groups[-2], gap) + gap * len(groups[-2]) > _first(groups[-1], gap):
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = [_first(group, gap) + gap * number for group in groups for number in range(len(group))]
    for number in range(len(placed)):  # up from below, then down from above: only what stands outside moves
        placed[number] = max(placed[number], placed[number - 1] + gap if number else low)
    for number in reversed(range(len(placed))):
        placed[number] = min(placed[number], placed[number + 1] - gap if number + 1 < len(placed) else high)
    return placed


def line_layers(
    names: Sequence[str], x: Spec, y: Spec, *, band: bool, ends: Sequence[Spec], filters: Sequence[Spec] = ()
) -> list[Spec]:
    """The band of seeds, the lines, and their names; a click on a name brings its line out."""
    hue, shown = colour(names), {"condition": {"param": "picked", "value": 1}, "value": 0.12}
    about = [
        {"field": "s", "title": "system"},
        {"field": "x", "title": x["title"]},
        {"field": "y", "title": y["title"], "format": ".2f"},
    ]
    faint = {"condition": {"param": "picked", "value": 0.12}, "value": 0.03}
    edges = {"y": {**y, "field": "l"}, "y2": {"field": "h"}}
    lines: list[Spec] = (
        [{"mark": "area", "encoding": {**edges, "x": x, "color": hue, "opacity": faint}}] if band else []
    )
    lines.append(
        {
            "mark": {"type": "line", "strokeWidth": 1.8},
            "encoding": {"x": x, "y": {**y, "field": "y"}, "color": hue, "strokeDash": dash(names), "opacity": shown},
        }
    )
    lines.append(  # wider than any line, so that it is easily met
        {
            "mark": {"type": "point", "size": 120, "opacity": 0, "filled": True},
            "encoding": {"x": x, "y": {**y, "field": "y"}, "tooltip": about},
        }
    )
    return [*lines, *_named(names, y, ends, filters, shown)]


def _named(names: Sequence[str], y: Spec, ends: Sequence[Spec], filters: Sequence[Spec], shown: Spec) -> list[Spec]:
    data = {"data": {"values": list(ends)}, "transform": list(filters)}
    start, stop, text = ({"value": {"expr": f"width + {pixels}"}} for pixels in (3, 17, 21))
    picked = {"name": "picked", "select": {"type": "point", "fields": ["s"], "on": "click", "toggle": "true"}}
    return [
        {
            **data,
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {
                **{"x": start, "x2": stop, "y": {**y, "field": "y"}, "y2": {"field": "at"}},
                **{"color": colour(names), "strokeDash": dash(names), "opacity": shown},
            },
        },
        {
            **data,
            "params": [picked],
            "mark": {"type": "text", "align": "left", "baseline": "middle", "cursor": "pointer"},
            "encoding": {"x": text, "y": {**y, "field": "at"}, "text": {"field": "s"}, "opacity": shown},
        },
    ]


def room(names: Sequence[str]) -> int:
    """Pixels beside a plot for the names of its lines."""
    return 30 + math.ceil(LETTER * max(map(len, names), default=0))


def hidden(named: Mapping[str, Line]) -> list[str]:
    """A sentence for every line that covers earlier ones."""
    every = np.concatenate([line.mean for line in named.values()])
    close = float(np.nanmax(every) - np.nanmin(every)) / 300
    covered: dict[str, str] = {}  # by the last line that does
    for (a, below), (b, above) in itertools.combinations(named.items(), 2):
        if below.mean.shape == above.mean.shape and np.allclose(below.mean, above.mean, 0, close, equal_nan=True):
            covered[a] = b
    under = {top: [a for a, b in covered.items() if b == top] for top in dict.fromkeys(covered.values())}
    return [f"{', '.join(names)} {'lie' if len(names) > 1 else 'lies'} under {top}." for top, names in under.items()]


def smooth(values: Values, window: int) -> Values:
    """A centred mean over `window` values, over fewer at the ends; what is not a number does not count.

    >>> smooth(np.array([0.0, 3.0, 6.0]), 3)
    array([1.5, 3. , 4.5])
    """
    around = np.pad(values, window // 2, constant_values=math.nan)
    return mean(np.lib.stride_tricks.sliding_window_view(around, window))


def window_of(steps: int) -> int:
    """How many steps to smooth over: about a fiftieth, an odd number.

    >>> window_of(40), window_of(750)
    (1, 15)
    """
    return 2 * (steps // 100) + 1


def mean(values: Values) -> Values:
    """Over the last axis, of what is a number; not a number where nothing is."""
    known = ~np.isnan(values)
    number = known.sum(-1)
    return np.where(number > 0, np.where(known, values, 0.0).sum(-1) / np.maximum(number, 1), math.nan)


def _first(group: Sequence[float], gap: float) -> float:
    """The lowest place of names that touch, if they are centred on where they want to be."""
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _short(value: float) -> float:
    return float(f"{value:.5g}")
