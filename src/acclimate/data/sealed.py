"""Files of the cache that say whether they are whole: each has a small file with its sum beside it.

They are read from end to end when they are opened, which costs about a second for a gigabyte. What is damaged is made
again, and said. A file from before there were sums gets one the first time it is seen, if it can be read at all.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from acclimate.data.folders import write_whole
from acclimate.errors import Damage

_seen: dict[Path, tuple[int, int]] = {}  # what this process has checked: size and time of change


def write_sealed(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file as a whole, and its sum."""
    _sum_file(path).unlink(missing_ok=True)
    write_whole(path, write)
    seal(path)


def write_images(path: Path, shape: tuple[int, ...], parts: Iterable[NDArray[np.uint8]]) -> None:
    """Write uint8 images [N, H, W, C] as `.npy`, part after part, so that they need not fit into memory."""

    def write(file: IO[bytes]) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(file, header)
        written = 0
        for part in parts:
            if part.dtype != np.uint8 or part.shape[1:] != tuple(shape[1:]):
                raise ValueError(f"images are uint8 {tuple(shape[1:])}; found {part.dtype} {part.shape[1:]}")
            file.write(np.ascontiguousarray(part).data)
            written += len(part)
        if written != shape[0]:
            raise ValueError(f"{shape[0]} images were announced, {written} came")

    write_sealed(path, write)


def seal(path: Path) -> None:
    """Note the sum of a file that is as it should be."""
    digest, found = _sum(path), path.stat()
    write_whole(_sum_file(path), lambda file: file.write(digest.encode()))
    _seen[path] = (found.st_size, found.st_mtime_ns)


def remove(path: Path) -> None:
    """Take a file away, with its sum."""
    path.unlink(missing_ok=True)
    _sum_file(path).unlink(missing_ok=True)


def noted(path: Path) -> str:
    """The sum of a file as it was written; empty where none is noted."""
    return _sum_file(path).read_text(encoding="utf-8", errors="replace").strip() if _sum_file(path).exists() else ""


def is_sound(path: Path) -> bool:
    """Whether a file is there and is what was written; if it is damaged it is removed, with a warning."""
    if not path.exists():
        return False
    found = path.stat()
    stamp = (found.st_size, found.st_mtime_ns)
    if _seen.get(path) == stamp:
        return True
    if not (noted(path) == _sum(path) if _sum_file(path).exists() else _is_readable(path)):
        warnings.warn(f"{path} was damaged; it is made again", Damage, stacklevel=2)
        remove(path)
        return False
    _seen[path] = stamp
    return True


def _is_readable(path: Path) -> bool:
    """Whether a file without a sum can be read; it then gets one."""
    try:
        if path.suffix == ".npy":
            np.load(path, mmap_mode="r", allow_pickle=False)  # a file that was cut off is too short for its shape
    except (ValueError, EOFError, OSError):
        return False
    if path.stat().st_size == 0:
        return False
    try:
        seal(path)
    except OSError:  # a folder that may only be read
        return True
    return True


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
