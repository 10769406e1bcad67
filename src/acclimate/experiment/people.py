"""Who held what and met what, in words and numbers that a report can draw: no images, no labels of single ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from acclimate.scenarios.population import Held, Population, Stream
from acclimate.store.records import Holder, Met, People


def people(trained: Population, tested: Population, streams: Iterable[Stream]) -> People:
    """The source clients of one population and the streams of another (often the same)."""
    return People(
        classes=tested.classes,
        source=[
            Holder(client, len(train.rows), len(check.rows), _labels(trained, [train, check]) or [])
            for client, (train, check) in trained.source.items()
        ],
        streams=[_met(tested, stream) for stream in streams],
        remarks=list(dict.fromkeys([*trained.remarks, *tested.remarks])),
    )


def _met(people: Population, stream: Stream) -> Met:
    """Segments of one shift that follow each other are one."""
    runs = groupby(stream.segments, key=lambda segment: segment[0])
    segments = [(shift, sum(len(held.rows) for _, held in parts)) for shift, parts in runs]
    return Met(stream.client, stream.name, _labels(people, [held for _, held in stream.segments]), segments)


def _labels(people: Population, parts: Sequence[Held]) -> list[int] | None:
    """How many images of each class; None where some have no label."""
    labels = np.concatenate([people.pools[part.pool][1][part.rows] for part in parts])
    if (labels < 0).any():
        return None
    counts: list[int] = np.bincount(labels, minlength=people.classes).tolist()
    return counts
