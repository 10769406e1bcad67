"""Finished phases, kept by content: what was trained once is not trained again.

A phase is found by everything that decides its result: the population, the model, the phases so far, the seed
(the folder's name), and the source of its method and of what that imports from this package (the file's name).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from acclimate.data.folders import cache_folder
from acclimate.engine.checkpoint import Checkpoint
from acclimate.errors import Damage, DamagedFile
from acclimate.experiment.experiment import digest_of
from acclimate.experiment.source import source_digest


def phase_path(content: Any, modules: Iterable[str], rounds: int, reuse: bool) -> tuple[Path, bool]:
    """The checkpoint file of a phase, and whether it was made by other code than today's (`reuse`)."""
    folder = cache_folder() / "phases" / digest_of(content)
    path = folder / f"{source_digest(modules)}.sqlite"
    if reuse and not path.exists():
        for older in sorted(folder.glob("*.sqlite"), key=lambda p: p.stat().st_mtime, reverse=True):
            if _rounds(older) == rounds:
                return older, True
    return path, False


def sound_checkpoint(path: Path) -> Checkpoint:
    """A phase's checkpoint; one that is damaged is removed, with a warning, and begins anew."""
    try:
        return Checkpoint(path)
    except DamagedFile as error:
        warnings.warn(f"{error}; it is made again", Damage, stacklevel=2)
        for part in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            part.unlink(missing_ok=True)
        return Checkpoint(path)


def _rounds(path: Path) -> int | None:
    try:
        checkpoint = Checkpoint(path)
    except DamagedFile:
        return None
    try:
        return checkpoint.last()
    finally:
        checkpoint.close()
