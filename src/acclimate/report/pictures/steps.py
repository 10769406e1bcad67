"""Accuracy, loss and entropy by step of adaptation, with the step that was kept (FedTTA++)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from acclimate.report.pictures.lines import Line, Values, hidden
from acclimate.report.pictures.look import colour, hover
from acclimate.report.pictures.picture import Asked, Picture, Spec, of_stream, some, source
from acclimate.store.records import Drawn
from acclimate.store.run import Run

HEADING = "Step by step"
LEAD = (
    "What happens as a method takes one more step on the same images. Entropy and a method's own loss need no labels; "
    "accuracy does, and is only here to judge. Stopping works if the dashed line, where it stopped on average, stands "
    "near the peak of accuracy."
)
PANELS = {"accuracy": "accuracy in %", "loss": "the method's own loss", "entropy": "entropy in nats"}


class Course(NamedTuple):
    """One batch: how many images have labels, and what was noted after 0, 1, ... steps."""

    images: float
    values: dict[str, Values]
    kept: float | None  # the step that was kept


def has(run: Run) -> bool:
    return any(
        "correct" in drawn.content and len(drawn.content["correct"]) > 1
        for stream in run.streams
        for drawn in run.figures(stream)
    )


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        for stream in run.streams:
            found: dict[str, dict[int, list[Course]]] = defaultdict(lambda: defaultdict(list))
            for drawn in run.figures(stream):
                if "correct" in drawn.content and float(drawn.content["count"]) > 0:
                    found[drawn.entry.title][drawn.seed].append(_course(drawn))
            named = {title: by_step(list(seeds.values())) for title, seeds in found.items()}
            if max((len(of["accuracy"]) for of in named.values()), default=0) > 1:
                yield _picture(run, stream, named, _kept(found))


def by_step(seeds: Sequence[Sequence[Course]]) -> dict[str, Values]:
    """The mean over seeds; accuracy over all images, the rest over batches. One that stopped stays where it was."""
    longest = max(len(values) for batches in seeds for course in batches for values in course.values.values())
    found = {}
    for name in seeds[0][0].values:
        each = []
        for batches in seeds:
            weights = [course.images if name == "accuracy" else 1.0 for course in batches]
            padded = [
                np.pad(v, (0, longest - len(v)), mode="edge") for v in (course.values[name] for course in batches)
            ]
            each.append(np.average(padded, axis=0, weights=weights))
        found[name] = np.mean(each, axis=0)
    return found


def _course(drawn: Drawn) -> Course:
    content, count = drawn.content, float(drawn.content["count"])
    values = {"accuracy": 100 * np.asarray(content["correct"], dtype=np.float64) / count}
    values |= {name: np.asarray(content[name], dtype=np.float64) for name in ("loss", "entropy") if name in content}
    return Course(count, values, float(content["chosen"]) if "chosen" in content else None)


def _kept(found: Mapping[str, Mapping[int, Sequence[Course]]]) -> dict[str, float]:
    """The mean step that was kept, by system."""
    every = {title: [c.kept for batches in seeds.values() for c in batches] for title, seeds in found.items()}
    return {
        title: float(np.mean([k for k in kept if k is not None])) for title, kept in every.items() if None not in kept
    }


def _picture(run: Run, stream: str, named: Mapping[str, Mapping[str, Values]], kept: Mapping[str, float]) -> Picture:
    titles = [entry.title for entry in run.entries if entry.title in named]
    panels = [name for name in PANELS if any(name in of for of in named.values())]
    notes = [f"{source(run)}. Mean over all images and {some('seed', run.seeds)}."]
    if kept:
        stops = "; ".join(f"{title} {step:.1f}" for title, step in kept.items())
        notes.append(f"Dashed: the step that was kept, on average ({stops}).")
    notes += hidden({title: Line(*[named[title]["accuracy"]] * 3) for title in titles})
    spec = {"hconcat": [_panel(name, named, kept, titles, name == panels[-1]) for name in panels], "spacing": 28}
    return Picture(run.name, f"steps-{stream}", f"By step{of_stream(run, stream)}", tuple(notes), spec)


def _panel(
    name: str, named: Mapping[str, Mapping[str, Values]], kept: Mapping[str, float], titles: Sequence[str], last: bool
) -> Spec:
    rows = [
        {"s": title, "x": step, "y": float(f"{value:.5g}")}
        for title in titles
        for step, value in enumerate(named[title].get(name, np.array([])).tolist())
    ]
    hue = colour(titles)
    if last and len(titles) > 1:
        hue = {**hue, "legend": {"title": None}}
    x: Spec = {
        "type": "quantitative",
        "title": "step",
        "axis": {"grid": False, "tickMinStep": 1},
        "scale": {"nice": False},
    }
    stops = [{"s": title, "x": step} for title, step in kept.items() if any(row["s"] == title for row in rows)]
    return {
        "title": {"text": name, "fontSize": 13},
        **{"width": 200, "height": 200},
        "layer": [
            {
                "data": {"values": rows},
                "mark": {"type": "line", "point": {"size": 30}, "strokeWidth": 1.8},
                "encoding": {
                    "x": {"field": "x", **x},
                    "y": {"field": "y", "type": "quantitative", "title": PANELS[name], "scale": {"zero": False}},
                    "color": hue,
                    "tooltip": hover({"s": "system", "x": "step", "y": name}),
                },
            },
            {
                "data": {"values": stops},
                "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5},
                "encoding": {"x": {"field": "x", **x}, "color": hue},
            },
        ],
    }  # fmt: skip
