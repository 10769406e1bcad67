"""BTFL's memory over time: the parameters (α, β) of its Beta prior."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from acclimate.report.pictures.look import colour, hover
from acclimate.report.pictures.picture import Asked, Picture, Spec, some, source
from acclimate.store.run import Run

HEADING = "What was remembered (α, β)"
LEAD = (
    "α counts images that looked external, β those that looked internal. The larger of the two leans the next "
    "prediction: a stream of foreign images should raise α, one of the client's own should raise β."
)
SYMBOLS = ("α (external)", "β (internal)")
MOST_SLOTS = 120


def has(run: Run) -> bool:
    return any("prior" in drawn.content for stream in run.streams for drawn in run.figures(stream, seed=run.seeds[0]))


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        rows: list[Spec] = []
        for stream in run.streams:
            noted: dict[tuple[str, int], list[list[float]]] = defaultdict(list)
            for drawn in run.figures(stream):
                if "prior" in drawn.content:
                    noted[drawn.entry.title, drawn.slot].append(drawn.content["prior"].tolist())
            most = max(map(len, noted.values()), default=0)
            found = {at: priors for at, priors in noted.items() if 2 * len(priors) >= most}  # else of a few clients
            each = -(-len({slot for _, slot in found}) // MOST_SLOTS)
            for (title, slot), priors in sorted(found.items()):
                if slot % each == 0:
                    means = np.mean(priors, axis=0).tolist()
                    rows += [
                        {"t": title, "d": stream, "x": slot, "s": symbol, "y": round(value, 4)}
                        for symbol, value in zip(SYMBOLS, means, strict=True)
                    ]
        titles = [t.title for t in run.entries if any(row["t"] == t.title for row in rows)]
        note = f"{source(run)}. After each slot that half of the clients reach, mean over them"
        note += f" and {some('seed', run.seeds)}."
        yield Picture(run.name, "prior", "The Beta prior over time", (note,), _spec(rows, titles, run.streams))


def _spec(rows: Sequence[Spec], titles: Sequence[str], streams: Sequence[str]) -> Spec:
    hue = {**colour(SYMBOLS), "legend": {"title": None, "orient": "top"}}
    tips = hover({"s": "symbol", "x": "slot", "y": "value"})
    return {
        "data": {"values": list(rows)},
        "facet": {
            "row": {
                "field": "t",
                "title": None,
                "sort": list(titles),
                "header": {"labelAngle": 0, "labelAlign": "left"},
            },
            "column": {"field": "d", "title": None, "sort": list(streams)},
        },
        "spec": {
            "width": 130,
            "height": 130,
            "mark": {"type": "line", "point": {"size": 30, "opacity": 0}},
            "encoding": {
                "x": {"field": "x", "type": "quantitative", "title": "slot", "axis": {"grid": False, "tickCount": 3}},
                "y": {"field": "y", "type": "quantitative", "title": "mean", "scale": {"zero": False}},
                "color": hue,
                "tooltip": tips,
            },
        },
        "spacing": 12,
    }
