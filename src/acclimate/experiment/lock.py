"""Locks between processes: files that name their holder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from acclimate.errors import RunLocked


@contextmanager
def lock(path: Path, wait: Callable[[str], None] | None = None, does: str = "trains the same phase") -> Iterator[None]:
    """Hold a lock file; with `wait`, say who holds it and what it `does`, and wait, else raise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(file)
            if wait is None:
                raise RunLocked(
                    f"{path.parent} is in use by process {holder}; wait for it to end, or stop it, then try again"
                ) from None
            wait(f"waiting for process {holder}, which {does}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}")
        file.flush()
        yield


def _holder(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "unknown"
