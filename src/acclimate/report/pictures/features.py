"""One client's features before and after adaptation, in two dimensions (FedICON)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acclimate.report.pictures.picture import Asked, Picture, Spec, of_stream, source
from acclimate.report.pictures.population import HUES
from acclimate.store.run import Run

HEADING = "Features before and after"
LEAD = "Each point is one image. Tuning works if images of one class move together and classes move apart."
MOST_POINTS = 600  # more would hide one another
SIDE = 300


class Cloud(NamedTuple):
    """One client's features before and after adaptation."""

    client: int
    points: NDArray[np.float64]  # [2, images, 2]
    classes: list[int]  # of the images; none where the run does not know them


def has(run: Run) -> bool:
    return any(clouds(run, run.seeds[0], stream, None) for stream in run.streams)


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        seed = asked.seed_of(run)
        for stream in run.streams:
            for system, cloud in clouds(run, seed, stream, asked.client).items():
                yield _picture(run, seed, stream, system, cloud)


def clouds(run: Run, seed: int, stream: str, client: int | None) -> dict[str, Cloud]:
    """What was tested → the features of one client, by default the first that has some, in its first slot."""
    found: dict[str, Cloud] = {}
    for drawn in run.figures(stream, seed=seed):
        title, content = drawn.entry.title, drawn.content
        if title not in found and client in (None, drawn.client) and "features" in content:
            classes = content["classes"].tolist() if "classes" in content else []
            found[title] = Cloud(drawn.client, np.asarray(content["features"], dtype=np.float64), classes)
    return found


def _picture(run: Run, seed: int, stream: str, system: str, cloud: Cloud) -> Picture:
    each = math.ceil(cloud.points.shape[1] / MOST_POINTS)
    notes = [
        f"{source(run)}, seed {seed}, client {cloud.client}, first slot. Features are projected onto the plane in "
        "which they differ most, the same one before and after."
    ]
    notes += [f"One point in {each} is drawn."] if each > 1 else []
    kinds = [f"class {label}" for label in cloud.classes] or ["image"] * cloud.points.shape[1]
    rows = [
        {"s": when, "x": round(x, 3), "y": round(y, 3), "k": kind}
        for when, points in zip(("before", "after"), cloud.points.tolist(), strict=True)
        for (x, y), kind in list(zip(points, kinds, strict=True))[::each]
    ]
    title = f"Features before and after tuning, {system}{of_stream(run, stream)}"
    names = sorted(set(kinds), key=lambda name: int(name.partition(" ")[2] or 0))
    return Picture(run.name, f"features-{system}-{stream}", title, tuple(notes), _spec(rows, names))


def _spec(rows: Sequence[Spec], names: Sequence[str]) -> Spec:
    bare = {"labels": False, "ticks": False, "grid": False, "title": None}
    colours = {"domain": list(names), "range": [HUES[number % len(HUES)] for number in range(len(names))]}
    shapes = ["circle", "square", "triangle-up", "diamond", "cross"]
    hue: Spec = {"field": "k", "scale": colours, "legend": {"title": None} if len(names) > 1 else None}
    shape: Spec = {
        **hue,
        "scale": {"domain": list(names), "range": [shapes[n % len(shapes)] for n in range(len(names))]},
    }
    return {
        "data": {"values": list(rows)},
        "facet": {"field": "s", "type": "nominal", "sort": ["before", "after"], "title": None},
        "columns": 2,
        "spec": {
            "width": SIDE,
            "height": SIDE,
            "mark": {"type": "point", "filled": True, "size": 34, "opacity": 0.8},
            "encoding": {
                "x": {"field": "x", "type": "quantitative", "axis": bare, "scale": {"zero": False}},
                "y": {"field": "y", "type": "quantitative", "axis": bare, "scale": {"zero": False}},
                "color": hue,
                "shape": shape,
                "tooltip": {"field": "k", "title": "image of"},
            },
        },
    }
