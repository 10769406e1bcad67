"""docs/speed.md: what was measured beside what was asked for, and how things grow; `python -m benchmarks` writes it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from acclimate.report.pictures.look import DAY, FONT
from acclimate.report.pictures.render import VERSION
from benchmarks.measure import Grown, Line

DOCS = Path(__file__).resolve().parents[1] / "docs"
HEAD = """# Speed

Written by `python -m benchmarks` (`make bench`; `make bench-peers` sets pfl 0.6.0 and Flower 1.41.0 up before, and
compares with them too). Both sides of a comparison run in turn and must compute the same thing. A ratio is the median
of neighbouring runs, with its range. Where two processes are not the point, it is of processor time.

"""


def write(found: Mapping[str, Sequence[Line]], growth: Sequence[Grown], busy: float, seconds: float) -> Path:
    """The page, and its pictures in docs/figures."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    cpu = next((line.partition(":")[2].strip() for line in _cpu() if line.startswith("model name")), "unknown")
    text = f"{HEAD}{os.cpu_count()} cores ({cpu}), Python {platform.python_version()}, torch {torch.__version__}; "
    text += f"{seconds / 60:.0f} minutes; other programs kept {busy:.1f} cores busy, load average {load}.\n"
    if busy > 0.2:
        text += "\nThe machine was busy: figures of two processes and two threads mean little here.\n"
    for name, lines in found.items():
        if lines:
            text += f"\n## {name}\n\n| what | measured | range | goal | met |\n|---|---:|---|---|---|\n"
            text += "".join(_row(line) for line in lines)
    for number, what in enumerate(dict.fromkeys(point.what for point in growth)):
        picture = DOCS / "figures" / f"speed-{number}.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(_drawn(what, [point for point in growth if point.what == what]))
        text += f"\n![{what}, by the number of clients](figures/{picture.name})\n"
    page = DOCS / "speed.md"
    page.write_text(text, encoding="utf-8")
    return page


def _row(line: Line) -> str:
    met = "" if line.met is None else "yes" if line.met else "**no**"
    spread = "" if line.low == line.high else f"{line.low:.3g} to {line.high:.3g}"
    return f"| {line.what} | {line.value:.3g} | {spread} | {line.required.strip('-')} | {met} |\n"


def _cpu() -> list[str]:
    info = Path("/proc/cpuinfo")
    return info.read_text().splitlines() if info.exists() else []


def _drawn(what: str, points: Sequence[Grown]) -> bytes:
    import vl_convert

    axes = {"type": "quantitative", "scale": {"type": "log"}}
    spec = {
        "data": {"values": [point._asdict() for point in points]},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "clients", "title": "clients", **axes},
            "y": {"field": "value", "title": what, **axes},
            "color": {"field": "side", "title": None},
        },
        "width": 420,
        "height": 260,
        "config": {"font": FONT, "range": {"category": DAY}},
    }
    return vl_convert.vegalite_to_svg(spec, vl_version=VERSION).encode()
