"""How much a method trusts the global model on each test distribution: e, image by image (BTFL, FedTHE)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from acclimate.report.pictures.picture import Asked, Picture, Spec, some, source
from acclimate.store.run import Run

HEADING = "Whom to trust, image by image (e)"
LEAD = (
    "e is the share of the global knowledge in a prediction. On a client's own distribution it should be near 0 (trust "
    "the personal head), on foreign images near 1; where it stays in the middle, the method cannot tell."
)
BINS = 25


def has(run: Run) -> bool:
    return any("e" in drawn.content for stream in run.streams for drawn in run.figures(stream, seed=run.seeds[0]))


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        rows: list[Spec] = []
        for stream in run.streams:
            found: dict[str, list[float]] = defaultdict(list)
            for drawn in run.figures(stream):
                if "e" in drawn.content:
                    found[drawn.entry.title] += drawn.content["e"].flatten().tolist()
            rows += [row for title, values in found.items() for row in _histogram(title, stream, values)]
        note = f"{source(run)}. All images of all clients, {some('seed', run.seeds)}; dashed: the mean."
        titles = [t.title for t in run.entries if any(row["s"] == t.title for row in rows)]
        yield Picture(run.name, "balance", "e by test distribution", (note,), _spec(rows, titles, run.streams))


def _histogram(title: str, stream: str, values: Sequence[float]) -> list[Spec]:
    counts, edges = np.histogram(np.clip(values, 0, 1), bins=BINS, range=(0.0, 1.0))
    mean = round(float(np.mean(values)), 4)
    return [
        {"s": title, "d": stream, "a": round(float(a), 3), "b": round(float(b), 3), "m": mean,
         "p": round(100 * float(count) / len(values), 3)}
        for count, a, b in zip(counts, edges[:-1], edges[1:], strict=True)
    ]  # fmt: skip


def _spec(rows: Sequence[Spec], titles: Sequence[str], streams: Sequence[str]) -> Spec:
    tips = [
        {"field": "d", "title": "test distribution"},
        {"field": "a", "title": "e from"},
        {"field": "p", "title": "% of images"},
    ]
    x: Spec = {
        "field": "a",
        "type": "quantitative",
        "title": "e",
        "scale": {"domain": [0, 1]},
        "axis": {"tickCount": 3},
    }
    bars: Spec = {
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            **{"x": x, "x2": {"field": "b"}, "tooltip": tips},
            "y": {"field": "p", "type": "quantitative", "title": "% of images", "axis": {"tickCount": 4}},
            "y2": {"datum": 0},
        },
    }
    middle: Spec = {
        "transform": [{"aggregate": [], "groupby": ["s", "d", "m"]}],
        "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5},
        "encoding": {"x": {**x, "field": "m"}},
    }
    return {
        "data": {"values": list(rows)},
        "facet": {
            "row": {
                "field": "s",
                "title": None,
                "sort": list(titles),
                "header": {"labelAngle": 0, "labelAlign": "left"},
            },
            "column": {"field": "d", "title": None, "sort": list(streams)},
        },
        "spec": {"width": 110, "height": 110, "layer": [bars, middle]},
        "spacing": 12,
    }
