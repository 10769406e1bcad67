"""Which images show the same thing: where one is trained on, its twins must not be tested."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from acclimate.data.dataset import Dataset

SHARED = ("photo", "font")  # columns of what several images are parts of; told apart within a split


def twins(dataset: Dataset) -> NDArray[np.int64]:
    """A number for each image, the same for those that must not be separated.

    They are digits of one photograph or font, or, in a data set without a split of its own, equal pixels.
    """
    total = len(dataset.labels)
    none = np.full(total, -1, dtype=np.int64)
    split, domain = dataset.columns.get("split", none), dataset.columns.get("domain", none)
    keys = np.stack([domain, split, none, np.arange(total)], axis=1)
    for number, column in enumerate(SHARED):
        values = dataset.columns.get(column, none)
        keys[values >= 0, 2:] = np.stack([np.full(total, number), values], axis=1)[values >= 0]
    alone = np.flatnonzero((split < 0) & (keys[:, 2] < 0))
    first: dict[bytes, int] = {}
    for row in alone.tolist():
        pixels = dataset.images.pixels[row].numpy().tobytes()
        keys[row, 3] = first.setdefault(hashlib.blake2b(pixels, digest_size=16).digest(), row)
    groups: NDArray[np.int64] = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    return groups
