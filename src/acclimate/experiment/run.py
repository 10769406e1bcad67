"""From an experiment to measured rows: phases from the cache or trained, then every system tested on every seed."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import yaml

from acclimate import trees
from acclimate.data.folders import write_whole
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.evaluate import check_knowledge, evaluate
from acclimate.engine.executor import Executor, Serial
from acclimate.engine.train import Known, Outcome, at_round, train
from acclimate.errors import ConfigError, NothingSelected
from acclimate.experiment.cache import lock, phase_path, source_digest
from acclimate.experiment.catalog import ADAPTERS
from acclimate.experiment.config import Chosen, Experiment, System, digest_of
from acclimate.experiment.schema import check
from acclimate.experiment.unseen import unseen
from acclimate.models.blocks import blocks
from acclimate.models.build import Build
from acclimate.scenarios.population import Population, Stream
from acclimate.store.database import Store, Unit
from acclimate.version import __version__

STORE = "store.sqlite"
MOST_NOTED_BYTES = 4096  # of knowledge that is copied into the store


class Listener(Protocol):
    """Whoever wants to know how far things are."""

    def begin(self, title: str, total: int) -> None: ...

    def step(self, done: int, text: str) -> None: ...

    def end(self) -> None: ...

    def say(self, text: str) -> None: ...


class Silent:
    """Nobody wants to know."""

    def begin(self, title: str, total: int) -> None: ...

    def step(self, done: int, text: str) -> None: ...

    def end(self) -> None: ...

    def say(self, text: str) -> None: ...


def run(
    experiment: Experiment,
    runs: Path,
    *,
    executor: Executor | None = None,
    reuse: bool = False,
    listener: Listener | None = None,
) -> int:
    """Run an experiment, or what is left of it; returns its id in the store `runs/store.sqlite`."""
    folder = runs / experiment.run_name
    with lock(folder / "lock"):
        text = yaml.safe_dump(experiment.plain(), sort_keys=False)
        write_whole(folder / "experiment.yaml", lambda file: file.write(text.encode()))
        store = Store(runs / STORE)
        try:
            id = store.run(experiment.run_name, experiment.plain(), versions())
            session = _Session(experiment, store, id, executor or Serial(), reuse, listener or Silent())
            for number, seed in enumerate(experiment.seeds, 1):
                session.seed(seed, f"seed {seed} ({number}/{len(experiment.seeds)})")
            store.finish(id)
        finally:
            store.close()
    return id


def is_finished(experiment: Experiment, runs: Path) -> bool:
    """Whether everything asked for was measured already."""
    if not (runs / STORE).exists():
        return False
    store = Store(runs / STORE)
    try:
        return any(run["name"] == experiment.run_name and run["finished"] for run in store.runs())
    finally:
        store.close()


def with_baselines(systems: Sequence[System]) -> tuple[list[System], dict[str, str]]:
    """The systems and, for each, the name of the one without adaptation on the same phases, added if missing."""
    target = ADAPTERS["none"].load()
    none = Chosen("none", target, {}, {"name": "none", **check(target, {}, "")[1]})
    everything, baseline = list(systems), {}
    for system in systems:
        training = system.training()
        found = [
            other.name
            for other in everything
            if other.adapter.name == "none" and other.aggregator is None and other.training() == training
            and not other.select
        ]  # fmt: skip
        if not found:
            taken = {other.name for other in everything}
            name = "none" if "none" not in taken else f"none for {system.name}"
            phases = tuple(phase for phase in system.phases if phase.trains)
            everything.insert(everything.index(system), System(name, phases, none))
            found = [name]
        baseline[system.name] = found[0]
    return everything, {**{other.name: other.name for other in everything}, **baseline}


def versions() -> dict[str, str]:
    """What the numbers depend on besides the experiment."""
    import numpy
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "acclimate": __version__,
        "commit": commit.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "machine": platform.machine(),
    }


@dataclass
class _Session:
    experiment: Experiment
    store: Store
    run: int
    executor: Executor
    reuse: bool
    listener: Listener
    _open: list[Checkpoint] = field(default_factory=list)
    _since: float = field(default_factory=time.monotonic)

    def seed(self, seed: int, title: str) -> None:
        """Everything of one seed."""
        systems, baseline = with_baselines(self.experiment.systems)
        for name, other in baseline.items():
            self.store.note(self.run, name, -1, "baseline", other)
        if all(self.store.is_complete(Unit(self.run, system.name, seed)) for system in systems):
            return
        scenario = self.experiment.scenario.make()
        population = tested = scenario.build(seed)
        if self.experiment.test_scenario is not None:
            tested = unseen(self.experiment.test_scenario.make(), scenario, seed)
        if self.experiment.test.validation:
            tested = replace(tested, streams=[*tested.streams, *_validation(population)])
        model = self.experiment.model
        build = Build(
            model.target,
            population.classes,
            population.shape,
            population.mean,
            population.std,
            model.options,
            self.experiment.variants,
        )
        self.store.note(self.run, "", -1, "streams", list(dict.fromkeys(stream.name for stream in tested.streams)))
        self.store.note(self.run, "", seed, "groups", dict(tested.groups))
        self.store.note(self.run, "", -1, "blocks", blocks(build(None)))
        done: dict[str, Outcome] = {}
        try:
            for system in systems:
                if not self.store.is_complete(Unit(self.run, system.name, seed)):
                    self.system(system, seed, population, tested, build, done, title)
        finally:
            for checkpoint in self._open:
                checkpoint.close()
            self._open.clear()

    def system(
        self,
        system: System,
        seed: int,
        population: Population,
        tested: Population,
        build: Build,
        done: dict[str, Outcome],
        title: str,
    ) -> None:
        """Train what is missing, choose what is to be chosen, test."""
        known = Known([self.phase(system, i, seed, population, build, done, title) for i in range(len(system.phases))])
        check_knowledge(known, system.adapter.target.needs, tested.streams)
        first = tested.streams[0].client
        knowledge = known.of(first)
        needed = {name: knowledge[name] for name in ("model", *system.adapter.target.needs)}
        self.store.note(self.run, system.name, seed, "knowledge_bytes", trees.nbytes(needed))
        for name in system.adapter.target.needs:  # ATP's rates, a chosen block: what a report can draw or name
            if not known.personal and trees.nbytes(knowledge[name]) <= MOST_NOTED_BYTES:
                self.store.note(self.run, system.name, seed, f"knowledge {name}", knowledge[name])
        test = partial(self.test, system, seed=seed, build=build, title=title)
        validation = population.validation_streams()
        if system.tune:
            scores = {
                _label(c, system): test(c, known, population, validation, phase=f"tune {_label(c, system)}")
                for c in _scorable(system, "tune", validation, system.tune)
            }
            best = max(scores, key=lambda label: scores[label])  # the first of equals
            chosen = next(c for c in system.tune if _label(c, system) == best)
            self.store.note(self.run, system.name, seed, "tuned", {"chosen": chosen.plain, "validation": scores})
            system = replace(system, adapter=chosen)
            test = partial(self.test, system, seed=seed, build=build, title=title)
        if system.select:
            last = known.outcomes[-1]
            candidates = {
                round: Known([*known.outcomes[:-1], at_round(last, round)])
                for round in _scorable(system, "select", validation, last.checkpoint.kept())
                if round > 0
            }
            by_round = {
                round: test(system.adapter, earlier, population, validation, phase=f"select {round}")
                for round, earlier in candidates.items()
            }
            best_round = max(by_round, key=lambda round: by_round[round])
            note = {"round": best_round, "validation": by_round}
            self.store.note(self.run, f"{system.name} (best validation)", seed, "selected", note)
            test(
                system.adapter,
                candidates[best_round],
                tested,
                tested.streams,
                name=f"{system.name} (best validation)",
            )
            self.store.note(
                self.run, f"{system.name} (best validation)", -1, "baseline",
                self.store.notes(self.run, "baseline")[(system.name, -1)],
            )  # fmt: skip
        test(system.adapter, known, tested, tested.streams)

    def phase(
        self,
        system: System,
        position: int,
        seed: int,
        population: Population,
        build: Build,
        done: dict[str, Outcome],
        title: str,
    ) -> Outcome:
        """A phase of a system: from this seed's, from the cache, or trained now."""
        choice, so_far = system.phases[position], system.phases[: position + 1]
        content = {
            "population": population.digest,
            "model": self.experiment.plain()["model"],
            "phases": [phase.plain() for phase in so_far],
            "seed": seed if any(phase.seed is None for phase in so_far) else None,
            "torch": versions()["torch"],
        }
        modules = [phase.algorithm.target.__module__ for phase in so_far]
        modules += [self.experiment.model.target.__module__, train.__module__]
        path, older = phase_path(content, modules, choice.rounds, self.reuse)
        label = f"{position}:{choice.algorithm.name}#{path.parent.name[:6]}"
        if older:
            before = self.store.notes(self.run, "reused").get((system.name, seed), [])
            self.store.note(self.run, system.name, seed, "reused", sorted({*before, label}))
        if str(path) in done:
            return done[str(path)]
        known = Known([self.phase(system, i, seed, population, build, done, title) for i in range(position)])
        with lock(path.with_suffix(".lock"), wait=self.listener.say):
            checkpoint = Checkpoint(path)
            self._open.append(checkpoint)
            with self._shown(f"{title}: {choice.algorithm.name}", choice.rounds) as step:
                outcome = train(
                    choice.algorithm.make(),
                    population,
                    build,
                    rounds=choice.rounds,
                    cohort=choice.cohort,
                    keep_every=choice.keep_every,
                    seed=seed if choice.seed is None else choice.seed,
                    position=position,
                    known=known,
                    executor=self.executor,
                    checkpoint=checkpoint,
                    progress=step,
                )
        self.store.add_training(self.run, label, seed, checkpoint.metrics())
        done[str(path)] = outcome
        return outcome

    def test(
        self,
        system: System,
        adapter: Chosen,
        known: Known,
        population: Population,
        streams: Sequence[Stream],
        *,
        seed: int,
        build: Build,
        title: str,
        phase: str = "test",
        name: str | None = None,
    ) -> float:
        """Test one adapter; returns its accuracy, from the store if it was measured before, by this run or another."""
        unit = Unit(self.run, name or system.name, seed, phase)
        if self.store.is_complete(unit):
            return self.store.accuracy(unit)
        what = unit.system if phase == "test" else f"{unit.system}, {phase}"
        recipe = self._recipe(adapter, system.aggregator, known, population, seed, phase)
        taken = self.store.take(unit, recipe)
        if taken is None:
            total = sum(len(stream.slots(self.experiment.test.batch_size)) for stream in streams)
            with self._shown(f"{title}: testing {what}", total) as step:
                for commit in evaluate(
                    partial(adapter.target, **adapter.options),
                    population,
                    build,
                    known,
                    needs=adapter.target.needs,
                    aggregator=system.aggregator.make() if system.aggregator else None,
                    streams=streams,
                    test=self.experiment.test,
                    seed=seed,
                    executor=self.executor,
                    resume=self.store.resume(unit),
                    commit_seconds=float(os.environ.get("ACCLIMATE_COMMIT_SECONDS", "10")),
                    progress=step,
                ):
                    self.store.commit(unit, commit)
            self.store.complete(unit, recipe)
        else:
            self.listener.say(f"{title}: {what} as measured by {taken}")
        return self.store.accuracy(unit)

    def _recipe(
        self, adapter: Chosen, aggregator: Chosen | None, known: Known, tested: Population, seed: int, phase: str
    ) -> str:
        """Stands for everything that decides a test, the source code included."""
        plain = self.experiment.plain()
        content = {
            **{key: plain[key] for key in ("scenario", "model", "test")},
            "data": tested.digest,
            "validation": phase != "test",
            "phases": [(o.checkpoint.path.parts[-2:], o.round) for o in known.outcomes if o.checkpoint.path],
            "adapter": adapter.plain,
            "aggregator": aggregator.plain if aggregator else None,
            "seed": seed,
            "torch": versions()["torch"],
        }
        chosen = [self.experiment.scenario, self.experiment.test_scenario, self.experiment.model, adapter, aggregator]
        modules = [choice.target.__module__ for choice in chosen if choice]
        return digest_of([content, source_digest([*modules, unseen.__module__, evaluate.__module__])])

    @contextmanager
    def _shown(self, title: str, total: int) -> Iterator[Any]:
        def step(done: int, total: int, text: str) -> None:
            self.listener.step(done, text)
            self._count(least=10.0)

        self.listener.begin(title, total)
        yield step
        self.listener.end()
        self._count(least=0.0)

    def _count(self, least: float) -> None:
        """Add to the seconds that all sittings of this run have worked; a killed one loses at most `least`."""
        passed = time.monotonic() - self._since
        if passed >= least:
            self.store.add_work(self.run, passed)
            self._since += passed


def _validation(population: Population) -> Sequence[Stream]:
    if not (streams := population.validation_streams()):
        raise ConfigError(["test.validation: no source client of this scenario has a validation part; leave it out"])
    return streams


def _scorable(system: System, what: str, validation: Sequence[Stream], candidates: Sequence[Any]) -> Sequence[Any]:
    if not validation:
        raise NothingSelected(
            f"system '{system.name}': {what} scores on source clients' validation data, and this scenario has none; "
            "give its source clients a validation part, or leave the choice to yourself"
        )
    return candidates


def _label(candidate: Chosen, system: System) -> str:
    """What distinguishes a candidate from the others."""
    varied = [k for k in candidate.plain if len({repr(c.plain[k]) for c in system.tune}) > 1]
    return " ".join(f"{key}={candidate.plain[key]}" for key in varied) or "as given"
