"""Accuracy and loss on test data after every kept round, beside the loss that was trained on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from acclimate.report.pictures.lines import smooth, window_of
from acclimate.report.pictures.look import colour, hover
from acclimate.report.pictures.picture import Asked, Picture, Spec, of_stream, some, source
from acclimate.store.run import Run

HEADING = "Convergence on test data"
LEAD = (
    "What the kept rounds would have given on the test clients. Where the loss that was trained on (dashed) falls and "
    "that on test data does not, a phase learns what does not carry over."
)
PANELS = {"accuracy": "accuracy in %", "loss": "cross-entropy"}
WHERE = ("test data", "training")
SIDE = 300


def has(run: Run) -> bool:
    return bool(run.convergence())


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        reached = run.convergence()
        trained = _trained(run)
        titles = [entry.title for entry in run.entries if any(one.system == entry.title for one in reached)]
        for stream in dict.fromkeys(one.stream for one in reached):
            found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
            for one in reached:
                if one.stream == stream:
                    found["accuracy", one.system, one.round].append(100 * one.accuracy)
                    found["loss", one.system, one.round].append(one.loss)
            rows = [
                {"p": panel, "s": system, "w": WHERE[0], "x": round, "y": float(f"{np.mean(values):.5g}")}
                for (panel, system, round), values in found.items()
            ]
            notes = [f"{source(run)}. Mean over all images and {some('seed', run.seeds)}."]
            notes += ["Dashed: the mean of what clients reported while they trained, smoothed."] if trained else []
            title = f"Convergence on test data{of_stream(run, stream)}"
            yield Picture(run.name, f"course-{stream}", title, tuple(notes), _spec([*rows, *trained], titles))


def _trained(run: Run) -> list[Spec]:
    """The loss of the phase whose rounds were tested, as clients reported it, by system."""
    tested = {one.system for one in run.convergence()}
    losses: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    labels = {(system, seed): run.last_phase(system, seed) for system in tested for seed in run.seeds}
    for learnt in run.learning():
        for (system, seed), label in labels.items():
            if learnt.metric == "loss" and (learnt.phase, learnt.seed) == (label, seed):
                losses[system][learnt.round].append(learnt.value)
    rows = []
    for system, by_round in losses.items():
        values = smooth(np.array([np.mean(by_round[round]) for round in sorted(by_round)]), window_of(len(by_round)))
        rows += [
            {"p": "loss", "s": system, "w": WHERE[1], "x": round, "y": float(f"{value:.5g}")}
            for round, value in zip(sorted(by_round), values.tolist(), strict=True)
        ]
    return rows


def _spec(rows: Sequence[Spec], titles: Sequence[str]) -> Spec:
    return {"hconcat": [_panel(panel, rows, titles) for panel in PANELS], "spacing": 28}


def _panel(panel: str, rows: Sequence[Spec], titles: Sequence[str]) -> Spec:
    hue = colour(titles)
    if panel == list(PANELS)[-1] and len(titles) > 1:
        hue = {**hue, "legend": {"title": None}}
    dashes = {"field": "w", "scale": {"domain": list(WHERE), "range": [[1, 0], [4, 3]]}, "legend": None}
    return {
        "title": {"text": panel, "fontSize": 13},
        **{"width": SIDE, "height": 240},
        "data": {"values": [row for row in rows if row["p"] == panel]},
        "mark": {"type": "line", "strokeWidth": 1.8},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": "round", "axis": {"grid": False, "tickMinStep": 1}},
            "y": {"field": "y", "type": "quantitative", "title": PANELS[panel], "scale": {"zero": False}},
            **{"color": hue, "strokeDash": dashes},
            "tooltip": hover({"s": "system", "w": "on", "x": "round", "y": panel}),
        },
    }
