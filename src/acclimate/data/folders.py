"""Where data and computed files live, and how they are written: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO


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
