"""A user's own images: a folder per client, or a CSV file that lists them."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acclimate.data.dataset import Dataset
from acclimate.data.folders import cache_folder
from acclimate.data.pictures import open_image
from acclimate.data.readers.images import is_image, read_images
from acclimate.data.sealed import is_sound, write_images, write_sealed
from acclimate.errors import MissingData, nearest
from acclimate.examples import Images

UNLABELLED = -1


class Listed(NamedTuple):
    """One image: its file, whose it is, and its class if that is known."""

    file: Path
    client: str
    label: str | None


def folder_per_client(path: Path, size: int | None = None, classes: Sequence[str] | None = None) -> Dataset:
    """`<client>/<class>/*.png` (or .jpg, ...), or `<client>/*.png` without labels.

    Args:
        path: The folder with a folder per client.
        size: Height and width to resize to; not needed if all images are of one size.
        classes: The classes in the order of a model's outputs; by default all that are found, sorted.
    """
    path = Path(path)
    if not path.is_dir():
        raise MissingData(f"{path}: expected a folder with a folder per client, found none")
    entries = []
    for client in _folders(path):
        entries += [Listed(file, client.name, None) for file in sorted(client.iterdir()) if is_image(file)]
        for of in _folders(client):
            entries += [Listed(file, client.name, of.name) for file in sorted(of.iterdir()) if is_image(file)]
    if not entries:
        raise MissingData(f"{path}: expected images in <client>/<class>/ or in <client>/, found none")
    return _dataset(path, entries, size, classes)


def csv_of(path: Path, size: int | None = None, classes: Sequence[str] | None = None) -> Dataset:
    """A CSV file with the columns path, client and, if labels are known, label (empty where one is not).

    Paths are relative to the file's folder. `size` and `classes` are those of `folder_per_client`.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MissingData(f"{path}: expected a CSV file, found: {error}") from error
    if not lines:
        raise MissingData(f"{path}: expected a line of column names and a line per image, found none")
    missing = {"path", "client"} - set(lines[0])
    if missing:
        raise MissingData(f"{path}: expected the columns path, client and perhaps label; found {', '.join(lines[0])}")
    entries = []
    for number, line in enumerate(lines, start=2):
        if not line["path"] or not line["client"]:
            raise MissingData(f"{path}, line {number}: expected a path and a client, found {line}")
        file_of = path.parent / line["path"]
        if not file_of.is_file():
            raise MissingData(f"{path}, line {number}: expected an image at {file_of}, found none")
        entries.append(Listed(file_of, line["client"], line.get("label") or None))
    return _dataset(path, entries, size, classes)


def _folders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("."))


def _dataset(path: Path, entries: Sequence[Listed], size: int | None, classes: Sequence[str] | None) -> Dataset:
    names = _classes(path, entries, classes)
    clients = tuple(sorted({entry.client for entry in entries}, key=_natural))
    number, place = {name: k for k, name in enumerate(names)}, {name: k for k, name in enumerate(clients)}
    digest = f"own-{_digest(entries, size)}"
    pixels, notes = cache_folder() / "images" / f"{digest}.npy", cache_folder() / "images" / f"{digest}.json"
    if not (is_sound(pixels) and is_sound(notes)):
        _decode([entry.file for entry in entries], size, pixels, notes)
    kept = json.loads(notes.read_bytes())
    return Dataset(
        name=path.stem,
        images=Images(pixels),
        labels=np.array([UNLABELLED if e.label is None else number[e.label] for e in entries], dtype=np.int64),
        classes=len(names),
        mean=tuple(kept["mean"]),
        std=tuple(kept["std"]),
        digest=digest + "-" + hashlib.sha256("\n".join(names).encode()).hexdigest()[:8],
        columns={
            "client": np.array([place[entry.client] for entry in entries], dtype=np.int64),
            "path": np.array([str(entry.file) for entry in entries]),
        },
        names={"label": names, "client": clients},
    )


def _classes(path: Path, entries: Sequence[Listed], given: Sequence[str] | None) -> tuple[str, ...]:
    found = {entry.label for entry in entries if entry.label is not None}
    if given is None:
        return tuple(sorted(found, key=_natural))
    unknown = sorted(found - set(given))
    if unknown:
        raise MissingData(f"{path}: expected the classes {', '.join(given)}; found '{unknown[0]}': "
                          f"{nearest(unknown[0], given)}")  # fmt: skip
    return tuple(given)


def _natural(name: str) -> tuple[int, int, str]:
    """Numbers by their value, before words: 2 before 10."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def _digest(entries: Sequence[Listed], size: int | None) -> str:
    """Of what the files are, whose and when they changed; reading them all would take too long each time."""
    digest = hashlib.sha256(f"{size} ".encode())
    for entry in entries:
        found = entry.file.stat()
        digest.update(
            f"{entry.file.resolve()} {found.st_size} {found.st_mtime_ns} {entry.client} {entry.label}\n".encode()
        )
    return digest.hexdigest()[:16]


def _decode(files: Sequence[Path], size: int | None, pixels: Path, notes: Path) -> None:
    shapes = [_shape(file) for file in files]
    channels = max(shape[0] for shape in shapes)
    if size is None:
        other = next((k for k, shape in enumerate(shapes) if shape[1:] != shapes[0][1:]), None)
        if other is not None:
            (_, h, w), (_, h2, w2) = shapes[0], shapes[other]
            raise MissingData(
                f"{files[other]}: expected {h}x{w} pixels as in {files[0].name}, found {h2}x{w2}; "
                "give a size that all are resized to, such as size=64"
            )
    height, width = (size, size) if size else shapes[0][1:]
    sums = _Sums(channels)
    parts = sums.watch(read_images(files, (height, width), channels, upright=True))
    write_images(pixels, (len(files), height, width, channels), parts)
    write_sealed(notes, lambda file: file.write(json.dumps(sums.moments()).encode()))


class _Sums:
    """Mean and deviation of all pixels, summed while they pass."""

    def __init__(self, channels: int) -> None:
        self.count, self.sum, self.squares = 0, np.zeros(channels), np.zeros(channels)

    def watch(self, parts: Iterator[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
        for part in parts:
            flat = part.reshape(-1, part.shape[-1]) / 255
            self.count, self.sum, self.squares = (
                self.count + len(flat),
                self.sum + flat.sum(0),
                self.squares + (flat**2).sum(0),
            )
            yield part

    def moments(self) -> dict[str, list[float]]:
        mean = self.sum / self.count
        std = np.sqrt(np.maximum(self.squares / self.count - mean**2, 1e-4))
        return {"mean": mean.round(4).tolist(), "std": std.round(4).tolist()}


def _shape(file: Path) -> tuple[int, int, int]:
    """Channels, height and width as they will be read, from the file's header."""
    try:
        with open_image(file) as image:
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # orientation: on its side
            width, height = image.size[::-1] if turned else image.size
            return (1 if image.mode in ("1", "L", "LA") else 3), height, width
    except Exception as error:  # whatever a decoder does with a damaged file
        raise MissingData(f"{file}: expected an image, found: {str(error) or type(error).__name__}") from error
