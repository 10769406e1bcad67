"""Pictures of runs, one kind in each file; a new kind is a new file and a name in this list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acclimate.report.pictures import (
    agreement,
    balance,
    convergence,
    course,
    features,
    helped,
    learning,
    matrix,
    over_time,
    population,
    prior,
    rates,
    steps,
    weights,
)
from acclimate.report.pictures.picture import Asked, Kind, Picture
from acclimate.store.run import Run

# In the order of a page: the scenario, whom it helped, when, why, and how it was trained.
KINDS: tuple[Kind, ...] = (
    *(population, helped, over_time),
    *(rates, matrix, weights, balance, agreement, prior, steps, features),
    *(convergence, course, learning),
)


def draw(runs: Sequence[Run], asked: Asked = Asked()) -> Iterator[tuple[Kind, list[Picture]]]:  # noqa: B008
    """Every picture there are data for."""
    for kind in KINDS:
        those = [run for run in runs if kind.has(run)]
        if those:
            yield kind, list(kind.draw(those, asked))
