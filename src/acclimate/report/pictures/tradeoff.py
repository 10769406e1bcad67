"""Accuracy of every method under one shift against that under another: of two pieces of a table, not of a run."""

from __future__ import annotations

from collections.abc import Mapping

from acclimate.report.pictures.look import colour, hover
from acclimate.report.pictures.picture import Picture, Spec

SIDE = 420
WIDE, HIGH = 0.25, 0.035  # of the picture: what a name takes
Point = tuple[float, float]  # accuracies in %


def tradeoff(
    name: str, title: str, note: str, named: Mapping[str, Point], axes: tuple[str, str], start: Point | None
) -> Picture:
    """A point for each method; `start` is no adaptation, through which two lines go: up and right of both is better."""
    below = crowded(named)
    rows = [{"s": row, "x": round(x, 2), "y": round(y, 2), "b": row in below} for row, (x, y) in named.items()]
    x: Spec = {"field": "x", "type": "quantitative", "title": f"accuracy in %, {axes[0]}", "scale": {"zero": False}}
    y: Spec = {"field": "y", "type": "quantitative", "title": f"accuracy in %, {axes[1]}", "scale": {"zero": False}}
    lines: list[Spec] = []
    if start is not None:
        for axis, value in zip("xy", start, strict=True):
            mark = {"type": "rule", "strokeDash": [4, 3]}
            lines.append({"mark": mark, "encoding": {axis: {"datum": round(value, 2), "type": "quantitative"}}})
    tips = hover({"s": "method", "x": axes[0], "y": axes[1]})
    dots: Spec = {
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
        "encoding": {"x": x, "y": y, "color": colour(list(named)), "tooltip": tips},
    }
    names: list[Spec] = [
        {
            "transform": [{"filter": f"datum.b === {str(under).lower()}"}],
            "mark": {"type": "text", "align": "left", "dx": 7, "dy": 9 if under else -6, "fontSize": 11},
            "encoding": {"x": x, "y": y, "text": {"field": "s"}},
        }
        for under in (False, True)
    ]
    spec = {"width": SIDE, "height": SIDE, "data": {"values": rows}, "layer": [*lines, dots, *names]}
    return Picture("", name, title, (note,), spec)


def crowded(named: Mapping[str, Point]) -> set[str]:
    """Whose name stands below its point, because that of a higher point nearby stands above.

    >>> crowded({"a": (60.0, 70.0), "b": (60.1, 70.1), "c": (80.0, 20.0)})
    {'a'}
    """
    spans = [max(values) - min(values) or 1.0 for values in zip(*named.values(), strict=True)]
    above: list[Point] = []
    below: set[str] = set()
    for row, (x, y) in sorted(named.items(), key=lambda item: -item[1][1]):
        if any(abs(x - u) < WIDE * spans[0] and abs(y - v) < HIGH * spans[1] for u, v in above):
            below.add(row)
        else:
            above.append((x, y))
    return below
