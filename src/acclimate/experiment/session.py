"""One sitting of a run: phases from the cache or trained, then every system tested, seed by seed."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from acclimate import trees
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.evaluate import Resume, check_knowledge, evaluate
from acclimate.engine.executor import Executor
from acclimate.engine.known import Known, Outcome
from acclimate.engine.roster import roster
from acclimate.engine.train import at_round, train
from acclimate.errors import ConfigError, Damage, DamagedFile, MissingData, NothingSelected
from acclimate.experiment.baselines import unadapted, with_baselines
from acclimate.experiment.cache import go_on, phase_file, sound_checkpoint
from acclimate.experiment.choice import Chosen, flat
from acclimate.experiment.classes import with_classes
from acclimate.experiment.experiment import Experiment, System, digest_of
from acclimate.experiment.listener import Listener
from acclimate.experiment.lock import lock
from acclimate.experiment.people import people
from acclimate.experiment.predictions import UNLABELLED, has_unlabelled
from acclimate.experiment.source import source_digest
from acclimate.experiment.unseen import unseen
from acclimate.experiment.versions import versions
from acclimate.models.blocks import blocks
from acclimate.models.build import Build
from acclimate.scenarios.population import Population, Stream
from acclimate.store.database import Store, Unit
from acclimate.store.records import ROUND, SELECTED, TEST, UNADAPTED
from acclimate.store.run import ALL

AGAIN = "to measure these, give the experiment another name, or remove the run with 'acclimate runs delete'"
MOST_NOTED_BYTES = 4096  # of knowledge that is copied into the store


@dataclass
class Session:
    """One sitting: what all its seeds share."""

    experiment: Experiment
    store: Store
    run: int
    executor: Executor
    reuse: bool
    listener: Listener
    _since: float = field(default_factory=time.monotonic)

    def seed(self, seed: int, title: str) -> None:
        """Everything of one seed."""
        systems, baseline = with_baselines(self.experiment.systems)
        for name, other in baseline.items():
            self.store.note(self.run, name, ALL, "baseline", other)
        left = [system for system in systems if not self.store.is_complete(Unit(self.run, system.name, seed))]
        if not left:
            return
        population, tested = self.experiment.populations(seed)
        self._note_what_is_special(systems, population, tested)
        self._note_people(seed, systems, population, tested)
        if has_unlabelled(tested):
            self.store.note(self.run, "", seed, UNLABELLED, True)
        work = _Seed(self, seed, title, population, tested)
        try:
            for system in left:
                work.system(system)
        finally:
            work.close()

    @contextmanager
    def shown(self, title: str, total: int) -> Iterator[Any]:
        """Tell the listener how far a piece of work is, and count its time."""

        def step(done: int, total: int, text: str) -> None:
            self.listener.step(done, text)
            self._count(least=10.0)

        self.listener.begin(title, total)
        yield step
        self.listener.end()
        self._count(least=0.0)

    def remember_code(self) -> None:
        """Read all sources now: a digest stands for the code that runs, also if it is edited in the meantime."""
        for system in with_baselines(self.experiment.systems)[0]:
            source_digest([*self.code(system), *(module for one in system.tune for module in one.modules)])

    @property
    def scenarios(self) -> list[Chosen]:
        """Who is trained on and, if they are others, who is tested."""
        return [one for one in (self.experiment.scenario, self.experiment.test_scenario) if one]

    def modules(self, system: System) -> list[str]:
        """Where the code of a test is."""
        methods = [method for method in (system.adapter, system.aggregator) if method]
        chosen = [*self.scenarios, system.model.chosen, *methods]
        also = [Build.__module__, *([unseen.__module__] if len(self.scenarios) > 1 else [])]
        return [*(module for one in chosen for module in one.modules), *also]

    def code(self, system: System) -> list[str]:
        """The same, and of its training."""
        return [*self.modules(system), *(module for phase in system.phases for module in phase.algorithm.modules)]

    def _note_what_is_special(self, systems: Sequence[System], population: Population, tested: Population) -> None:
        """What a report says of the streams, and of systems with a model or a test of their own."""
        names = dict.fromkeys(stream.name for stream in tested.streams)
        if any(system.test.validation for system in systems):
            names |= dict.fromkeys(stream.name for stream in _validation(population))
        self.store.note(self.run, "", ALL, "streams", list(names))
        self.store.note(self.run, "", ALL, "blocks", blocks(self.experiment.model.build(population)(None)))
        for system in systems:
            if texts := system.own(self.experiment):
                self.store.note(self.run, system.name, ALL, "own", texts)
            if system.model != self.experiment.model:
                self.store.note(self.run, system.name, ALL, "blocks", blocks(system.model.build(population)(None)))

    def _note_people(self, seed: int, systems: Sequence[System], population: Population, tested: Population) -> None:
        """Who held and met what in one seed, and of which data."""
        streams = list(tested.streams)
        if any(system.test.validation for system in systems):
            streams += _validation(population)
        self.store.note(self.run, "", seed, "groups", dict(tested.groups))
        self.store.note(self.run, "", seed, "people", asdict(people(population, tested, streams)))
        before, now = self.store.notes(self.run, "checksums").get(("", ALL), {}), data_of(self.experiment, seed)
        if changed := [name for name in now if before.get(name, now[name]) != now[name]]:
            raise MissingData(
                f"{', '.join(changed)}: expected the images that this run has begun with, found others; {AGAIN}"
            )
        self.store.note(self.run, "", ALL, "checksums", now)

    def _count(self, least: float) -> None:
        """Add to the seconds that all sittings of this run have worked; a killed one loses at most `least`."""
        passed = time.monotonic() - self._since
        if passed >= least:
            self.store.add_work(self.run, passed)
            self._since += passed


@dataclass
class _Seed:
    """The work of one seed."""

    session: Session
    seed: int
    title: str
    population: Population  # trained on
    tested: Population
    others: list[tuple[Chosen, Population]] = field(default_factory=list)  # of phases with a scenario of their own
    done: dict[Path, Outcome] = field(default_factory=dict)
    open: list[Checkpoint] = field(default_factory=list)

    def close(self) -> None:
        for checkpoint in self.open:
            checkpoint.close()

    def system(self, system: System) -> None:
        """Train what is missing, choose what is to be chosen, test."""
        known = Known([self.phase(system, place) for place in system.order])
        for needs in dict.fromkeys(adapter.made.needs for adapter in (system.adapter, *system.tune)):
            check_knowledge(known, needs, [stream.client for stream in self.tested.streams])
        if system.tune:
            system = replace(system, adapter=self.tuned(system, known))
        self._note_knowledge(system, known)
        if system.select:
            self.selected(system, known)
        if system.test.convergence:
            self.converged(system, known)
        self.test(system, known)  # last: what has it is done

    def tuned(self, system: System, known: Known) -> Chosen:
        """The candidate that is best on source validation data; the first of equals."""
        self._need_validation(system, "tune")
        labels = {_label(candidate, system): candidate for candidate in system.tune}
        scores = {
            label: self.test(replace(system, adapter=candidate), known, f"tune {label}")
            for label, candidate in labels.items()
        }
        best = labels[max(scores, key=lambda label: scores[label])]
        self._note(system.name, "tuned", {"chosen": best.plain, "validation": scores})
        return best

    def selected(self, system: System, known: Known) -> None:
        """Test also the round that is best on source validation data, beside the last one."""
        self._need_validation(system, "select")
        *before, last = known.outcomes
        rounds = {round: Known([*before, at_round(last, round)]) for round in last.checkpoint.kept() if round > 0}
        scores = {round: self.test(system, earlier, f"select {round}") for round, earlier in rounds.items()}
        best = max(scores, key=lambda round: scores[round])
        self._note(system.name, "selected", {"round": best, "validation": scores})
        self.test(system, rounds[best], SELECTED)
        if system != (plain := unadapted(system)):
            self.test(plain, rounds[best], UNADAPTED)  # whom it helped and harmed

    def converged(self, system: System, known: Known) -> None:
        """Test every kept round of the last phase; before the first one there is only what it starts from."""
        *before, last = known.outcomes
        for round in last.checkpoint.kept():
            self.test(system, Known([*before, at_round(last, round)]), f"{ROUND}{round}")
        place = system.order[-1]
        path, _ = phase_file(system, place, self.population, self.seed, self.session.reuse)
        self._note(system.name, "last phase", _phase_label(system, place, path))

    def phase(self, system: System, place: int) -> Outcome:
        """A phase of a system: from this seed's, from the cache, or trained now."""
        session, choice = self.session, system.phases[place]
        population = self.people(choice.scenario)
        path, older = phase_file(system, place, population, self.seed, session.reuse)
        label = _phase_label(system, place, path)
        if older:
            noted = session.store.notes(session.run, "reused").get((system.name, self.seed), [])
            self._note(system.name, "reused", sorted({*noted, label}))
        if path in self.done:
            return self.done[path]
        before = [self.phase(system, earlier) for earlier in system.before(place)]
        with lock(path.with_suffix(".lock"), wait=session.listener.say):
            if not path.exists():
                go_on(path, system, place, population, self.seed)
            checkpoint = sound_checkpoint(path)
            self.open.append(checkpoint)
            began, unfinished = time.monotonic(), (checkpoint.last() or 0) < choice.rounds
            with session.shown(f"{self.title}: {choice.algorithm.name}", choice.rounds) as step:
                session.executor.meet(population)
                outcome = train(
                    choice.algorithm.made,
                    roster(population),
                    system.model.build(population),
                    rounds=choice.rounds,
                    cohort=choice.cohort,
                    keep_every=choice.keep_every,
                    seed=self.seed if choice.seed is None else choice.seed,
                    position=len(before),
                    known=Known(before),
                    executor=session.executor,
                    checkpoint=checkpoint,
                    progress=step,
                )
        session.store.add_training(session.run, label, self.seed, checkpoint.metrics())
        if unfinished:  # what was in the cache took no time
            spent = session.store.notes(session.run, "training seconds").get((label, self.seed), 0.0)
            self._note(label, "training seconds", spent + time.monotonic() - began)
        self.done[path] = outcome
        return outcome

    def people(self, scenario: Chosen | None) -> Population:
        """Whose work a phase is."""
        if scenario is None:
            return self.population
        for one, built in self.others:
            if one == scenario:
                return built
        own, other = self.population, scenario.made.build(self.seed)
        if (other.classes, other.shape) != (own.classes, own.shape):
            raise ConfigError(
                [
                    f"the scenario of a phase: expected images as the experiment has them, {own.classes} classes and "
                    f"shape {own.shape}; {scenario.name} has {other.classes} classes and shape {other.shape}"
                ]
            )
        self.others.append((scenario, other))
        return self.others[-1][1]

    def test(self, system: System, known: Known, phase: str = TEST) -> float:
        """Test a system, or score a candidate; its accuracy, from the store if it was measured before, by any run."""
        session, unit = self.session, Unit(self.session.run, system.name, self.seed, phase)
        if session.store.is_complete(unit):
            return session.store.accuracy(unit)
        what = system.name if phase == TEST else f"{system.name}, {phase}"
        recipe = self._recipe(system, known, phase)
        taken = session.store.take(unit, recipe)
        if taken is not None:
            session.listener.say(f"{self.title}: {what} as measured by {taken}")
            return session.store.accuracy(unit)
        session.store.begin(unit, recipe)
        population = self.tested if _is_test(phase) else self.population
        streams = list(population.streams) if _is_test(phase) else population.validation_streams()
        if _is_test(phase) and system.test.validation:
            streams += _validation(population)
        members = roster(population, system.test.batch_size, streams)
        total = sum(member.slots or 0 for member in members.members)
        with session.shown(f"{self.title}: testing {what}", total) as step:
            session.executor.meet(population)
            for commit in evaluate(
                system.adapter.made,
                members,
                system.model.build(self.population),
                known,
                aggregator=system.aggregator.made if system.aggregator else None,
                test=system.test,
                seed=self.seed,
                executor=session.executor,
                resume=self._resumed(unit),
                commit_seconds=float(os.environ.get("ACCLIMATE_COMMIT_SECONDS", "10")),
                progress=step,
            ):
                session.store.commit(unit, with_classes(commit, population, streams, system.test.batch_size))
        session.store.complete(unit, recipe)
        return session.store.accuracy(unit)

    def _resumed(self, unit: Unit) -> Resume:
        """Where a test stands; one whose states were damaged begins again."""
        try:
            return self.session.store.resume(unit)
        except DamagedFile as error:
            warnings.warn(f"{unit.system}, seed {unit.seed}: {error}; it is tested again", Damage, stacklevel=2)
            self.session.store.forget(unit)
            return Resume()

    def _recipe(self, system: System, known: Known, phase: str) -> str:
        """Stands for everything that decides a test, the source code included, and for nothing else.

        So a test is found again by whatever run has it: after a system or a seed was added, a method got an option.
        """
        parts = {"adapter": system.adapter, "aggregator": system.aggregator}
        methods = {name: chosen for name, chosen in parts.items() if chosen}
        content = {
            "scenarios": [scenario.differs for scenario in self.session.scenarios],
            "model": system.model.differs(),
            "test": system.differs()["test"],
            "data": (self.tested if _is_test(phase) else self.population).digest,
            "validation": not _is_test(phase),
            "phases": [(o.checkpoint.path.parts[-2:], o.round) for o in known.outcomes if o.checkpoint.path],
            **{name: chosen.differs for name, chosen in methods.items()},
            "seed": self.seed,
            "torch": versions()["torch"],
        }
        return digest_of([content, source_digest(self.session.modules(system))])

    def _note(self, system: str, name: str, value: Any) -> None:
        self.session.store.note(self.session.run, system, self.seed, name, value)

    def _note_knowledge(self, system: System, known: Known) -> None:
        """How much a client is sent, what a report can draw or name (ATP's rates, a block), and whose code it is of."""
        needs = system.adapter.made.needs
        sent = known.sent(self.tested.streams[0].client, ("model", *needs))
        self._note(system.name, "knowledge_bytes", trees.nbytes(sent))
        self._note(system.name, "code", source_digest(self.session.code(system)))
        for name, value in known.of(None).items():
            if name in needs and trees.nbytes(value) <= MOST_NOTED_BYTES:
                self._note(system.name, f"knowledge {name}", value)

    def _need_validation(self, system: System, what: str) -> None:
        if not self.population.validation_streams():
            raise NothingSelected(
                f"system '{system.name}': {what} scores on source clients' validation data, and this scenario has none;"
                " give its source clients a validation part, or leave the choice to yourself"
            )


