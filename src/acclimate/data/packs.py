"""Packs: a data set as one `.npz` file, the only form that experiments read.

Array style: `train_x`, `train_y`, `test_x`, `test_y`, or `x` and `y`; images are uint8 [N, H, W] or [N, H, W, C].
Buf style: `buf` holds encoded images one after another, image i is `buf[offsets[i]:offsets[i + 1]]`; labels in `y`.
Both: any further array of one entry per image is a column (`split`, `domain`, ...; `train_writer` with
`test_writer`); `classes` names the labels, `domains` or `domain_names` the numbers of the column `domain`.

A pack is checked from end to end and decoded once, to uint8 [N, H, W, C] in the cache folder. docs/data.md has more.
"""

from __future__ import annotations

import errno
import io
import itertools
import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from acclimate.data.folders import cache_folder
from acclimate.data.identity import sha256_of
from acclimate.data.pictures import open_image
from acclimate.data.sealed import is_sound, noted, write_images, write_sealed
from acclimate.errors import Damage, MissingData

FORM = 1  # of the decoded files; a change leaves the old ones unused
CHUNK = 1000  # images at a time
MOST_BYTES = 2**36  # of one array: more than any data set has that is kept in one file
STYLES = {"buf": ("buf", "offsets", "y"), "train_x": ("train_x", "train_y", "test_x", "test_y"), "x": ("x", "y")}
BROKEN = (  # what zipfile and numpy raise for a damaged file
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, ValueError, NotImplementedError, RuntimeError
)  # fmt: skip
Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Columns = Mapping[str, NDArray[Any]]
Names = Mapping[str, tuple[str, ...]]


class Pack(NamedTuple):
    """A decoded pack: the file of its images, and all that is known of them."""

    images: Path
    labels: Labels
    columns: Columns
    names: Names
    digest: str


class _Problem(Exception):
    """What is wrong with a pack."""


def open_pack(path: Path, classes: int, shape: tuple[int, ...], *, sha256: str = "", invert: bool = False) -> Pack:
    """Check and decode a pack, or find it decoded.

    Args:
        path: The pack.
        classes: How many classes there are; labels are 0 to classes - 1.
        shape: Channels, height and width that its images must have.
        sha256: What the file's sum should be, if known; the message about a damaged file compares.
        invert: Take 255 minus the pixels, for data sets kept black on white.
    """
    found = _sum(path)
    digest = f"{path.stem}-{found[:16]}-{FORM}" + ("-inverted" if invert else "")
    pixels, rest = cache_folder() / "images" / f"{digest}.npy", cache_folder() / "images" / f"{digest}.npz"
    if not (is_sound(pixels) and is_sound(rest)):
        with _blame(path, found, sha256), zipfile.ZipFile(path) as archive:
            labels, columns, names = _facts(archive, classes)
            count, parts = (_encoded if "buf.npy" in archive.namelist() else _plain)(archive, shape)
            _equal(count, len(labels), "images", "labels")
            channels, height, width = shape
            inverted = (255 - part for part in parts) if invert else parts
            write_images(pixels, (count, height, width, channels), inverted)
            _save_rest(rest, labels, columns, names)  # last: what is complete has both
    expected = noted(path) or sha256  # a pack that was converted here has a sum of its own
    if expected and found != expected:
        warnings.warn(
            f"{path} is not the file it should be: its sha256 is {found}, expected {expected}", Damage, stacklevel=2
        )
    with np.load(rest, allow_pickle=False) as kept:
        return Pack(
            images=pixels,
            labels=kept["labels"],
            columns={key[len("column ") :]: kept[key] for key in kept.files if key.startswith("column ")},
            names={key[len("names ") :]: tuple(kept[key].tolist()) for key in kept.files if key.startswith("names ")},
            digest=digest,
        )


def open_columns(path: Path, images: int, *, sha256: str = "") -> tuple[Columns, str]:
    """Further columns for the images of another pack (`train_writer` with `test_writer`), and their digest."""
    found = _sum(path)
    with _blame(path, found, sha256), zipfile.ZipFile(path) as archive:
        columns, _ = _columns(_small(archive), images)
    return columns, f"{path.stem}-{found[:16]}"


def write_pack(
    path: Path,
    images: Pixels | Iterable[Pixels],
    labels: NDArray[Any],
    columns: Columns | None = None,
    names: Names | None = None,
    classes: Iterable[str] = (),
) -> Path:
    """Write an array-style pack and its sum; the images may come in parts, so that they need not fit into memory."""
    parts = iter([images] if isinstance(images, np.ndarray) else images)
    first = next(parts, None)
    if first is None:
        raise MissingData(f"{path}: expected images to write, found none")
    shape = (len(labels), *first.shape[1:])
    small: dict[str, NDArray[Any]] = {"y": labels, **(columns or {})}
    small |= {"domains" if key == "domain" else f"{key}_names": np.array(of) for key, of in (names or {}).items()}
    if classes := list(classes):
        small["classes"] = np.array(classes)
    wrong = [key for key, array in small.items() if array.dtype.kind not in "iubfU" or array.ndim != 1]
    if wrong:
        raise MissingData(f"{path}: expected columns of numbers or strings, one entry each; found others: {wrong}")

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for key, array in small.items():
                with archive.open(f"{key}.npy", "w") as member:
                    npy.write_array(member, array, allow_pickle=False)
            with archive.open("x.npy", "w", force_zip64=True) as member:
                npy.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": shape})
                written = 0
                for part in itertools.chain([first], parts):
                    _equal(part.shape[1:], shape[1:], "the size of one image", "that of the first")
                    member.write(np.ascontiguousarray(part, dtype=np.uint8).data)
                    written += len(part)
                _equal(written, len(labels), "images", "labels")

    with _blame(path, "", ""):
        write_sealed(path, write)
    return path


