"""Where data and computed files live, and how they are written: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray


def cache_folder() -> Path:
    """`ACCLIMATE_CACHE`, else a folder of the user's cache."""
    chosen = os.environ.get("ACCLIMATE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(base) / "acclimate"


def data_folder() -> Path:
    """`ACCLIMATE_DATA`, else the folder `data` of the cache: where packs are looked for and converted to."""
    chosen = os.environ.get("ACCLIMATE_DATA")
    return Path(chosen) if chosen else cache_folder() / "data"


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that it is either complete or absent, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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

    write_whole(path, write)
