"""How far the two heads agree on each test distribution: λ_s, which decides what FedTHE goes by (BTFL's Figure 1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from acclimate.report.pictures.look import colour, hover
from acclimate.report.pictures.picture import Asked, Picture, Spec, some, source
from acclimate.store.run import Run

HEADING = "Do the heads agree? (λ_s)"
LEAD = (
    "FedTHE weighs how sure a mix of both heads is by their agreement λ_s, and how near features are by the rest. "
    "Where λ_s stays low on all distributions, distances of features decide alone."
)


def has(run: Run) -> bool:
    return any(
        "similarity" in drawn.content for stream in run.streams for drawn in run.figures(stream, seed=run.seeds[0])
    )


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        rows: list[Spec] = []
        for stream in run.streams:
            found: dict[str, list[float]] = defaultdict(list)
            for drawn in run.figures(stream):
                if "similarity" in drawn.content:
                    found[drawn.entry.title] += drawn.content["similarity"].flatten().tolist()
            rows += [{"s": title, "d": stream, "y": round(float(np.mean(of)), 4)} for title, of in found.items()]
        titles = [entry.title for entry in run.entries if any(row["s"] == entry.title for row in rows)]
        note = f"{source(run)}. Mean over all images of all clients and {some('seed', run.seeds)}."
        yield Picture(run.name, "agreement", "λ_s by test distribution", (note,), _spec(rows, titles, run.streams))


def _spec(rows: Sequence[Spec], titles: Sequence[str], streams: Sequence[str]) -> Spec:
    legend = {"title": None, "symbolType": "square"} if len(titles) > 1 else None
    return {
        "width": max(240, 22 * len(titles) * len(streams) + 60),
        "height": 220,
        "data": {"values": list(rows)},
        "mark": {"type": "bar", "strokeWidth": 0},
        "encoding": {
            "x": {"field": "d", "type": "nominal", "title": None, "sort": list(streams), "axis": {"labelAngle": -30}},
            "xOffset": {"field": "s", "sort": list(titles)},
            "y": {"field": "y", "type": "quantitative", "title": "mean λ_s", "scale": {"domain": [0, 1]}},
            "color": {**colour(titles), "legend": legend},
            "tooltip": hover({"s": "system", "d": "distribution", "y": "mean λ_s"}),
        },
    }
