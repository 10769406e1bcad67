"""Readers of the forms in which data sets are published; each turns a folder into what a pack is written from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import MissingData

TRAIN, TEST = 0, 1


class Raw(NamedTuple):
    """A data set as read: images in parts, [N, H, W] or [N, H, W, C], and what is known of them."""

    images: Iterable[NDArray[np.uint8]]
    labels: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    names: Mapping[str, tuple[str, ...]] = {}
    classes: tuple[str, ...] = ()


def find(folder: Path, pattern: str) -> Path:
    """The file of a pattern, here or in a folder below; the first one by name."""
    found = sorted(folder.glob(pattern)) or sorted(folder.glob(f"*/{pattern}"))
    if not found:
        raise MissingData(f"{folder}: expected {pattern} here or one folder below, found none")
    return found[0]


def split_column(train: int, test: int) -> NDArray[np.int64]:
    """The column `split` of so many training and test images."""
    return np.repeat([TRAIN, TEST], [train, test])
