"""Accuracy against whatever a published table varies: not of a run, but of the pieces of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acclimate.report.pictures.lines import HEIGHT, WIDTH, Line, Values, end_data, hidden, line_data, line_layers, room
from acclimate.report.pictures.look import colour
from acclimate.report.pictures.picture import Picture, Spec


def sweep(name: str, title: str, note: str, named: Mapping[str, Values], varied: str, values: Sequence[str]) -> Picture:
    """A line for each system, one value for each thing that was varied."""
    lines = {system: Line(each, each, each) for system, each in named.items()}
    rows, titles = line_data(lines, 1, values), list(named)
    x: Spec = {"field": "x", "type": "ordinal", "title": varied, "sort": list(values), "axis": {"labelAngle": 0},
               "scale": {"type": "point", "padding": 0.1}}  # fmt: skip
    y: Spec = {"type": "quantitative", "title": "accuracy in %", "scale": {"zero": False}}
    dots: Spec = {
        "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
        "encoding": {"x": x, "y": {**y, "field": "y"}, "color": colour(titles)},
    }
    layers = [*line_layers(titles, x, y, band=False, ends=end_data(rows)), dots]
    spec = {
        **{"width": WIDTH, "height": HEIGHT, "usermeta": {"beside": room(titles)}},
        **{"data": {"values": rows}, "layer": layers},
    }
    return Picture("", name, title, (note, *hidden(lines)), spec)
