"""The Python way: read an experiment, run it, look at its table, take a system out."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acclimate.contracts import Knowledge
from acclimate.device import bundle
from acclimate.device.wrapping import method_of
from acclimate.engine.executor import Executor, Processes, Serial, cores
from acclimate.engine.known import Known
from acclimate.engine.live import Extending
from acclimate.engine.memory import keep_freed_memory
from acclimate.errors import AcclimateError, ConfigError, MissingKnowledge, nearest
from acclimate.experiment import reader
from acclimate.experiment.baselines import with_baselines
from acclimate.experiment.cache import trained
from acclimate.experiment.catalog import ADAPTERS
from acclimate.experiment.choice import choose
from acclimate.experiment.experiment import Experiment, ModelChoice, System
from acclimate.experiment.listener import Listener
from acclimate.experiment.outside import Listed, Outside
from acclimate.experiment.run import STORE, is_finished, tell_if_changed
from acclimate.experiment.run import run as run_experiment
from acclimate.experiment.versions import versions
from acclimate.flower.places import MARK, OnNodes
from acclimate.report.table import Table, table
from acclimate.scenarios.population import Population
from acclimate.store.database import Store
from acclimate.store.records import Entry
from acclimate.store.run import Run as StoredRun

RUNS = Path("runs")


def read(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Experiment:
    """An experiment from a YAML file, a shipped name or plain data, with overrides such as `["seeds=[0]"]`.

    Plug-ins that it names are imported; files are looked for beside the experiment's, or in the current folder.
    """
    if isinstance(source, Mapping):
        return reader.parse(dict(source), overrides, outside=Outside())
    return reader.read(source, overrides)


def run(
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    runs: str | Path = RUNS,
    workers: int | None = None,
    reuse: bool = False,
    progress: bool | Listener = True,
) -> Run:
    """Run an experiment, or what is left of it; the same as `acclimate run`.

    `workers`: processes, by default one per core. `progress` prints how far it is, or tells a listener of your own.
    """
    chosen = experiment if isinstance(experiment, Experiment) else read(experiment)
    folder = Path(runs)
    if not is_finished(chosen, folder):
        with _listening(progress) as listener, _working(workers or cores()) as executor:
            run_experiment(chosen, folder, executor=executor, reuse=reuse, listener=listener)
    else:
        tell_if_changed(chosen, folder)
    return Run(chosen.run_name, chosen, folder)


@dataclass(frozen=True)
class Run:
    """An experiment that was run (or is running), in a folder of runs."""

    name: str
    experiment: Experiment
    runs: Path = RUNS

    @staticmethod
    def open(name: str, runs: str | Path = RUNS, plugins: Iterable[Any] = ()) -> Run:
        """A run by its name; of code outside the package only what you list is imported."""
        with _store(Path(runs)) as store:
            found = {run.name: run.experiment for run in store.runs()}
        if name not in found:
            raise AcclimateError(f"no run '{name}' in {runs}; {nearest(name, found)}")
        experiment = _restored(found[name], bundle.listed(plugins))
        folder = Path(runs) / name
        return Run(name, OnNodes.restored(experiment, folder) if (folder / MARK).is_file() else experiment, Path(runs))

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.runs / self.name

    def measured(self) -> Table:
        """What the command line prints, as an object."""
        with self._stored() as run:
            return table(run)

    def table(self) -> list[dict[str, str | int | float | bool]]:
        """A record for each system, stream and seed; `pandas.DataFrame(run.table())` takes them as they are."""
        with self._stored() as run:
            return run.table()

    def system(self, name: str) -> RunSystem:
        """One of its systems, by the name that it has in the table."""
        systems = {system.name: system for system in with_baselines(self.experiment.systems)[0]}
        entries = {entry.title: entry for name in systems for entry in (Entry(name), Entry(name, selected=True))}
        if name not in entries:
            raise AcclimateError(f"run '{self.name}' has no system '{name}'; {nearest(name, systems)}")
        return RunSystem(self, systems[entries[name].system], entries[name].selected)

    def note(self, name: str, system: str, seed: int) -> Any:
        """Something that was noted about a system and a seed; None if nothing was."""
        with self._stored() as run:
            return run.noted(name).get((system, seed))

    @contextmanager
    def _stored(self) -> Iterator[StoredRun]:
        with _store(self.runs) as store:
            found = store.find(self.name)
            if found is None:
                raise AcclimateError(f"run '{self.name}' is no longer in {self.runs}")
            yield found


@dataclass(frozen=True)
class RunSystem:
    """A system of a run."""

    run: Run
    system: System
    selected: bool = False  # the round that was best on validation data

    def export(
        self, folder: str | Path, *, client: int | None = None, seed: int | None = None, onnx: bool = False
    ) -> Path:
        """Write a bundle: model, knowledge and manifest, for `ac.load` and `acclimate adapt`.

        `client`: whose, where they know different things; `seed`: by default the first. `onnx`: also as ONNX, for
        methods without a gradient at test time.
        """
        experiment = self.run.experiment
        seed = experiment.seeds[0] if seed is None else seed
        if seed not in experiment.seeds:
            raise ConfigError([f"seed: the run has {', '.join(map(str, experiment.seeds))}; found {seed}"], "export")
        system, scenario = self._chosen(seed), experiment.scenario.made
        population, _ = experiment.populations(seed)
        with trained(system, population, seed, self._round(seed)) as known:
            knowledge = _knowledge(system, known, client)
            tensors = knowledge.pop("model")
            problem = _problem(system.model, system, population, client, tensors)
        names = scenario.plan(scenario.seed_of(seed)).dataset.names.get("label")
        contents = bundle.Contents(
            method_of(system.adapter, {name: knowledge[name] for name in system.adapter.made.needs}),
            tensors,
            names or [str(label) for label in range(population.classes)],
            problem,
            system.test.batch_size,
            {"run": self.run.name, "system": system.name, "seed": seed, "client": client},
        )
        written = bundle.write(Path(folder), contents, versions())
        if onnx:
            from acclimate.device.onnx import write

            own = [system.adapter.target, system.model.chosen.target]
            write(bundle.load(written, plugins=own), written, population.shape)
        return written

    def _chosen(self, seed: int) -> System:
        """With the adapter that was tuned, if one was."""
        tuned = self.run.note("tuned", self.system.name, seed)
        if tuned is None:
            return self.system
        allowed = {self.system.adapter.target.__qualname__: self.system.adapter.target}
        adapter, problems = choose(tuned["chosen"], "adapter", ADAPTERS, outside=Listed(allowed=allowed))
        if adapter is None:
            raise ConfigError(problems, "export")
        return replace(self.system, adapter=adapter)

    def _round(self, seed: int) -> int | None:
        if not self.selected:
            return None
        noted = self.run.note("selected", self.system.name, seed)
        if noted is None:
            raise AcclimateError(f"no round of '{self.system.name}' was selected for seed {seed}; add select to it")
        return int(noted["round"])


def _knowledge(system: System, known: Known, client: int | None) -> Knowledge:
    """The model and what the adapter needs, for everybody or for one client."""
    wanted = ("model", *system.adapter.made.needs)
    found, own = known.of(client), [name for name in wanted if name in known.personal]
    if client is None and own:  # an earlier phase may have exported it to everybody
        raise MissingKnowledge(
            f"'{system.name}': {', '.join(own)} differs from client to client; say whose: --client K (client=K)"
        )
    if client is not None and own and known.keeps_elsewhere(client):
        raise MissingKnowledge(
            f"'{system.name}': {', '.join(own)} of client {client} is on its own machine and does not leave it; "
            "what the client predicted is there too"
        )
    missing = [name for name in wanted if name not in found]
    if missing:
        raise MissingKnowledge(
            f"'{system.name}': client {client} has no {', '.join(missing)}, since it never took part in training; "
            "take one that did"
        )
    return {name: found[name] for name in wanted}


def _problem(
    model: ModelChoice, system: System, population: Population, client: int | None, tensors: Mapping[str, Any]
) -> bundle.Problem:
    build = model.build(population)
    plain = model.variants[build.variant(client)].plain if model.variants else model.chosen.plain
    phases = [phase.algorithm for phase in system.phases]
    while phases and Extending(build, [p.made for p in phases])(client).state_dict().keys() != tensors.keys():
        phases.pop()  # a model may lack what later phases have added
    extending = []
    for i, phase in enumerate(phases):
        before, after = (Extending(build, [p.made for p in phases[:k]])(client).state_dict().keys() for k in (i, i + 1))
        extending += [phase.plain] if before != after else []
    return bundle.Problem(plain, population.shape, population.mean, population.std, extending)


def _restored(plain: Mapping[str, Any], allowed: dict[str, Any]) -> Experiment:
    """The experiment of a run, from what the store has of it; candidates of `tune` are noted with the choice."""
    raw: dict[str, Any] = copy.deepcopy(dict(plain))
    for part in (raw, *raw["systems"]):
        if not part.get("model", {}).get("variants", True):
            del part["model"]["variants"]
        part.pop("tune", None)
    return reader.parse(raw, source="the run", outside=Listed(allowed=allowed))


@contextmanager
def _store(runs: Path) -> Iterator[Store]:
    if not (runs / STORE).exists():
        raise AcclimateError(f"no runs in {runs}; run an experiment first")
    store = Store(runs / STORE)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _working(workers: int) -> Iterator[Executor]:
    if workers == 1:
        keep_freed_memory()
        yield Serial()
        return
    with Processes(workers) as executor:
        yield executor


@contextmanager
def _listening(progress: bool | Listener) -> Iterator[Listener | None]:
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield None
    else:
        from rich.console import Console

        from acclimate.experiment.progress import Bars, Lines

        console = Console(stderr=True)
        with (Bars if console.is_terminal else Lines)(console) as listener:
            yield listener
