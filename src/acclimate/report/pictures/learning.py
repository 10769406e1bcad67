"""Learning curves: what clients reported round after round, phase by phase."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from acclimate.report.pictures.lines import line_data, over_seeds, window_of
from acclimate.report.pictures.look import across
from acclimate.report.pictures.picture import Asked, Picture, Spec, some, source
from acclimate.store.run import Run

HEADING = "How training went"
LEAD = "A curve that still falls at its end would have gained from more rounds; one that jumps, from a smaller rate."
MOST_PANELS = 12


def has(run: Run) -> bool:
    return any(rounds > 1 for rounds in (len(of) for of in _curves(run).values()))


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        panels = [(title, rounds) for title, rounds in _curves(run).items() if len(rounds) > 1][:MOST_PANELS]
        rows = [{**row, "x": row["x"] + 1} for title, rounds in panels for row in _rows(title, rounds)]
        notes = (
            f"{source(run)}. Mean over the clients of a round and {some('seed', run.seeds)}; bands: the range over "
            "seeds, and over phases of one name with different options."
        )
        yield Picture(run.name, "learning", "Learning curves", (notes,), _spec(rows, [title for title, _ in panels]))


def _curves(run: Run) -> dict[str, dict[int, list[float]]]:
    """Phase and metric → round → the values of all seeds."""
    found: dict[tuple[int, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in run.learning():
        position, name = one.phase.partition("#")[0].split(":", 1)
        found[int(position), f"{name}: {one.metric}"][one.round].append(one.value)
    return {f"{position + 1}. {title}": dict(rounds) for (position, title), rounds in sorted(found.items())}


def _rows(title: str, rounds: dict[int, list[float]]) -> list[Spec]:
    most, last = max(map(len, rounds.values())), max(rounds)
    seeds = [
        np.array([rounds[r][n] if n < len(rounds.get(r, [])) else math.nan for r in range(1, last + 1)])
        for n in range(most)
    ]
    return line_data({title: over_seeds(seeds)}, window_of(last))


def _spec(rows: Sequence[Spec], titles: Sequence[str]) -> Spec:
    x = {"field": "x", "type": "quantitative", "title": "round", "axis": {"grid": False, "tickMinStep": 1},
         "scale": {"nice": False, "zero": False}}  # fmt: skip
    y = {"type": "quantitative", "title": None, "scale": {"zero": False}}
    about = [{"field": "x", "title": "round"}, {"field": "y", "title": "mean", "format": ".4f"}]
    return {
        "data": {"values": list(rows)},
        "facet": {"field": "s", "type": "nominal", "sort": list(titles), "title": None},
        "columns": across(len(titles), 3),
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": 240,
            "height": 160,
            "layer": [
                {
                    "mark": {"type": "area", "opacity": 0.2},
                    "encoding": {"x": x, "y": {**y, "field": "l"}, "y2": {"field": "h"}},
                },
                {
                    "mark": {"type": "line", "point": {"size": 50, "opacity": 0}, "strokeWidth": 1.8},
                    "encoding": {"x": x, "y": {**y, "field": "y"}, "tooltip": about},
                },
            ],
        },
    }
