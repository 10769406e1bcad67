"""Data sets by name: loading, combining, and whether they are here. The rows are in `table`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.folders import cache_folder, data_folder
from acclimate.data.identity import recorded, sha256_of
from acclimate.data.sealed import is_sound, write_images
from acclimate.data.sources.table import SOURCES, Form, Source
from acclimate.errors import ConfigError, MissingData, nearest

if TYPE_CHECKING:  # torch is not needed to know what is here
    from acclimate.data.dataset import Dataset

__all__ = ["SOURCES", "Source", "combine", "find", "load", "pack_of", "recognise", "status"]

CHUNK = 1000


def find(name: str) -> Source:
    """The row of a data set."""
    if name not in SOURCES:
        raise MissingData(f"unknown data set '{name}'; {nearest(name, SOURCES)}")
    return SOURCES[name]


def pack_of(name: str) -> Path | None:
    """The pack of a data set in the data folder; None where it is embedded or not there."""
    source, folder = find(name), data_folder()
    for file in source.files:
        beside = source.beside.get(file)
        if (folder / file).is_file() and (beside is None or (folder / beside).is_file()):
            return folder / file
    return None


def load(name: str, size: int | None = None, channels: int | None = None) -> Dataset:
    """A data set by name, at its own size and channels or at those asked for (1 is grey, 3 is colour)."""
    from acclimate.data.sources import digits
    from acclimate.data.variants import variant

    source = find(name)
    if not source.files:
        return variant(digits.load(size or digits.SIZE), channels=channels)
    path = pack_of(name)
    if path is None:
        raise MissingData(f"data set '{name}' is not here: {_advice(name)}")
    return variant(_open(name, source, path), size, channels)


def combine(names: Sequence[str], size: int, channels: int) -> Dataset:
    """Several data sets with the same classes as one; the column "domain" says which an image is from.

    Other columns are kept where they are numbers; a data set that has no such column is marked with -1 there.
    """
    from acclimate.data.dataset import Dataset
    from acclimate.examples import Images

    sets = [load(name, size, channels) for name in names]
    if not sets or any(one.names.get("label") != sets[0].names.get("label") for one in sets):
        classes = "; ".join(f"{one.name}: {', '.join(one.names.get('label', ('?',)))}" for one in sets)
        raise ConfigError([f"data sets are combined only if their classes are the same; found {classes}"], "the data")
    own = [one.name for one in sets if "domain" in one.columns]
    if own and len(sets) > 1:
        raise ConfigError([f"{', '.join(own)} has domains of its own and cannot be combined"], "the data")
    digest = "+".join(one.digest for one in sets)
    short = "+".join(names) + "-" + _short(digest)
    path = cache_folder() / "images" / f"{short}.npy"
    total = sum(len(one.labels) for one in sets)
    if not is_sound(path):
        write_images(path, (total, size, size, channels), _all_images(sets))
    counts = [len(one.labels) for one in sets]
    mean, std = _pooled(sets, counts)
    return Dataset(
        name="+".join(names),
        images=Images(path),
        labels=np.concatenate([one.labels for one in sets]),
        classes=sets[0].classes,
        mean=mean,
        std=std,
        digest=short,
        columns={**_joined(sets), "domain": np.repeat(np.arange(len(sets)), counts)},
        names={"label": sets[0].names["label"], "domain": tuple(names)},
    )


def _open(name: str, source: Source, path: Path) -> Dataset:
    from acclimate.data.dataset import Dataset
    from acclimate.data.packs import open_columns, open_pack
    from acclimate.examples import Images

    sha256 = source.sha256.get(path.name, "")
    pack = open_pack(path, source.classes, source.shape, sha256=sha256, invert=source.invert)
    columns, digest = dict(pack.columns), pack.digest
    if path.name in source.beside:
        extra = path.with_name(source.beside[path.name])
        more, of = open_columns(extra, len(pack.labels), sha256=source.sha256.get(extra.name, ""))
        columns, digest = {**columns, **more}, f"{digest}+{of}"
    names = dict(pack.names)
    if source.labels and names.setdefault("label", source.labels) != source.labels:
        raise MissingData(f"{path}: expected the classes {', '.join(source.labels)}; found {', '.join(names['label'])}")
    return Dataset(
        name=name,
        images=Images(pack.images),
        labels=pack.labels,
        classes=source.classes,
        mean=source.mean,
        std=source.std,
        digest=digest,
        columns={source.rename.get(key, key): column for key, column in columns.items()},
        names=names,
    )


def recognise(source: Source, folder: Path) -> tuple[Form, Path] | None:
    """The first published form whose files stand together in a folder or in one below, and where."""
    below = sorted(one for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
    for form in source.forms:
        for place in [folder, *below]:
            if all(any(place.glob(pattern)) for pattern in form.files):
                return form, place
    return None


def status(name: str, *, checksums: bool = False) -> dict[str, Any]:
    """What `acclimate data check` shows of a data set; sums of files are computed only if asked for.

    The checksum is "ok", "differs", "unknown" (nothing to compare with), or "unchecked" (not computed yet).
    """
    source, path = find(name), pack_of(name)
    files = _files(source, path)
    state = "here" if path or not source.files else "missing"
    if state == "missing" and recognise(source, data_folder()):
        state = "convertible"
    return {
        "name": name,
        "state": state,
        "images": source.images,
        "shape": "x".join(map(str, source.shape)),
        "classes": source.classes,
        "file": " + ".join(file.name for file in files),
        "size": f"{sum(file.stat().st_size for file in files) / 1e6:.1f} MB" if files else "",
        "checksum": _worst([_checksum(file, source.sha256.get(file.name), checksums) for file in files]),
        "tried": "yes" if source.tried else "no",
        "title": source.title,
        "origin": source.origin,
    }


def _files(source: Source, path: Path | None) -> list[Path]:
    if path is None:
        return []
    return [path, path.with_name(source.beside[path.name])] if path.name in source.beside else [path]


def _checksum(path: Path, expected: str | None, compute: bool) -> str:
    if expected is None:
        return "unknown"
    found = sha256_of(path) if compute else recorded(path)
    if found is None:
        return "unchecked"
    return "ok" if found == expected else "differs"


def _worst(states: Sequence[str]) -> str:
    return next((state for state in ("differs", "unchecked", "unknown", "ok") if state in states), "")


def _advice(name: str) -> str:
    source, folder = find(name), data_folder()
    if recognise(source, folder):
        return f"its published files are in {folder}; convert them with: acclimate data convert {name} {folder}"
    wanted = " or ".join(
        file + (f" with {source.beside[file]}" if file in source.beside else "") for file in source.files
    )
    return f"expected {wanted} in {folder} (set ACCLIMATE_DATA to look elsewhere); get it from {source.origin}"


def _short(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _all_images(sets: Sequence[Dataset]) -> Iterator[NDArray[np.uint8]]:
    for one in sets:
        pixels = one.images.pixels.numpy()
        for start in range(0, len(pixels), CHUNK):
            yield pixels[start : start + CHUNK]


def _pooled(sets: Sequence[Dataset], counts: Sequence[int]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of all images together: E[x²] − E[x]²."""
    weights = np.array(counts)[:, None] / sum(counts)
    means, stds = np.array([one.mean for one in sets]), np.array([one.std for one in sets])
    mean = (weights * means).sum(0)
    std = np.sqrt((weights * (stds**2 + means**2)).sum(0) - mean**2)
    return tuple(mean.round(4).tolist()), tuple(std.round(4).tolist())


def _joined(sets: Sequence[Dataset]) -> dict[str, NDArray[Any]]:
    keys = dict.fromkeys(key for one in sets for key, column in one.columns.items() if column.dtype.kind in "iub")
    return {key: np.concatenate([one.columns.get(key, np.full(len(one.labels), -1)) for one in sets]) for key in keys}