def _sum(path: Path) -> str:
    if not path.is_file():
        raise MissingData(f"{path}: expected a pack (.npz) here, found nothing")
    return sha256_of(path)


@contextmanager
def _blame(path: Path, found: str, expected: str) -> Iterator[None]:
    """Whatever is wrong inside is wrong with this file."""
    try:
        yield
    except (_Problem, OSError, *BROKEN) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # that of a place before the file's beginning
            raise
        what = error if isinstance(error, _Problem) else f"expected a readable .npz file, found: {error}"
        sums = ""
        if expected:
            same = "as expected" if found == expected else f"expected {expected}"
            sums = f" (its sha256 is {found}, {same})"
        raise MissingData(f"{path}: {what}{sums}") from error


def _equal(found: object, expected: object, what: str, than: str) -> None:
    if found != expected:
        raise _Problem(f"expected as many {what} as {than}: {expected}; found {found}")


def _small(archive: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    """All arrays but the images."""
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    found = {}
    for key in names:
        if key not in ("x", "train_x", "test_x", "buf"):
            found[key] = _array(archive, key)
    return found


def _array(archive: zipfile.ZipFile, key: str) -> NDArray[Any]:
    """An array, if it is as large as its entry in the archive and no larger than any that makes sense."""
    held = archive.getinfo(f"{key}.npy").file_size
    with archive.open(f"{key}.npy") as member:
        size, _, dtype = _header(member)
    needed = math.prod(size) * dtype.itemsize
    if needed > MOST_BYTES:
        raise _Problem(f"expected at most {MOST_BYTES:,} bytes in '{key}', found {dtype} {size}")
    if needed > held:
        raise _Problem(f"expected {needed:,} bytes in '{key}' for its {dtype} {size}, found {held:,}")
    with archive.open(f"{key}.npy") as member:
        return npy.read_array(member, allow_pickle=False)


def _facts(archive: zipfile.ZipFile, classes: int) -> tuple[Labels, Columns, Names]:
    keys = {name.removesuffix(".npy") for name in archive.namelist()}
    needed = next((keys_of for mark, keys_of in STYLES.items() if mark in keys), None)
    if needed is None or not keys.issuperset(needed):
        wanted = (
            "; or ".join(", ".join(keys_of) for keys_of in STYLES.values()) if needed is None else ", ".join(needed)
        )
        raise _Problem(f"expected the arrays {wanted}; found {', '.join(sorted(keys)) or 'none'}")
    arrays = _small(archive)
    arrays.pop("offsets", None)
    labels = _labels(arrays, classes)
    columns, names = _columns(arrays, len(labels))
    if "label" in names:
        _equal(len(names["label"]), classes, "names of classes", "classes")
    return labels, columns, names


def _labels(arrays: dict[str, NDArray[Any]], classes: int) -> Labels:
    """The labels, removed from `arrays`; where there are two parts, a column `split` instead."""
    two = "train_y" in arrays
    parts = [arrays.pop(key) for key in (("train_y", "test_y") if two else ("y",))]
    for part in parts:
        if part.dtype.kind not in "iu" or part.ndim != 1:
            raise _Problem(f"expected labels as a list of integers, found {part.dtype} {part.shape}")
    labels = np.concatenate(parts).astype(np.int64)
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        row = int(outside[0])
        raise _Problem(f"expected labels 0 to {classes - 1}, found {labels[row]} in row {row} ({len(outside)} such)")
    if two:
        arrays["train_split"], arrays["test_split"] = (np.full(len(part), k) for k, part in enumerate(parts))
    return labels


def _columns(arrays: Mapping[str, NDArray[Any]], images: int) -> tuple[dict[str, NDArray[Any]], Names]:
    """Sort what is left into columns and the meanings of their numbers."""
    joined = dict(arrays)
    for key in [key for key in arrays if key.startswith("train_")]:
        column = key.removeprefix("train_")
        if f"test_{column}" not in arrays:
            raise _Problem(f"expected test_{column} beside {key}, found none")
        joined[column] = np.concatenate([joined.pop(key), joined.pop(f"test_{column}")])
    names, columns = {}, {}
    for key, array in joined.items():
        column = _named_column(key)
        if array.ndim != 1 or array.dtype.kind not in "iubfU":
            raise _Problem(f"expected a list of numbers or strings in '{key}', found {array.dtype} {array.shape}")
        tells = column == "label" or key.endswith("_names") or column in joined or len(array) != images
        if array.dtype.kind == "U" and column != key and tells:
            names[column] = tuple(array.tolist())
        else:
            _equal(len(array), images, f"entries of '{key}'", "images")
            columns[key] = array.astype(np.int64) if array.dtype.kind in "iub" else array
    for key in columns:
        named = names.get(key, ("train", "test") if key == "split" else ())
        if named and not (columns[key].min(initial=0) >= 0 and columns[key].max(initial=0) < len(named)):
            raise _Problem(f"expected 0 to {len(named) - 1} in '{key}' ({', '.join(named)}), found others")
    return columns, names


def _named_column(key: str) -> str:
    """The column whose numbers an array of strings may name; by the key alone."""
    if key == "classes":
        return "label"
    return key.removesuffix("_names") if key.endswith("_names") else key.removesuffix("s")


def _plain(archive: zipfile.ZipFile, shape: tuple[int, ...]) -> tuple[int, Iterator[Pixels]]:
    """Images of the array style: how many, and the images a thousand at a time."""
    keys = [key for key in ("train_x", "test_x", "x") if f"{key}.npy" in archive.namelist()]
    channels, height, width = shape
    count = 0
    for key in keys:
        with archive.open(f"{key}.npy") as member:
            size, fortran, dtype = _header(member)
        wanted = [(height, width, channels)] + ([(height, width)] if channels == 1 else [])
        if fortran or dtype != np.uint8 or size[1:] not in wanted:
            raise _Problem(f"expected uint8 images [N, {height}, {width}, {channels}] in '{key}', found {dtype} {size}")
        if math.prod(size) > min(MOST_BYTES, archive.getinfo(f"{key}.npy").file_size):
            raise _Problem(
                f"expected {math.prod(size):,} bytes in '{key}', at most {MOST_BYTES:,}; found fewer or more"
            )
        count += size[0]
    return count, (part for key in keys for part in _parts(archive, key, (height, width, channels)))


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    size, fortran, dtype = read[npy.read_magic(member)](member)
    return size, fortran, dtype


def _parts(archive: zipfile.ZipFile, key: str, each: tuple[int, ...]) -> Iterator[Pixels]:
    with archive.open(f"{key}.npy") as member:
        left = _header(member)[0][0]
        while left:
            rows = min(left, CHUNK)
            data = member.read(rows * int(np.prod(each)))
            yield np.frombuffer(data, dtype=np.uint8).reshape(rows, *each)
            left -= rows


def _encoded(archive: zipfile.ZipFile, shape: tuple[int, ...]) -> tuple[int, Iterator[Pixels]]:
    """Images of the buf style, decoded."""
    buf, offsets = _array(archive, "buf"), _array(archive, "offsets")
    if buf.dtype != np.uint8 or buf.ndim != 1:
        raise _Problem(f"expected 'buf' as a list of uint8, found {buf.dtype} {buf.shape}")
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or not len(offsets):
        raise _Problem(f"expected 'offsets' as a list of integers, found {offsets.dtype} {offsets.shape}")
    steps = np.diff(offsets.astype(np.int64))
    if (steps <= 0).any():
        row = int(np.flatnonzero(steps <= 0)[0])
        raise _Problem(f"expected growing offsets, found {offsets[row]} before {offsets[row + 1]} at row {row}")
    if offsets[0] < 0 or offsets[-1] > len(buf):
        raise _Problem(f"expected offsets inside 0 to {len(buf)}, found {offsets[0]} to {offsets[-1]}")
    return len(steps), _decoded(buf, offsets.tolist(), shape)


def _decoded(buf: Pixels, offsets: list[int], shape: tuple[int, ...]) -> Iterator[Pixels]:
    channels, height, width = shape
    for start in range(0, len(offsets) - 1, CHUNK):
        part = np.empty((min(CHUNK, len(offsets) - 1 - start), height, width, channels), dtype=np.uint8)
        for k in range(len(part)):
            row = start + k
            try:
                image = open_image(io.BytesIO(buf[offsets[row] : offsets[row + 1]].tobytes()))
                if image.size != (width, height):  # by its header, before anything is decoded
                    raise _Problem(f"expected images of {height}x{width}, found {image.size[::-1]} in row {row}")
                pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
            except _Problem:
                raise
            except Exception as error:  # whatever a decoder does with a damaged file
                found = str(error) or type(error).__name__
                raise _Problem(f"expected an image in row {row}, found: {found}") from error
            part[k] = pixels.reshape(height, width, channels)
        yield part


def _save_rest(path: Path, labels: Labels, columns: Columns, names: Names) -> None:
    arrays: dict[str, Any] = {"labels": labels}
    arrays |= {f"column {key}": column for key, column in columns.items()}
    arrays |= {f"names {key}": np.array(of) for key, of in names.items()}
    write_sealed(path, lambda file: np.savez(file, **arrays))
