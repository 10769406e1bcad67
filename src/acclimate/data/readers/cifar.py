"""CIFAR-10 and CIFAR-100 as published: the binary batches, and the batches for Python, which are pickles.

Acclimate never unpickles what it finds on a disk, with this one exception, because CIFAR-100 is mostly kept in this
form: a published format, converted once, on an explicit command, by an unpickler that knows numpy arrays and plain
containers and refuses every other name before it is even imported.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.readers import Raw, find, split_column
from acclimate.errors import MissingData

TRAIN10 = tuple(f"data_batch_{k}" for k in range(1, 6))
PIXELS = 3 * 32 * 32

_RECONSTRUCT = np.ndarray(0).__reduce__()[0]
ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class ArraysOnly(pickle.Unpickler):
    """Admits numpy arrays, dictionaries, lists, numbers and strings; nothing else is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"'{module}.{name}' is not allowed")
        return ALLOWED[module, name]

    def persistent_load(self, pid: object) -> Any:
        raise pickle.UnpicklingError("persistent ids are not allowed")


def unpickle(path: Path) -> dict[bytes, Any]:
    """A published batch: a dictionary with byte strings as keys, as Python 2 wrote it."""
    try:
        with path.open("rb") as file:
            found = ArraysOnly(file, encoding="bytes").load()
    except Exception as error:  # a pickle can fail in any way it likes
        raise MissingData(f"{path}: expected arrays and plain containers only, found: {error}") from error
    if not isinstance(found, dict):
        raise MissingData(f"{path}: expected a dictionary, found {type(found).__name__}")
    return {key.encode() if isinstance(key, str) else key: value for key, value in found.items()}


def read10_pickles(folder: Path) -> Raw:
    """CIFAR-10: data_batch_1 to 5 and test_batch."""
    return _read_pickles(folder, TRAIN10, "test_batch", {"": b"labels"}, "batches.meta", {"": b"label_names"})


def read100_pickles(folder: Path) -> Raw:
    """CIFAR-100: train and test, with the 20 superclasses as a column."""
    keys = {"": b"fine_labels", "superclass": b"coarse_labels"}
    names = {"": b"fine_label_names", "superclass": b"coarse_label_names"}
    return _read_pickles(folder, ("train",), "test", keys, "meta", names)


def read10_binary(folder: Path) -> Raw:
    """CIFAR-10: data_batch_1.bin to 5 and test_batch.bin; records of label and pixels."""
    train = [f"{name}.bin" for name in TRAIN10]
    return _read_binary(folder, train, "test_batch.bin", ("",), {"": "batches.meta.txt"})


def read100_binary(folder: Path) -> Raw:
    """CIFAR-100: train.bin and test.bin; records of coarse label, fine label and pixels."""
    names = {"superclass": "coarse_label_names.txt", "": "fine_label_names.txt"}
    return _read_binary(folder, ["train.bin"], "test.bin", ("superclass", ""), names)


def _read_pickles(
    folder: Path, train: tuple[str, ...], test: str, keys: dict[str, bytes], meta: str, names: dict[str, bytes]
) -> Raw:
    images, numbers, sizes = [], {column: [] for column in keys}, []  # type: ignore[var-annotated]
    for file in (*train, test):
        path = find(folder, file)
        batch = unpickle(path)
        data = batch.get(b"data")
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
            raise MissingData(f"{path}: expected 'data', uint8 [N, {PIXELS}], found {getattr(data, 'shape', 'none')}")
        images.append(_pictures(data))
        sizes.append(len(data))
        for column, key in keys.items():
            numbers[column].append(_numbers(path, batch.get(key), key, len(data)))
    told = unpickle(find(folder, meta))
    words = {column: tuple(_text(word) for word in told.get(key, ())) for column, key in names.items()}
    return _raw(images, {column: np.concatenate(parts) for column, parts in numbers.items()}, sizes, words)


def _read_binary(folder: Path, train: list[str], test: str, columns: tuple[str, ...], names: dict[str, str]) -> Raw:
    record, images, numbers, sizes = len(columns) + PIXELS, [], [], []
    for file in (*train, test):
        path = find(folder, file)
        data = np.fromfile(path, dtype=np.uint8)
        if not len(data) or len(data) % record:
            raise MissingData(f"{path}: expected records of {record} bytes, found {len(data)} bytes")
        records = data.reshape(-1, record)
        numbers.append(records[:, : len(columns)].astype(np.int64))
        images.append(_pictures(records[:, len(columns) :]))
        sizes.append(len(records))
    table = np.concatenate(numbers)
    words = {column: tuple(find(folder, file).read_text().split()) for column, file in names.items()}
    return _raw(images, {column: table[:, k] for k, column in enumerate(columns)}, sizes, words)


def _raw(
    images: list[NDArray[np.uint8]],
    numbers: dict[str, NDArray[np.int64]],
    sizes: list[int],
    words: dict[str, tuple[str, ...]],
) -> Raw:
    columns = {"split": split_column(sum(sizes[:-1]), sizes[-1])}
    columns |= {column: found for column, found in numbers.items() if column}
    return Raw(iter(images), numbers[""], columns, {c: w for c, w in words.items() if c and w}, words[""])


def _pictures(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of 1024 red, 1024 green, 1024 blue pixels as [N, 32, 32, 3]."""
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _numbers(path: Path, found: Any, key: bytes, count: int) -> NDArray[np.int64]:
    if not isinstance(found, list) or len(found) != count or not all(type(label) is int for label in found):
        raise MissingData(f"{path}: expected {key.decode()!r}, a list of {count} integers; found something else")
    return np.array(found, dtype=np.int64)


def _text(word: bytes | str) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)
