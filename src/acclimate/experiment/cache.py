"""Finished phases, kept by content: what was trained once is not trained again.

A phase is found by everything that decides its result: the population, the model, the phases so far, the seed
(the folder's name), and the source of its method and of what that imports from this package (the file's name).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from acclimate.data.folders import cache_folder
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.known import Known, Outcome
from acclimate.engine.train import at_round
from acclimate.errors import Damage, DamagedFile, MissingData
from acclimate.experiment.experiment import System, digest_of
from acclimate.experiment.source import source_digest
from acclimate.experiment.versions import versions
from acclimate.models.build import Build
from acclimate.scenarios.population import Population


def phase_file(
    system: System, position: int, population: Population, seed: int, reuse: bool = False
) -> tuple[Path, bool]:
    """The checkpoint file of a system's phase, and whether it was made by other code than today's (`reuse`).

    `population` is that of the phase's scenario.
    """
    folder, phase = _folder(system, position, population, seed), system.phases[position]
    so_far = (system.phases[place] for place in (*system.before(position), position))
    modules = [module for one in so_far for module in one.algorithm.modules]
    path = folder / f"{source_digest([*modules, *system.model.chosen.modules, Build.__module__])}.sqlite"
    if reuse and not path.exists():
        for older in sorted(folder.glob("*.sqlite"), key=lambda p: p.stat().st_mtime, reverse=True):
            if _rounds(older) == phase.rounds:
                return older, True
    return path, False


def go_on(path: Path, system: System, position: int, population: Population, seed: int) -> None:
    """Begin a phase's file with what a shorter training of it has made, the longest there is: its own first rounds."""
    phase = system.phases[position]
    for rounds in range(phase.rounds - 1, 0, -1):
        fewer = (*system.phases[:position], replace(phase, rounds=rounds), *system.phases[position + 1 :])
        shorter = _folder(replace(system, phases=fewer), position, population, seed) / path.name
        if shorter.exists():
            with suppress(DamagedFile), closing(Checkpoint(shorter)) as checkpoint:
                checkpoint.copy(path)
            return


@contextmanager
def trained(system: System, population: Population, seed: int, round: int | None = None) -> Iterator[Known]:
    """What the finished phases of a system export; `round`: of the last one after an earlier round that was kept."""
    with ExitStack() as opened:
        outcomes = []
        for place in system.order:
            phase = system.phases[place]
            people = phase.scenario.made.build(seed) if phase.scenario else population
            path, _ = phase_file(system, place, people, seed, reuse=True)
            if not path.exists() or _rounds(path) != phase.rounds:
                raise MissingData(
                    f"phase '{phase.algorithm.name}' of '{system.name}', seed {seed}, is not (or no longer) in the "
                    f"cache {cache_folder()}; run the experiment again, which trains only what is missing"
                )
            checkpoint = opened.enter_context(closing(Checkpoint(path)))
            own = seed if phase.seed is None else phase.seed
            anybody, position = next(iter(people.source)), len(system.before(place))
            outcomes.append(Outcome(phase.algorithm.made, checkpoint, phase.rounds, own, position, anybody))
        if round is not None:
            outcomes[-1] = at_round(outcomes[-1], round)
        yield Known(outcomes)


def _folder(system: System, position: int, population: Population, seed: int) -> Path:
    """Where a phase is kept, whatever code made it."""
    so_far = [system.phases[place] for place in (*system.before(position), position)]
    content = {
        "population": population.digest,
        "model": system.model.differs(),
        "phases": [phase.differs() for phase in so_far],
        "seed": seed if any(phase.seed is None for phase in so_far) else None,
        "torch": versions()["torch"],
    }
    return cache_folder() / "phases" / digest_of(content)


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
