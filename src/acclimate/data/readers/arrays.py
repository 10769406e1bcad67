"""Numpy files: CIFAR-10.1, CIFAR-10-C and CIFAR-100-C (.npy), and the ImageNet-32 batches (.npz)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.readers import TEST, Raw, find, split_column
from acclimate.errors import MissingData

SEVERITIES = 5
IMAGENET32 = (*(f"train_data_batch_{k}.npz" for k in range(1, 11)), "val_data.npz")


def read_array(path: Path) -> NDArray[Any]:
    """A `.npy` file, mapped; objects are refused."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise MissingData(f"{path}: expected a numpy array, found: {error}") from error
    if not isinstance(found, np.ndarray):
        raise MissingData(f"{path}: expected one array, found an archive")
    return found


def read_cifar101(folder: Path) -> Raw:
    """CIFAR-10.1, version 6: 2,000 images, all for testing."""
    path = find(folder, "cifar10.1_v6_data.npy")
    x, y = _pictures(path), read_array(find(folder, "cifar10.1_v6_labels.npy"))
    _same_length(path, len(y), len(x))
    return Raw([x], y.astype(np.int64), {"split": np.full(len(y), TEST)})


def read_corrupted(folder: Path) -> Raw:
    """CIFAR-10-C or -100-C: a file per corruption, in it the test images at severity 1, then 2, to 5."""
    path = find(folder, "labels.npy")
    y = read_array(path).astype(np.int64)
    files = sorted(file for file in path.parent.glob("*.npy") if file.name != "labels.npy")
    if not files:
        raise MissingData(f"{path.parent}: expected a .npy file per corruption beside labels.npy, found none")
    if len(y) % SEVERITIES:
        raise MissingData(f"{path}: expected labels for {SEVERITIES} severities, found {len(y)}")
    arrays = [_pictures(file) for file in files]
    for file, x in zip(files, arrays, strict=True):
        _same_length(file, len(y), len(x))
    each = len(y) // SEVERITIES
    columns = {
        "split": np.full(len(y) * len(files), TEST),
        "corruption": np.repeat(np.arange(len(files)), len(y)),
        "severity": np.tile(np.repeat(np.arange(1, SEVERITIES + 1), each), len(files)),
        "image": np.tile(np.arange(each), SEVERITIES * len(files)),
    }
    return Raw(arrays, np.tile(y, len(files)), columns, {"corruption": tuple(file.stem for file in files)})


def read_imagenet32(folder: Path) -> Raw:
    """ImageNet at 32x32 (Chrabaszcz et al., 2017): ten training batches and val_data; labels count from 1."""
    paths = [find(folder, name) for name in IMAGENET32]
    labels = [_member(path, "labels").reshape(-1).astype(np.int64) - 1 for path in paths]
    split = split_column(sum(map(len, labels[:-1])), len(labels[-1]))
    return Raw(_batches(paths, labels), np.concatenate(labels), {"split": split})


def _batches(paths: Sequence[Path], labels: Sequence[NDArray[np.int64]]) -> Iterator[NDArray[np.uint8]]:
    for path, y in zip(paths, labels, strict=True):
        data = _member(path, "data")
        if data.dtype != np.uint8 or data.shape != (len(y), 3 * 32 * 32):
            raise MissingData(f"{path}: expected uint8 [{len(y)}, 3072], found {data.dtype} {data.shape}")
        yield data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _member(path: Path, key: str) -> NDArray[Any]:
    import zipfile
    import zlib

    try:
        with np.load(path, allow_pickle=False) as found:
            return np.asarray(found[key])
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zlib.error, zipfile.BadZipFile) as error:
        raise MissingData(f"{path}: expected the array '{key}', found: {error}") from error


def _pictures(path: Path) -> NDArray[np.uint8]:
    found = read_array(path)
    if found.dtype != np.uint8 or found.shape[1:] != (32, 32, 3):
        raise MissingData(f"{path}: expected uint8 [N, 32, 32, 3], found {found.dtype} {found.shape}")
    return found


def _same_length(path: Path, labels: int, images: int) -> None:
    if labels != images:
        raise MissingData(f"{path}: expected {labels} images, one per label, found {images}")
