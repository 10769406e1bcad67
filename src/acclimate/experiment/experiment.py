"""An experiment as frozen dataclasses, in two plain forms.

`plain()` has every default: for people, for the run's folder, for reports. `differs()` has only what differs from the
defaults, and the revision of every method that has one: for digests, so that what was measured and trained is still
found when a method gets another option, and is not when a default changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from acclimate.engine.evaluate import Test
from acclimate.experiment.choice import Chosen
from acclimate.experiment.differences import differing, revision_of
from acclimate.experiment.outside import ByName
from acclimate.experiment.unseen import unseen
from acclimate.models.build import Build
from acclimate.options import Count, Seed
from acclimate.plugins import is_plugin
from acclimate.scenarios.population import Population


@dataclass(frozen=True)
class ModelChoice:
    """A model; where devices differ, client k has variant k mod their number."""

    chosen: Chosen
    variants: tuple[Chosen, ...] = ()

    @property
    def name(self) -> str:
        return self.chosen.name

    def build(self, population: Population) -> Build:
        """How to make it for a problem."""
        p = population
        variants = tuple(variant.options for variant in self.variants)
        make = ByName(self.chosen.target) if is_plugin(self.name) else self.chosen.target
        return Build(make, p.classes, p.shape, p.mean, p.std, self.chosen.options, variants)

    def plain(self) -> dict[str, Any]:
        variants = [variant.plain for variant in self.variants]
        return {**self.chosen.plain, **({"variants": variants} if variants else {})}

    def differs(self) -> dict[str, Any]:
        variants = [variant.differs for variant in self.variants]
        return {**self.chosen.differs, **({"variants": variants} if variants else {})}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """For how long a phase runs, and with whom."""

    rounds: Count
    cohort: Count | Literal["all"] = "all"
    keep_every: Count | None = None
    seed: Seed | None = None  # instead of the experiment's: one model for all its seeds


@dataclass(frozen=True)
class PhaseChoice(Schedule):
    """A phase with its schedule; with a scenario of its own, it runs on other clients than the experiment's."""

    algorithm: Chosen
    scenario: Chosen | None = None

    @property
    def exports(self) -> tuple[str, ...]:
        """What it makes known."""
        return tuple(self.algorithm.made.exports)

    @property
    def trains(self) -> bool:
        """Whether it makes a model (else it is a calibration)."""
        return "model" in self.exports

    def plain(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "cohort": self.cohort,
            "keep_every": self.keep_every,
            **({} if self.seed is None else {"seed": self.seed}),
            **({} if self.scenario is None else {"scenario": self.scenario.plain}),
            **self.algorithm.plain,
        }

    def differs(self) -> dict[str, Any]:
        """Without its scenario, which for what it trains is no more than its clients."""
        schedule = {f.name: value for f in fields(Schedule) if (value := getattr(self, f.name)) != f.default}
        return {**revision_of(Schedule), **schedule, "algorithm": self.algorithm.differs}