def data_of(experiment: Experiment, seed: int) -> dict[str, str]:
    """The data sets of an experiment and digests of their content."""
    phases = [phase.scenario for system in experiment.systems for phase in system.phases]
    chosen = [one.made for one in (experiment.scenario, experiment.test_scenario, *phases) if one]
    used = [scenario.plan(scenario.seed_of(seed)).dataset for scenario in chosen]
    return {dataset.name: dataset.digest for dataset in used}


def _is_test(phase: str) -> bool:
    """Whether a unit is a test, and no choice among candidates on validation data."""
    return phase in (TEST, SELECTED, UNADAPTED) or phase.startswith(ROUND)


def _phase_label(system: System, place: int, path: Path) -> str:
    """What stands for a phase in the store."""
    return f"{place}:{system.phases[place].algorithm.name}#{path.parent.name[:6]}"


def _validation(population: Population) -> list[Stream]:
    if not (streams := population.validation_streams()):
        raise ConfigError(["test.validation: no source client of this scenario has a validation part; leave it out"])
    return streams


def _label(candidate: Chosen, system: System) -> str:
    """What distinguishes a candidate from the others."""
    plain = [flat(one.plain) for one in system.tune]
    varied = [key for key in flat(candidate.plain) if len({repr(one.get(key)) for one in plain}) > 1]
    return " ".join(f"{key}={flat(candidate.plain)[key]}" for key in varied) or "as given"
