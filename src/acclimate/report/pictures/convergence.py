"""Accuracy of the kept rounds on source validation data, where a run has tested them to select one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from acclimate.report.pictures.lines import HEIGHT, WIDTH, end_data, line_data, line_layers, over_seeds, room
from acclimate.report.pictures.picture import Asked, Picture, Spec, some, source
from acclimate.store.records import Chosen
from acclimate.store.run import Run

HEADING = "Convergence"
LEAD = (
    "The accuracy on the source clients' validation data after every round that was kept; rings mark the round chosen."
)


def has(run: Run) -> bool:
    return any(len(one.accuracies) > 1 for seeds in run.rounds().values() for one in seeds)


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        several = {system: seeds for system, seeds in run.rounds().items() if len(seeds[0].accuracies) > 1}
        seeds = sorted({one.seed for each in several.values() for one in each})
        note = f"{source(run)}. Mean over {some('seed', seeds)}{'; bands: range over seeds' * (len(seeds) > 1)}."
        titles = [system for entry in run.entries if (system := entry.title) in several]
        yield Picture(run.name, "convergence", "Accuracy by round, on validation data", (note,), _spec(several, titles))


def _spec(several: dict[str, list[Chosen]], titles: Sequence[str]) -> Spec:
    rows, rings = [], []
    for system, seeds in several.items():
        rounds = sorted(map(int, seeds[0].accuracies))
        values = [np.array([100 * one.accuracies[str(round)] for round in rounds]) for one in seeds]
        rows += [{**row, "x": rounds[row["x"]]} for row in line_data({system: over_seeds(values)}, 1)]
        rings += [
            {"s": system, "x": int(one.best), "y": round(100 * one.accuracies[one.best], 3), "seed": one.seed}
            for one in seeds
        ]
    x = {"field": "x", "type": "quantitative", "title": "round", "axis": {"grid": False, "tickMinStep": 1},
         "scale": {"nice": False, "zero": False}}  # fmt: skip
    y = {"type": "quantitative", "title": "validation accuracy in %", "scale": {"zero": False}}
    best: Spec = {
        "data": {"values": rings},
        "mark": {"type": "point", "size": 90, "strokeWidth": 2},
        "encoding": {
            **{"x": x, "y": {**y, "field": "y"}},
            "color": {"field": "s", "scale": {"domain": list(titles)}, "legend": None},
            "tooltip": [{"field": "s", "title": "system"}, {"field": "seed"}, {"field": "x", "title": "round chosen"}],
        },
    }
    band = any(len(seeds) > 1 for seeds in several.values())
    layers = line_layers(titles, x, y, band=band, ends=end_data(rows))
    return {
        **{"width": WIDTH, "height": HEIGHT, "usermeta": {"beside": room(titles)}},
        **{"data": {"values": rows}, "layer": [*layers, best]},
    }
