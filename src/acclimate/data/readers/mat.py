"""MATLAB files as SVHN and SynthDigits are published: X [32, 32, 3, N] and y, where 10 may stand for zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.readers import Raw, find, split_column
from acclimate.errors import MissingData

SVHN = ("train_32x32.mat", "test_32x32.mat")
SYNTH = ("synth_train_32x32.mat", "synth_test_32x32.mat")


def read_svhn(folder: Path) -> Raw:
    """SVHN, format 2 (cropped digits), without the extra digits."""
    return _read(folder, *SVHN)


def read_synth(folder: Path) -> Raw:
    """SynthDigits."""
    return _read(folder, *SYNTH)


def _read(folder: Path, train: str, test: str) -> Raw:
    parts = [_one(find(folder, file)) for file in (train, test)]
    labels = np.concatenate([y for _, y in parts])
    return Raw([x for x, _ in parts], labels, {"split": split_column(len(parts[0][1]), len(parts[1][1]))})


def _one(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from scipy.io import loadmat

    try:
        found: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # scipy raises whatever it stumbles over
        raise MissingData(f"{path}: expected a MATLAB file, found: {error}") from error
    x, y = found.get("X"), found.get("y")
    if x is None or y is None or x.ndim != 4 or x.dtype != np.uint8 or y.size != x.shape[3]:
        shapes = {key: getattr(found.get(key), "shape", None) for key in ("X", "y")}
        raise MissingData(f"{path}: expected X, uint8 [H, W, C, N], and N labels y; found {shapes}")
    labels = y.reshape(-1).astype(np.int64)
    return x.transpose(3, 0, 1, 2), np.where(labels == 10, 0, labels)
