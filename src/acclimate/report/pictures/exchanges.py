"""Who listened to whom: the matrices that aggregators hand over, slot by slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acclimate.report.pictures.picture import Spec
from acclimate.store.records import Drawn
from acclimate.store.run import Run

Values = NDArray[np.float64]

SCALE = 1000  # weights are written as whole thousandths: a tenth of the size


class Weights(NamedTuple):
    """Who listened to whom in one slot: row i says how client rows[i] mixed what columns sent."""

    rows: list[int]
    columns: list[int]
    values: Values


def matrices(run: Run, seed: int, stream: str) -> dict[str, dict[int, Weights]]:
    """What was tested → slot → its matrix; nothing where all only took the mean, which needs no picture.

    A figure that names no clients is of those who sent something.
    """
    by_title: dict[str, list[Drawn]] = defaultdict(list)
    for drawn in run.figures(stream, seed=seed, server=True):
        if "weights" in drawn.content:
            by_title[drawn.entry.title].append(drawn)
    found = {}
    for entry in run.entries:
        if mine := by_title.get(entry.title):
            senders = run.senders(entry, seed, stream)
            found[entry.title] = {drawn.slot: _weights(drawn, senders.get(drawn.slot, [])) for drawn in mine}
    means = all(np.ptp(weights.values) < 1e-9 for slots in found.values() for weights in slots.values())
    return {} if means else found


def every(slots: Sequence[int], most: int) -> list[int]:
    """At most so many of them, evenly, the last one included.

    >>> every([0, 1, 2, 3, 4], 3)
    [0, 2, 4]
    """
    step = -(-len(slots) // most)
    return list(slots)[::-step][::-1]


def cells(columns: Sequence[int], as_: str) -> list[Spec]:
    """From a row with a list `w` to one row for each weight that is known; `columns` say whose they are."""
    return [
        {"calculate": str(list(columns)), "as": as_},
        {"flatten": ["w", as_]},
        {"filter": "isValid(datum.w)"},
        {"calculate": f"datum.w / {SCALE}", "as": "weight"},
    ]


def thousandths(values: Iterable[float]) -> list[int | None]:
    """For `cells`; None where nothing is known."""
    return [None if np.isnan(value) else round(SCALE * value) for value in values]


def _weights(drawn: Drawn, senders: list[int]) -> Weights:
    content = drawn.content
    rows = content["clients"].tolist() if "clients" in content else senders
    columns = content["columns"].tolist() if "columns" in content else rows
    weights = content["weights"].double()
    return Weights(rows, columns, weights.expand(len(rows), -1).numpy())  # rows that are all equal are kept once