@dataclass(frozen=True)
class System:
    """Phases + adapter + aggregator: what gets compared; with the model and the test it has."""

    name: str
    phases: tuple[PhaseChoice, ...]  # shared ones first
    adapter: Chosen
    model: ModelChoice
    test: Test
    aggregator: Chosen | None = None
    tune: tuple[Chosen, ...] = ()  # candidates for the adapter
    select: bool = False

    @property
    def training(self) -> tuple[PhaseChoice, ...]:
        """The phases that make its model."""
        return tuple(phase for phase in self.phases if phase.trains and phase.scenario is None)

    @property
    def order(self) -> list[int]:
        """Places of the phases, those of other scenarios first: the experiment's own have the last word."""
        return sorted(range(len(self.phases)), key=lambda place: self.phases[place].scenario is None)

    def before(self, place: int) -> list[int]:
        """Places of the phases that one goes on from: earlier ones of the same scenario, and no others."""
        return [i for i in range(place) if self.phases[i].scenario == self.phases[place].scenario]

    def plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "phases": [phase.plain() for phase in self.phases],
            "adapter": self.adapter.plain,
            "aggregator": self.aggregator.plain if self.aggregator else None,
            "tune": [candidate.plain for candidate in self.tune],
            "select": "best-validation" if self.select else None,
            "model": self.model.plain(),
            "test": vars(self.test),
        }

    def differs(self) -> dict[str, Any]:
        chosen = {
            "aggregator": self.aggregator and self.aggregator.differs,
            "tune": [candidate.differs for candidate in self.tune],
            "select": self.select,
        }
        return {
            "name": self.name,
            "phases": [
                {**phase.differs(), **({"scenario": phase.scenario.differs} if phase.scenario else {})}
                for phase in self.phases
            ],
            "adapter": self.adapter.differs,
            "model": self.model.differs(),
            "test": _test_differs(self.test),
            **{key: value for key, value in chosen.items() if value},
        }

    def own(self, experiment: Experiment) -> list[str]:
        """In words, what of its phases, test and model is not the experiment's."""
        texts, model, theirs = [], self.model.plain(), experiment.model.plain()
        for phase in self.phases:
            if phase.scenario:
                which = _settings({k: v for k, v in phase.scenario.differs.items() if k != "name"})
                texts.append(f"phase {phase.algorithm.name} in scenario {phase.scenario.name} {which}".strip())
        if test := {key: value for key, value in vars(self.test).items() if value != vars(experiment.test)[key]}:
            told = " (told the boundaries of shifts)" if test.get("reset") == "shift" else ""
            texts.append(f"own test: {_settings(test)}{told}")
        if model != theirs:
            if self.model.name == experiment.model.name:
                differs = {key: value for key, value in model.items() if value != theirs[key]}
            else:
                differs = {key: value for key, value in model.items() if key in self.model.differs() and key != "name"}
            texts.append(f"own model: {self.model.name} {_settings(differs)}".strip())
        return texts


@dataclass(frozen=True)
class Experiment:
    """Scenario x model x systems x seeds."""

    name: str
    scenario: Chosen
    model: ModelChoice
    systems: tuple[System, ...]
    test: Test
    test_scenario: Chosen | None
    seeds: tuple[int, ...]
    # Name as written → file that was imported for it.
    imports: Mapping[str, str] = field(default_factory=dict, compare=False)

    def plain(self) -> dict[str, Any]:
        """Everything that decides the results, as plain data; a system's model and test only where they are its own."""
        common = {"model": self.model.plain(), "test": vars(self.test)}
        systems = [system.plain() for system in self.systems]
        return {
            "name": self.name,
            "scenario": self.scenario.plain,
            "model": common["model"],
            "systems": [{k: v for k, v in system.items() if k not in common or v != common[k]} for system in systems],
            "test": {**common["test"], "scenario": self.test_scenario.plain if self.test_scenario else None},
            "seeds": list(self.seeds),
        }

    def differs(self) -> dict[str, Any]:
        """Everything that decides the results, without defaults."""
        return {
            "name": self.name,
            "scenario": self.scenario.differs,
            "model": self.model.differs(),
            "systems": [system.differs() for system in self.systems],
            "test": _test_differs(self.test),
            "test scenario": self.test_scenario and self.test_scenario.differs,
            "seeds": list(self.seeds),
        }

    def populations(self, seed: int) -> tuple[Population, Population]:
        """Who is trained on and who is tested, in one seed."""
        population: Population = self.scenario.made.build(seed)
        if self.test_scenario is None:
            return population, population
        return population, unseen(self.test_scenario.made, self.scenario.made, seed)

    @property
    def run_name(self) -> str:
        """The name and a digest of everything that decides the results: a run is what its table shows."""
        return f"{self.name}-{digest_of(self.differs())}"


def _test_differs(test: Test) -> dict[str, Any]:
    """What of a test differs from the defaults."""
    return {**revision_of(Test), **differing(test)}


def digest_of(plain: Any) -> str:
    """Ten hexadecimal digits that stand for plain data."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]


def _settings(options: Mapping[str, Any]) -> str:
    """As overrides are written."""
    return ", ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in options.items())
