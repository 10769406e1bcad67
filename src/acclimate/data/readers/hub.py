"""The Hugging Face hub, through its package `datasets`; the only reader that may use the network."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.readers import Raw
from acclimate.errors import MissingData

CHUNK = 500


def read_hub(
    id: str,
    splits: Mapping[str, int],
    shape: tuple[int, int, int],
    *,
    image: str = "image",
    label: str = "label",
    config: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Raw:
    """Download a data set (or find it in the package's own cache) and read its images at one size.

    Columns of strings become numbers, with their sorted values as names.
    """
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingData(
            "the Hugging Face hub is read by the package 'datasets', which is not installed; "
            "expected after: pip install 'acclimate[hub]'"
        ) from error

    try:
        parts = {split: datasets.load_dataset(id, config, split=split) for split in splits}
    except Exception as error:  # network, permissions, renamed: the package has many ways to fail
        raise MissingData(f"'{id}' could not be loaded from the Hugging Face hub: {error}") from error
    numbers, names = {}, {}
    for key, ours in {label: "label", **(columns or {})}.items():
        numbers[ours], names[ours] = _numbered(parts.values(), key)
    sizes = [len(part) for part in parts.values()]
    labels, classes = numbers.pop("label"), names.pop("label")
    if len(set(splits.values())) > 1 or 1 in splits.values():
        numbers["split"] = np.repeat(list(splits.values()), sizes)
    return Raw(_images(parts.values(), image, shape), labels, numbers, {k: v for k, v in names.items() if v}, classes)


def _numbered(parts: Iterable[Any], key: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    parts = list(parts)
    values = [value for part in parts for value in part[key]]
    named = getattr(parts[0].features[key], "names", None)
    if values and isinstance(values[0], str):
        known, found = np.unique(np.array(values), return_inverse=True)
        return found.astype(np.int64), tuple(known.tolist())
    return np.array(values, dtype=np.int64), tuple(named or ())


def _images(parts: Iterable[Any], key: str, shape: tuple[int, int, int]) -> Iterator[NDArray[np.uint8]]:
    from PIL import Image

    channels, height, width = shape
    held: list[NDArray[np.uint8]] = []
    for part in parts:
        for row in part:
            picture = row[key].convert("L" if channels == 1 else "RGB")
            if picture.size != (width, height):
                picture = picture.resize((width, height), Image.Resampling.LANCZOS)
            held.append(np.asarray(picture).reshape(height, width, channels))
            if len(held) == CHUNK:
                yield np.stack(held)
                held = []
    if held:
        yield np.stack(held)
