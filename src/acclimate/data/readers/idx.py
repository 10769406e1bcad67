"""The idx format of MNIST, Fashion-MNIST and QMNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.readers import Raw, find, split_column
from acclimate.errors import MissingData

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
IMAGES = ("train-images*idx3-ubyte*", "t10k-images*idx3-ubyte*")
LABELS = ("train-labels*idx1-ubyte*", "t10k-labels*idx1-ubyte*")
WRITERS = ("qmnist-train-labels*idx2-int*", "qmnist-test-labels*idx2-int*")


def read_idx(path: Path) -> NDArray[Any]:
    """One array: two zero bytes, the type, the number of dimensions, the dimensions (big-endian), the numbers."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise MissingData(f"{path}: expected a complete gzip file, found: {error}") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in TYPES or len(data) < 4 + 4 * data[3]:
        raise MissingData(f"{path}: expected an idx file (0, 0, type, dimensions), found it begins with {data[:4]!r}")
    shape = tuple(np.frombuffer(data, ">u4", count=data[3], offset=4).tolist())
    dtype, start = np.dtype(TYPES[data[2]]), 4 + 4 * data[3]
    wanted = start + int(np.prod(shape)) * dtype.itemsize
    if len(data) != wanted:
        raise MissingData(f"{path}: expected {wanted} bytes for {shape}, found {len(data)}")
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def read(folder: Path) -> Raw:
    """Training images, then test images, each with their labels."""
    images = [read_idx(find(folder, pattern)) for pattern in IMAGES]
    labels = [read_idx(find(folder, pattern)) for pattern in LABELS]
    for x, y, pattern in zip(images, labels, IMAGES, strict=True):
        if x.ndim != 3 or x.dtype != np.uint8 or y.shape != (len(x),):
            raise MissingData(f"{folder}/{pattern}: expected images [N, H, W] and N labels, found {x.shape}, {y.shape}")
    split = split_column(len(labels[0]), len(labels[1]))
    return Raw(images, np.concatenate(labels).astype(np.int64), {"split": split})


def read_with_writers(folder: Path) -> Raw:
    """MNIST with QMNIST's extended labels: class, series (hsf), writer, ... of each digit.

    QMNIST restored all 60,000 test digits; the first 10,000 are MNIST's.
    """
    raw = read(folder)
    sizes = np.bincount(raw.columns["split"], minlength=2)
    tables = [read_idx(find(folder, pattern))[:size] for pattern, size in zip(WRITERS, sizes, strict=True)]
    if any(
        table.ndim != 2 or table.shape[1] < 3 or len(table) != size for table, size in zip(tables, sizes, strict=True)
    ):
        raise MissingData(f"{folder}: expected QMNIST's labels [N, 8], found {[table.shape for table in tables]}")
    table = np.concatenate(tables).astype(np.int64)
    if not np.array_equal(table[:, 0], raw.labels):
        raise MissingData(f"{folder}: expected QMNIST's classes to be MNIST's, found them different")
    return raw._replace(columns={**raw.columns, "hsf": table[:, 1], "writer": table[:, 2]})
