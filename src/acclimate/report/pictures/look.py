"""How pictures look, by day and by night: fonts, inks, and colours that colour-blind eyes tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acclimate.report.pictures.picture import Spec

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
# The colours of Okabe and Ito; a grey first, for what others are compared with, and no yellow (too pale).
DAY = ["#4d4d4d", "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7"]
NIGHT = ["#c8c8c8", "#4aa8e8", "#f0b030", "#2bc79a", "#ff8548", "#9ad6fa", "#eaa6cd"]
DASHES = [[1, 0], [7, 3], [2, 3]]  # when the colours are used up


def config(night: bool = False) -> Spec:
    """The part of a specification that is about looks alone."""
    ink, pale, rule, ramp = (
        ("#e6e6e6", "#a8a8a8", "#3d3d3d", ["#16222d", "#1d4666", "#2f7fb5", "#7cbdea", "#e4f3ff"])
        if night
        else ("#222222", "#5f5f5f", "#e4e4e4", ["#f4f8fc", "#c6dbef", "#6baed6", "#2171b5", "#08306b"])
    )
    small = {"labelFontSize": 11, "titleFontSize": 12, "labelColor": pale, "titleColor": ink, "titleFontWeight": 400}
    return {
        "background": None if night else "white",
        "font": FONT,
        "axis": {**small, "gridColor": rule, "domainColor": pale, "tickColor": pale, "labelLimit": 220},
        "legend": {**small, "labelFontSize": 12, "symbolStrokeWidth": 2.5, "labelLimit": 240},
        "header": {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "labelFontWeight": "bold"},
        "title": {
            **{"anchor": "start", "color": ink, "fontSize": 16, "offset": 12},
            **{"subtitleColor": pale, "subtitleFontSize": 12, "subtitlePadding": 6, "subtitleLineHeight": 17},
        },
        "view": {"stroke": rule},
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": pale},
        **{mark: {"color": (NIGHT if night else DAY)[1]} for mark in ("bar", "rect", "line", "area")},
        "range": {"category": NIGHT if night else DAY, "ramp": ramp, "heatmap": ramp},
    }


def colour(names: Sequence[str], field: str = "s") -> Spec:
    """A colour for each name, the same in every picture where the names are the same."""
    return {"field": field, "type": "nominal", "scale": {"domain": list(names)}, "legend": None}


def dash(names: Sequence[str], field: str = "s") -> Spec:
    """Dashes for those whose colour is taken."""
    dashes = [DASHES[number // len(DAY) % len(DASHES)] for number in range(len(names))]
    return {"field": field, "type": "nominal", "scale": {"domain": list(names), "range": dashes}, "legend": None}


def across(panels: int, most: int) -> int:
    """How many panels stand side by side, so that rows are about equally long.

    >>> across(5, 4), across(10, 4), across(2, 4)
    (3, 4, 2)
    """
    return -(-panels // -(-panels // most))


def hover(fields: Mapping[str, str]) -> list[Spec]:
    """What is told of the thing under the pointer: field → its name."""
    return [{"field": field, "title": name} for field, name in fields.items()]
