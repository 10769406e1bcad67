"""Who gets which images: no row twice, nobody empty, and a clear error where a request cannot be met.

Most partitions are a table of counts, clients x classes, and one draw from it (`draw`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import ConfigError

Counts = NDArray[np.int64]  # [clients, classes]
Rows = NDArray[np.int64]
Labels = NDArray[np.int64]

TRIES = 100  # of a random partition that must leave nobody empty


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


def step_counts(
    clients: int, classes: int, major: int, minor: int, reading: Literal["strict", "pairs"] = "strict"
) -> Counts:
    """Step partition: two major classes per client with `major` images each, the others with `minor`.

    `strict` (ATP's text): the two are distinct and each class is major on equally many clients where the numbers
    allow. `pairs` (ATP's code): all ordered pairs of classes in turn where there are enough clients, so that some
    clients have one class twice (155 images at 80/5); with fewer clients, neighbours at growing odd distances.

    >>> step_counts(2, 4, 5, 1)
    array([[5, 5, 1, 1],
           [1, 5, 5, 1]])
    """
    if classes < 2:
        raise ConfigError([f"a step partition needs at least two classes; found {classes}"], "the scenario's partition")
    counts = np.full((clients, classes), minor, dtype=np.int64)
    for client in range(clients):
        turn, first = divmod(client, classes)
        if reading == "strict":
            second = (first + 1 + turn % (classes - 1)) % classes
        elif clients >= classes**2:
            first, second = divmod(client * classes**2 // clients, classes)
        else:
            second = (first + 1 + 2 * turn) % classes
        np.add.at(counts[client], [first, second], major - minor)
    return counts


def proportional(weights: Counts, available: Sequence[int]) -> Counts:
    """Counts in proportion to `weights` that use up what there is of each class.

    >>> proportional(np.array([[3], [1]]), [8])
    array([[6],
           [2]])
    """
    shares = weights.cumsum(0) / weights.sum(0)
    ends = np.rint(shares * np.asarray(available)).astype(np.int64)
    counts: Counts = np.diff(ends, axis=0, prepend=0)
    return counts


def draw(labels: Labels, pool: Rows, counts: Counts, rng: np.random.Generator) -> list[Rows]:
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


def iid(pool: Rows, clients: int, rng: np.random.Generator) -> list[Rows]:
    """Equal random parts, whatever the classes."""
    _enough(len(pool), clients, "images")
    return np.array_split(rng.permutation(pool), clients)


def shards(labels: Labels, pool: Rows, clients: int, rng: np.random.Generator, per_client: int = 2) -> list[Rows]:
    """Pathological: rows sorted by class and cut into shards, `per_client` random ones each (McMahan et al., 2017).

    Two shards of a client may be of one class.
    """
    _enough(len(pool), clients * per_client, "images")
    shuffled = rng.permutation(pool)
    pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], clients * per_client)
    order = rng.permutation(clients * per_client).reshape(clients, per_client)
    return [rng.permutation(np.concatenate([pieces[i] for i in mine])) for mine in order]


def distinct_classes(
    labels: Labels, pool: Rows, clients: int, classes: int, rng: np.random.Generator, per_client: int = 2
) -> list[Rows]:
    """Pathological with `per_client` different classes per client, each class on equally many clients."""
    slots = clients * per_client
    if slots % classes or per_client > classes:
        raise ConfigError(
            [f"{clients} clients x {per_client} classes cannot use {classes} classes equally often; "
             f"possible: a number of clients that makes clients x {per_client} a multiple of {classes}"],
            "the scenario's partition",
        )  # fmt: skip
    # A table filled class by class has different classes in each column; shuffling a row may bring two together only
    # where a class stands in two rows, so shuffles are tried until none does.
    table = np.repeat(rng.permutation(classes), slots // classes).reshape(per_client, clients)
    order = table[:, rng.permutation(clients)]
    for _ in range(TRIES):
        tried = rng.permuted(table, axis=1)
        if all(len(set(column)) == per_client for column in tried.T):
            order = tried
            break
    weights = np.zeros((clients, classes), dtype=np.int64)
    np.add.at(weights, (np.tile(np.arange(clients), per_client), order.ravel()), 1)
    available = np.bincount(labels[pool], minlength=classes)
    return draw(labels, pool, proportional(weights, available.tolist()), rng)


def dirichlet(
    labels: Labels, pool: Rows, clients: int, classes: int, alpha: float, rng: np.random.Generator, least: int = 1
) -> list[Rows]:
    """Each class is spread over the clients by its own draw from Dir(alpha); everybody gets at least `least` images.

    Shares are cut to whole numbers, so a few images may belong to nobody; with `least=0` so may clients have none.
    """
    _enough(len(pool), clients * least, "images")
    available = np.bincount(labels[pool], minlength=classes)
    for _ in range(TRIES):
        shares = rng.dirichlet([alpha] * clients, size=classes).T  # [clients, classes]
        counts = (shares * available).astype(np.int64)
        if counts.sum(1).min() >= least:
            return draw(labels, pool, counts, rng)
    raise ConfigError(
        [f"no draw from Dir({alpha:g}) in {TRIES} gave each of {clients} clients {least} of {len(pool)} images; "
         "possible: a larger alpha, fewer clients, or a smaller minimum"],
        "the scenario's partition",
    )  # fmt: skip


def balanced_dirichlet(
    labels: Labels, pool: Rows, clients: int, classes: int, alpha: float, rng: np.random.Generator, block: int = 10
) -> list[Rows]:
    """Dir(alpha) with sizes kept near each other, as in FedTHE and BTFL.

    Clients come in blocks of ten that share the images equally; inside a block, class by class, a client that holds
    its fair share already gets nothing more; drawn again until the smallest holds half of its fair share.
    """
    _enough(len(pool), 2 * clients, "images")
    parts: list[Rows] = []
    blocks = [min(block, clients - start) for start in range(0, clients, block)]
    edges = np.rint(np.cumsum([0, *blocks]) / clients * len(pool)).astype(int)
    shuffled = rng.permutation(pool)
    for size, start, end in zip(blocks, edges, edges[1:], strict=False):
        parts += _balanced_block(labels, shuffled[start:end], size, classes, alpha, rng)
    return parts


def _balanced_block(
    labels: Labels, pool: Rows, clients: int, classes: int, alpha: float, rng: np.random.Generator
) -> list[Rows]:
    fair = len(pool) / clients
    for _ in range(TRIES):
        parts: list[list[Rows]] = [[] for _ in range(clients)]
        for c in range(classes):
            rows = rng.permutation(pool[labels[pool] == c])
            sizes = np.array([sum(map(len, part)) for part in parts])
            shares = rng.dirichlet([alpha] * clients) * (sizes < fair)
            if shares.sum() > 0:
                ends = (shares.cumsum() / shares.sum() * len(rows)).astype(int)
                for part, piece in zip(parts, np.split(rows, ends[:-1]), strict=True):
                    part.append(piece)
        whole = [rng.permutation(np.concatenate(part)) for part in parts]
        if min(map(len, whole)) >= 0.5 * fair:
            return whole
    raise ConfigError(
        [f"no balanced draw from Dir({alpha:g}) in {TRIES} gave each of {clients} clients half of its fair share "
         f"({fair:.0f} images); possible: a larger alpha"], "the scenario's partition",
    )  # fmt: skip


def alike(labels: Labels, pool: Rows, parts: Sequence[Rows], classes: int, rng: np.random.Generator) -> list[Rows]:
    """Deal other images to clients so that labels follow what each holds already (`parts`)."""
    weights = np.stack([np.bincount(labels[rows], minlength=classes) for rows in parts])
    weights[:, weights.sum(0) == 0] = 1  # a class that nobody holds goes to everybody
    available = np.bincount(labels[pool], minlength=classes)
    return draw(labels, pool, proportional(weights, available.tolist()), rng)


def by_column(values: NDArray[Any], pool: Rows) -> dict[int, Rows]:
    """One client per value of a column: by domain, by writer, by photograph."""
    return {int(value): pool[values[pool] == value] for value in np.unique(values[pool])}


def cut(rows: Rows, share: float) -> tuple[Rows, Rows]:
    """The first `1 − share` of some rows, and the rest; each at least one where both are wanted and possible."""
    end = round(len(rows) * (1 - share))
    if 0 < share < 1 and len(rows) > 1:
        end = min(max(end, 1), len(rows) - 1)
    return rows[:end], rows[end:]


def apart(rows: Rows, ends: Sequence[int], groups: NDArray[np.int64]) -> list[Rows]:
    """Rows cut near `ends`, where no group of theirs (`groups[row]`: a photograph, a font) is cut in two.

    >>> apart(np.arange(5), [2], np.array([7, 8, 7, 9, 9]))
    [array([0, 2]), array([1, 3, 4])]
    """
    _, first, group = np.unique(groups[rows], return_index=True, return_inverse=True)
    order = np.argsort(first[group], kind="stable")  # groups as they come first, each in one piece
    starts = np.flatnonzero(np.diff(group[order], prepend=-1, append=-1))  # with the end of all
    nearest = [int(starts[np.abs(starts - end).argmin()]) for end in ends]
    return np.split(rows[order], nearest)


def _enough(there: int, needed: int, what: str) -> None:
    if there < needed:
        raise ConfigError(
            [f"{needed} {what} needed, {there} there; possible: fewer clients"], "the scenario's partition"
        )
