"""docs/speed.md: what was measured beside what was asked for, and how things grow; `python -m benchmarks` writes it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from acclimate.report.pictures.look import DAY, FONT
from acclimate.report.pictures.render import VERSION
from benchmarks.measure import Grown, Line

DOCS = Path(__file__).resolve().parents[1] / "docs"
KEPT, LISTS = DOCS / "results" / "speed.jsonl", ("lines", "growth")
HEAD = """# Speed

Written by `python -m benchmarks` (`make bench`; `make bench-peers` sets pfl 0.6.0 and Flower 1.41.0 up before, and
compares with them too; `python -m benchmarks NAME` measures one part again). Both sides of a comparison run in turn and
must compute the same thing. A ratio is the median of neighbouring runs, with its range. Where two processes are not the
point, it is of processor time.
"""


class Measured(NamedTuple):
    """What one run of some benchmarks has found, and on what machine."""

    title: str
    lines: list[Line]
    growth: list[Grown]
    machine: str


def machine(busy: float) -> str:
    """What is measured on."""
    cpu = next((line.partition(":")[2].strip() for line in _cpu() if line.startswith("model name")), "unknown")
    told = f"{os.cpu_count()} cores ({cpu}), Python {platform.python_version()}, torch {torch.__version__}"
    if busy > 0.2:
        told += f"; other programs kept {busy:.1f} cores busy, so that figures of two processes mean little"
    return told


def write(new: Sequence[Measured], order: Sequence[str]) -> Path:
    """The page and its pictures, from what was measured now and, of other benchmarks, before."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    kept = {one["title"]: one for one in map(json.loads, lines)}
    kept |= {one.title: {**one._asdict(), **{k: [v._asdict() for v in getattr(one, k)] for k in LISTS}} for one in new}
    found = [kept[title] for title in order if title in kept]
    KEPT.write_text("".join(f"{json.dumps(one)}\n" for one in found), encoding="utf-8")
    text, before, pictures = HEAD, "", 0
    for one in found:
        text += f"\n## {one['title']}\n"
        text += "" if one["machine"] == before else f"\nOn {one['machine']}.\n"
        before = one["machine"]
        if one["lines"]:
            text += "\n| what | measured | range | goal | met |\n|---|---:|---|---|---|\n"
            text += "".join(_row(Line(**line)) for line in one["lines"])
        points = [Grown(**point) for point in one["growth"]]
        for what in dict.fromkeys(point.what for point in points):
            picture = DOCS / "figures" / f"speed-{pictures}.svg"
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_bytes(_drawn(what, [point for point in points if point.what == what]))
            text += f"\n![{what}, by the number of clients](figures/{picture.name})\n"
            pictures += 1
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
