"""Who gets which images: a table of counts, clients x classes, and a draw without replacement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import ConfigError

Counts = NDArray[np.int64]  # [clients, classes]
Rows = NDArray[np.int64]


def even_counts(clients: int, classes: int, each: int) -> Counts:
    """`each` images per client, spread over the classes as evenly as whole numbers allow.

    >>> even_counts(2, 3, 4)
    array([[2, 1, 1],
           [1, 2, 1]])
    """
    counts = np.full((clients, classes), each // classes, dtype=np.int64)
    # The remainder goes on where the client before stopped, so that no class is favoured.
    extras = np.arange(clients * (each % classes)) % classes
    np.add.at(counts, (np.repeat(np.arange(clients), each % classes), extras), 1)
    return counts


def step_counts(clients: int, classes: int, major: int, minor: int) -> Counts:
    """Step partition: two major classes per client with `major` images each, the others with `minor`.

    Classes take turns, so that each is major on equally many clients where the numbers allow; the distance
    between a client's two classes grows from turn to turn, so that pairs vary.

    >>> step_counts(2, 4, 5, 1)
    array([[5, 5, 1, 1],
           [1, 5, 5, 1]])
    """
    if classes < 2:
        raise ConfigError([f"a step partition needs at least two classes; found {classes}"], "the scenario's partition")
    counts = np.full((clients, classes), minor, dtype=np.int64)
    for client in range(clients):
        turn, first = divmod(client, classes)
        counts[client, [first, (first + 1 + turn % (classes - 1)) % classes]] = major
    return counts


def draw(labels: NDArray[np.int64], pool: Rows, counts: Counts, rng: np.random.Generator) -> list[Rows]:
    """Rows of `pool` for each client, in random order; no row is used twice."""
    asked, classes = counts.sum(0), range(counts.shape[1])
    by_class = [rng.permutation(pool[labels[pool] == c]) for c in classes]
    short = [
        f"class {c}: {asked[c]} asked for, {len(by_class[c])} there" for c in classes if asked[c] > len(by_class[c])
    ]
    if short:
        share = min(len(by_class[c]) / asked[c] for c in classes if asked[c])
        raise ConfigError(
            [*short, f"possible: about {share:.0%} of the images per client, or fewer clients"],
            "the scenario's partition",
        )
    starts = np.vstack([np.zeros_like(asked), counts.cumsum(0)])
    return [
        rng.permutation(np.concatenate([by_class[c][starts[k, c] : starts[k + 1, c]] for c in classes]))
        for k in range(len(counts))
    ]
