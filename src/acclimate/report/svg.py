"""SVG by hand: words, lines and coloured cells as strings; the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape as _escape
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import shown

Values = NDArray[np.float64]

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
INK, PALE, GRID, ABSENT = "#222222", "#5f5f5f", "#e4e4e4", "#d6d0c4"
# The colours of Okabe and Ito, which colour-blind eyes tell apart; black first, their yellow left out (too pale).
COLOURS = ("#3a3a3a", "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")
DASHES = ("none", "7 3", "2 3")  # when the colours are used up
SHADES = ("#fbfcfe", "#c6dbef", "#6baed6", "#2171b5", "#08306b")  # from nothing to the most
LEVELS = 64  # of shades: equal neighbours become one shape, which keeps files small
WIDE = 0.58  # of a letter, in units of its size: wide enough for the fonts above


def escape(words: str) -> str:
    """Words as they can stand in a file: control characters, which XML has no place for, are written out."""
    return _escape(shown(words))


class Box(NamedTuple):
    """A rectangle to draw in, in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height


class Axis(NamedTuple):
    """Numbers from low to high, laid out between two pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a number."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)

    def ticks(self, most: int = 6, whole: bool = False) -> list[float]:
        """Round numbers along the axis.

        >>> Axis(0, 30, 0, 1).ticks()
        [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
        """
        step = max(round_up((self.high - self.low or 1.0) / most), 1.0 if whole else 0.0)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def round_up(least: float) -> float:
    """The next of 1, 2 and 5 times a power of ten.

    >>> round_up(0.13), round_up(3), round_up(7)
    (0.2, 5.0, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return round(next(f * power for f in (1, 2, 5, 10) if f * power >= least * (1 - 1e-9)), 12)


def label(tick: float) -> str:
    """A number on an axis, written out where that is short.

    >>> label(-0.00005), label(20.0), label(2e-9)
    ('−0.00005', '20', '2e−09')
    """
    short = f"{tick:.5f}".rstrip("0").rstrip(".")
    return (short if math.isclose(float(short), tick, abs_tol=1e-15) else f"{tick:g}").replace("-", "−")


def length(words: str, size: float = 12) -> float:
    """About how many pixels some words take."""
    return WIDE * size * len(words)


def element(tag: str, content: str = "", /, **attributes: str | float) -> str:
    """One element; `stroke_width=2` becomes stroke-width="2".

    >>> element("rect", x=1 / 3, fill="red")
    '<rect x="0.33" fill="red"/>'
    """
    opened = tag + "".join(f" {key.replace('_', '-')}={quoteattr(_plain(v))}" for key, v in attributes.items())
    return f"<{opened}>{content}</{tag}>" if content else f"<{opened}/>"


def text(x: float, y: float, words: str, turn: float = 0, /, **more: str | float) -> str:
    """Words at a point, around which they may be turned."""
    turned = {"transform": f"rotate({_plain(turn)} {_plain(x)} {_plain(y)})"} if turn else {}
    return element("text", escape(words), x=x, y=y, **{"font_size": 12, "fill": INK, **more, **turned})


def line(x1: float, y1: float, x2: float, y2: float, **more: str | float) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **{"stroke": GRID, "stroke_width": 1, **more})


def style(number: int) -> dict[str, str | float]:
    """How the n-th line looks; all are different up to 21."""
    return {"stroke": COLOURS[number % len(COLOURS)], "stroke_dasharray": DASHES[number // len(COLOURS) % len(DASHES)]}


def fill(number: int) -> str:
    """The colour of the n-th bar: never black, which whiskers are drawn in."""
    return COLOURS[1 + number % (len(COLOURS) - 1)]


def curve(points: Iterable[tuple[float, float]], name: str, **more: str | float) -> str:
    """A line through points, interrupted where one is not a number."""
    steps, pen = [], "M"
    for x, y in points:
        steps += [] if math.isnan(y) else [f"{pen}{_plain(x)} {_plain(y)}"]
        pen = "M" if math.isnan(y) else "L"
    return element(
        "path", element("title", escape(name)), d="".join(steps), fill="none", stroke_width=2, stroke_linejoin="round",
        stroke_linecap="round", **more,
    )  # fmt: skip


def dot(x: float, y: float, number: int) -> str:
    """A point of the n-th line."""
    return element("circle", cx=x, cy=y, r=3.5, fill=style(number)["stroke"])


def point(x: float, y: float, number: int) -> str:
    """A small point of the n-th kind: filled, then hollow when the colours are used up."""
    colour, filled = COLOURS[number % len(COLOURS)], number // len(COLOURS) % 2 == 0
    return element("circle", cx=x, cy=y, r=2.4, fill=colour if filled else "none", stroke=colour, stroke_width=0.9)


def cells(box: Box, values: Values, highest: float) -> str:
    """A heatmap that fills a box; where nobody was (not a number) it is grey."""
    rows, columns = values.shape
    levels = np.where(np.isnan(values), -1, np.rint(LEVELS * _share(np.nan_to_num(values), highest))).astype(int)
    shapes: dict[int, list[str]] = {}
    for y, row in enumerate(levels.tolist()):
        x = 0
        for level, same in groupby(row):
            width = len(list(same))
            shapes.setdefault(level, []).append(f"M{x} {y}h{width}v1h-{width}z")
            x += width
    paths = [
        element("path", d="".join(shapes[n]), fill=shade(n / LEVELS) if n >= 0 else ABSENT) for n in sorted(shapes)
    ]
    scale = f"translate({_plain(box.left)} {_plain(box.top)}) scale({box.width / columns:.5g} {box.height / rows:.5g})"
    return element("g", "".join(paths), transform=scale, shape_rendering="crispEdges") + frame(box)


def colour_bar(box: Box, highest: float, name: str) -> list[str]:
    """What the colours of `cells` mean. They follow the square root, so that small weights beside a one are seen."""
    steps = np.linspace(highest, 0, LEVELS)[:, None] ** 2 / highest
    parts = [cells(box, steps, highest), text(box.left, box.top - 10, name)]
    last = -math.inf
    for tick in reversed(Axis(0, highest, 0, 1).ticks(5)):
        y = box.bottom - box.height * float(_share(np.array(tick), highest))
        if y - last >= 13:
            last = y
            parts.append(line(box.right, y, box.right + 4, y, stroke=PALE))
            parts.append(text(box.right + 7, y + 4, label(tick), fill=PALE, font_size=11))
    return parts


def shade(share: float) -> str:
    """A colour between nothing (0) and the most (1).

    >>> shade(0), shade(1)
    ('#fbfcfe', '#08306b')
    """
    place = share * (len(SHADES) - 1)
    lower = min(int(place), len(SHADES) - 2)
    pairs = zip(bytes.fromhex(SHADES[lower][1:]), bytes.fromhex(SHADES[lower + 1][1:]), strict=True)
    return "#" + "".join(f"{round(a + (place - lower) * (b - a)):02x}" for a, b in pairs)


def frame(box: Box) -> str:
    """The outline of a box."""
    return element(
        "rect", x=box.left, y=box.top, width=box.width, height=box.height, fill="none", stroke=PALE, stroke_width=0.8
    )


def picture(width: float, height: float, title: str, about: str, parts: Sequence[str]) -> str:
    """A whole file: on white, with a title and a description for those who cannot see it."""
    size: dict[str, str | float] = {"width": round(width), "height": round(height)}
    body = [
        element("title", escape(title), id="title"),
        element("desc", escape(about), id="about"),
        element("rect", **size, fill="#ffffff"),
        *parts,
    ]
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + element(
        "svg", "\n" + "\n".join(body) + "\n", xmlns="http://www.w3.org/2000/svg", **size,
        viewBox=f"0 0 {round(width)} {round(height)}", font_family=FONT, role="img", aria_labelledby="title about",
    ) + "\n"  # fmt: skip


def _share(values: Values, highest: float) -> Values:
    shares: Values = np.sqrt(np.clip(values / highest, 0, 1))
    return shares


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2) + 0.0:g}"  # + 0.0: no minus before a zero
