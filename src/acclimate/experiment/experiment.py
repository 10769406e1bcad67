"""An experiment as frozen dataclasses, with the digest that names its run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from acclimate.engine.evaluate import Test


@dataclass(frozen=True)
class Chosen:
    """Something of the catalog with its options."""

    name: str
    target: Any  # the class
    options: Mapping[str, Any]
    plain: Mapping[str, Any]  # name and all options, defaults included, as plain data

    def make(self, *args: Any) -> Any:
        """An instance."""
        return self.target(*args, **self.options)


@dataclass(frozen=True)
class PhaseChoice:
    """A phase and for how long, with whom."""

    algorithm: Chosen
    rounds: int
    cohort: int | Literal["all"]
    keep_every: int | None
    seed: int | None = None  # instead of the experiment's: one model for all its seeds

    @property
    def trains(self) -> bool:
        """Whether it makes a model (else it is a calibration)."""
        return "model" in self.algorithm.make().exports

    def plain(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "cohort": self.cohort,
            "keep_every": self.keep_every,
            **({} if self.seed is None else {"seed": self.seed}),
            **self.algorithm.plain,
        }


@dataclass(frozen=True)
class System:
    """Phases + adapter + aggregator: what gets compared."""

    name: str
    phases: tuple[PhaseChoice, ...]  # shared ones first
    adapter: Chosen
    aggregator: Chosen | None = None
    tune: tuple[Chosen, ...] = ()  # candidates for the adapter
    select: bool = False

    def training(self) -> list[dict[str, Any]]:
        """The phases that make its model, as plain data."""
        return [phase.plain() for phase in self.phases if phase.trains]

    def plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "phases": [phase.plain() for phase in self.phases],
            "adapter": self.adapter.plain,
            "aggregator": self.aggregator.plain if self.aggregator else None,
            "tune": [candidate.plain for candidate in self.tune],
            "select": "best-validation" if self.select else None,
        }


@dataclass(frozen=True)
class Experiment:
    """Scenario x model x systems x seeds."""

    name: str
    scenario: Chosen
    model: Chosen
    variants: tuple[Mapping[str, Any], ...]  # options of the model by device, client k has number k mod their length
    systems: tuple[System, ...]
    test: Test
    test_scenario: Chosen | None
    seeds: tuple[int, ...]

    def plain(self) -> dict[str, Any]:
        """Everything that decides the results, as plain data."""
        return {
            "name": self.name,
            "scenario": self.scenario.plain,
            "model": {**self.model.plain, "variants": [dict(variant) for variant in self.variants]},
            "systems": [system.plain() for system in self.systems],
            "test": {**vars(self.test), "scenario": self.test_scenario.plain if self.test_scenario else None},
            "seeds": list(self.seeds),
        }

    @property
    def run_name(self) -> str:
        """The name and a digest of everything that decides the results."""
        return f"{self.name}-{digest_of(self.plain())}"


def digest_of(plain: Any) -> str:
    """Ten hexadecimal digits that stand for plain data."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]
