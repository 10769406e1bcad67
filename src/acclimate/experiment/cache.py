"""Finished phases, kept by content: what was trained once is not trained again.

A phase is found by everything that decides its result: the population, the model, the phases so far, the seed
(the folder's name), and the source of its method and of what that imports from this package (the file's name).
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

from acclimate.data.folders import cache_folder
from acclimate.engine.checkpoint import Checkpoint
from acclimate.errors import RunLocked
from acclimate.experiment.config import digest_of

PACKAGE = __name__.partition(".")[0]


def phase_path(content: Any, modules: Iterable[str], rounds: int, reuse: bool) -> tuple[Path, bool]:
    """The checkpoint file of a phase, and whether it was made by other code than today's (`reuse`)."""
    folder = cache_folder() / "phases" / digest_of(content)
    path = folder / f"{source_digest(modules)}.sqlite"
    if reuse and not path.exists():
        for older in sorted(folder.glob("*.sqlite"), key=lambda p: p.stat().st_mtime, reverse=True):
            if _rounds(older) == rounds:
                return older, True
    return path, False


@contextmanager
def lock(path: Path, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold a lock file; with `wait`, say who holds it and wait, else raise."""
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
            wait(f"waiting for process {holder}, which trains the same phase")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}")
        file.flush()
        yield


def source_digest(modules: Iterable[str]) -> str:
    """Sixteen hexadecimal digits for the source of modules and of all they import from this package."""
    seen: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            text, imported = _source(name)
            seen[name] = text
            waiting += imported
    digest = hashlib.sha256()
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + seen[name] + b"\0")
    return digest.hexdigest()[:16]


@cache
def _source(name: str) -> tuple[bytes, tuple[str, ...]]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return b"", ()
    text = Path(spec.origin).read_bytes()
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return text, tuple(module for module in found if module.partition(".")[0] == PACKAGE and _is_module(module))


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # `from package.module import thing`
        return False


def _rounds(path: Path) -> int | None:
    checkpoint = Checkpoint(path)
    try:
        return checkpoint.last()
    finally:
        checkpoint.close()


def _holder(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "unknown"
