"""Tables of numbers and LEAF's JSON: USPS (zip.train, zip.test), Semeion (semeion.data) and FEMNIST."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.readers import Raw, find, split_column
from acclimate.errors import MissingData


def read_usps(folder: Path) -> Raw:
    """A digit per line: its label and 256 grey values from -1 to 1."""
    tables = [_table(find(folder, name), 257) for name in ("zip.train*", "zip.test*")]
    images = [((t[:, 1:] + 1) / 2 * 255).round().clip(0, 255).astype(np.uint8).reshape(-1, 16, 16) for t in tables]
    labels = np.concatenate([t[:, 0] for t in tables]).astype(np.int64)
    return Raw(images, labels, {"split": split_column(*map(len, tables))})


def read_semeion(folder: Path) -> Raw:
    """A digit per line: 256 pixels, 0 or 1, and ten columns of which one is 1."""
    path = find(folder, "semeion.data")
    table = _table(path, 266)
    ones = table[:, 256:]
    if not ((ones == 0) | (ones == 1)).all() or not (ones.sum(1) == 1).all():
        raise MissingData(f"{path}: expected one 1 in the last ten columns, found others")
    images = (table[:, :256] * 255).astype(np.uint8).reshape(-1, 16, 16)
    return Raw([images], ones.argmax(1).astype(np.int64), {"row": np.arange(len(table))})


def read_leaf(folder: Path) -> Raw:
    """FEMNIST as LEAF writes it (all_data_*.json): users, each with 784 grey values from 0 to 1 per image."""
    first = find(folder, "all_data*.json")
    paths = sorted(first.parent.glob("all_data*.json"))
    labels: list[int] = []
    writers: list[int] = []
    names: list[str] = []
    for path in paths:
        for user, y, _ in _users(path):
            labels += y
            writers += [len(names)] * len(y)
            names.append(user)
    columns = {"writer": np.array(writers)}
    return Raw(_leaf_images(paths), np.array(labels, dtype=np.int64), columns, {"writer": tuple(names)})


def _leaf_images(paths: list[Path]) -> Iterator[NDArray[np.uint8]]:
    for path in paths:
        for _, _, x in _users(path):
            yield (np.array(x) * 255).round().clip(0, 255).astype(np.uint8).reshape(-1, 28, 28)


def _users(path: Path) -> Iterator[tuple[str, list[int], list[list[float]]]]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        for user in found["users"]:
            data = found["user_data"][user]
            x, y = data["x"], data["y"]
            if len(x) != len(y) or any(len(image) != 784 for image in x):
                raise ValueError(f"user {user} has {len(y)} labels for {len(x)} images of {len(x[0])} pixels")
            if x:
                yield user, y, x
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise MissingData(f"{path}: expected LEAF's users with x (784 values each) and y, found: {error}") from error


def _table(path: Path, width: int) -> NDArray[np.float64]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            table = np.array([line.split() for line in file if line.strip()], dtype=np.float64)
    except (OSError, ValueError, EOFError) as error:
        raise MissingData(f"{path}: expected lines of {width} numbers, found: {error}") from error
    if table.ndim != 2 or table.shape[1] != width:
        raise MissingData(f"{path}: expected lines of {width} numbers, found {table.shape}")
    return table
