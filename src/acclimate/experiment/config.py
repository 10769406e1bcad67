"""Reading an experiment: YAML and overrides in, frozen dataclasses out, or every problem at once."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from acclimate.engine.evaluate import Test
from acclimate.errors import ConfigError, nearest
from acclimate.experiment.catalog import (
    ADAPTERS,
    AGGREGATORS,
    MODELS,
    PHASES,
    SCENARIOS,
    SYSTEMS,
    Entry,
    shipped,
)
from acclimate.experiment.schema import check
from acclimate.options import Count, Whole


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
        return "model" in self.algorithm.target.exports

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
            # Without `validation` where it is off: runs from before there was any keep their names.
            "test": {
                **{key: value for key, value in vars(self.test).items() if value is not False},
                "scenario": self.test_scenario.plain if self.test_scenario else None,
            },
            "seeds": list(self.seeds),
        }

    @property
    def run_name(self) -> str:
        """The name and a digest of everything that decides the results."""
        return f"{self.name}-{digest_of(self.plain())}"


def digest_of(plain: Any) -> str:
    """Ten hexadecimal digits that stand for plain data."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]


def read(source: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a YAML file (or shipped under a name), with dotted overrides such as `seeds=[0]`."""
    path = shipped().get(str(source), Path(source))
    if not path.is_file():
        hint = f"no such file, and no shipped experiment of that name; {nearest(source, shipped())}"
        raise ConfigError([hint], str(source))
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"not readable as YAML: {error}"], str(source)) from error
    return parse(raw, overrides, str(source))


def parse(raw: Any, overrides: Sequence[str] = (), source: str = "the experiment") -> Experiment:
    """The experiment in plain data."""
    reader = _Reader()
    experiment = None
    if isinstance(raw, dict):
        for override in overrides:
            reader.override(raw, override)
        experiment = reader.experiment(raw)
    else:
        reader.problems.append(f"expected a mapping with the keys {', '.join(_KEYS)}; found {type(raw).__name__}")
    if reader.problems or experiment is None:
        raise ConfigError(reader.problems, source)
    return experiment


_KEYS = ("name", "scenario", "model", "phases", "systems", "test", "seeds")
_SYSTEM_KEYS = ("name", "phases", "adapter", "aggregator", "tune", "select")


def _phase(
    rounds: Count, cohort: Count | Literal["all"] = "all", keep_every: Count | None = None, seed: Whole | None = None
) -> None:
    """The keys every phase has, for the schema."""


def _seeds(seeds: list[int]) -> None:
    """For the schema."""


@dataclass
class _Reader:
    problems: list[str] = field(default_factory=list)

    def override(self, raw: dict[str, Any], text: str) -> None:
        """Set one key; a place in a list is its number or the name of the thing there."""
        path, equals, value = text.partition("=")
        if not equals:
            self.problems.append(f"override '{text}': expected KEY=VALUE, such as seeds=[0,1] or phases.0.rounds=50")
            return
        *parents, last = path.split(".")
        place: Any = raw
        for depth, part in enumerate([*parents, last]):
            key = _place(place, part)
            if key is None:
                self.problems.append(
                    f"override '{text}': there is no '{part}' in '{'.'.join(path.split('.')[:depth])}'; "
                    f"{nearest(part, _places(place))}"
                )
                return
            if depth == len(parents):
                place[key] = yaml.safe_load(value)
            else:
                if isinstance(place, dict) and place.get(key) is None:
                    place[key] = {}
                elif isinstance(place[key], str):
                    place[key] = {"name": place[key]}  # a bare name may get options
                place = place[key]

    def experiment(self, raw: dict[str, Any]) -> Experiment | None:
        self._unknown(raw, _KEYS, "")
        for key in ("name", "scenario", "model", "systems"):
            if key not in raw:
                self.problems.append(f"{key}: required, but not given")
        name = raw.get("name", "unnamed")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
            self.problems.append(f"name: expected letters, digits and . _ + - only; found {name!r}")
        scenario = self.chosen(raw.get("scenario", "twofold"), "scenario", SCENARIOS)
        model = self.chosen(raw.get("model", "mlp"), "model", MODELS, ("variants",))
        variants = self.variants(raw.get("model", "mlp"))
        test, test_scenario = self.test(raw.get("test") or {})
        seeds = self.seeds(raw.get("seeds", [0]))
        shared = [self.phase(item, f"phases.{i}") for i, item in self._list(raw, "phases", "")]
        systems = [self.system(item, f"systems.{i}", shared) for i, item in self._list(raw, "systems", "")]
        if "systems" in raw and not systems and not self.problems:
            self.problems.append("systems: expected at least one, such as [none, tent]")
        names = [system.name for system in systems if system]
        self.problems += [
            f"systems: two are called '{n}'; give one another name" for n in {n for n in names if names.count(n) > 1}
        ]
        if self.problems or scenario is None or model is None:
            return None
        chosen = tuple(system for system in systems if system)
        return Experiment(str(name), scenario, model, variants, chosen, test, test_scenario, seeds)

    def chosen(self, raw: Any, path: str, table: Mapping[str, Entry], reserved: Sequence[str] = ()) -> Chosen | None:
        """Something of a catalog table: a bare name, or a mapping with its name and options."""
        given = {"name": raw} if isinstance(raw, str) else raw
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            self.problems.append(f"{path}: expected a name, or a mapping with a name and options; found {raw!r}")
            return None
        name = given["name"]
        if name not in table:
            self.problems.append(f"{path}.name: unknown '{name}'; {nearest(name, table)}")
            return None
        target = table[name].load()
        options = {key: value for key, value in given.items() if key != "name" and key not in reserved}
        values, plain, problems = check(target, options, path, ("name", *reserved))
        self.problems += problems
        return None if problems else Chosen(name, target, values, {"name": name, **plain})

    def variants(self, raw: Any) -> tuple[Mapping[str, Any], ...]:
        """Devices that differ: lists of options of the model, such as variants: [{width: small}, {width: big}]."""
        listed = raw.get("variants") if isinstance(raw, dict) else None
        if listed is None:
            return ()
        if not isinstance(listed, list) or not listed or not all(isinstance(item, dict) for item in listed):
            self.problems.append(f"model.variants: expected a list of options; found {listed!r}")
            return ()
        base = {key: value for key, value in raw.items() if key != "variants"}
        made = [self.chosen({**base, **item}, f"model.variants.{i}", MODELS) for i, item in enumerate(listed)]
        return tuple({key: m.options[key] for key in item} for m, item in zip(made, listed, strict=True) if m)

    def phase(self, raw: Any, path: str) -> PhaseChoice | None:
        given = {"name": raw} if isinstance(raw, str) else raw
        common = ("rounds", "cohort", "keep_every", "seed")
        algorithm = self.chosen(given, path, PHASES, common)
        if not isinstance(given, dict):
            return None
        keys, _, problems = check(_phase, {key: given[key] for key in common if key in given}, path)
        self.problems += problems
        return PhaseChoice(algorithm, **keys) if algorithm and not problems else None

    def system(self, raw: Any, path: str, shared: Sequence[PhaseChoice | None]) -> System | None:
        given = self._named_system(raw, path)
        if given is None:
            return None
        self._unknown(given, _SYSTEM_KEYS, path)
        own = [self.phase(item, f"{path}.phases.{i}") for i, item in self._list(given, "phases", path)]
        adapter = self.chosen(given.get("adapter", "none"), f"{path}.adapter", ADAPTERS)
        aggregator = None
        if given.get("aggregator") is not None:
            aggregator = self.chosen(given["aggregator"], f"{path}.aggregator", AGGREGATORS)
        if given.get("select") not in (None, "best-validation"):
            self.problems.append(f"{path}.select: expected best-validation; found {given['select']!r}")
        phases = tuple(phase for phase in [*shared, *own] if phase is not None)
        if adapter is None or None in own or None in shared:
            return None
        self._check_needs(adapter, phases, path)
        if given.get("select") and (not phases or phases[-1].keep_every is None):
            self.problems.append(f"{path}.select: nothing to select from; give the last phase a keep_every")
        tune = self.tune(given.get("tune"), adapter, path)
        return System(str(given["name"]), phases, adapter, aggregator, tune, bool(given.get("select")))

    def tune(self, raw: Any, adapter: Chosen, path: str) -> tuple[Chosen, ...]:
        """The candidates of a grid: `true` takes the catalog's, a mapping gives lists of values."""
        if raw in (None, False):
            return ()
        grid = ADAPTERS[adapter.name].grid if raw is True else raw
        if not isinstance(grid, Mapping) or not grid or not all(isinstance(v, list) and v for v in grid.values()):
            self.problems.append(
                f"{path}.tune: expected true or lists of values, such as {{lr: [0.001, 0.01]}}; found {raw!r}"
            )
            return ()
        own = {key: value for key, value in adapter.plain.items() if key != "name"}
        candidates = []
        for values in itertools.product(*grid.values()):
            tried = dict(zip(grid, values, strict=True))
            candidate = self.chosen({"name": adapter.name, **own, **tried}, f"{path}.tune", ADAPTERS)
            if candidate is None:
                return ()
            candidates.append(candidate)
        return tuple(candidates)

    def test(self, raw: Any) -> tuple[Test, Chosen | None]:
        if not isinstance(raw, dict):
            self.problems.append(f"test: expected a mapping; found {raw!r}")
            return Test(), None
        scenario = None
        if raw.get("scenario") is not None:
            scenario = self.chosen(raw["scenario"], "test.scenario", SCENARIOS)
        values, _, problems = check(Test, {key: value for key, value in raw.items() if key != "scenario"}, "test")
        self.problems += problems
        if scenario and values.get("validation"):
            self.problems.append(
                "test.validation: expected no test.scenario beside it, whose population is another one"
            )
        return (Test() if problems else Test(**values)), scenario

    def seeds(self, raw: Any) -> tuple[int, ...]:
        values, _, problems = check(_seeds, {"seeds": raw}, "")
        self.problems += problems
        found = tuple(values.get("seeds", ()))
        if not problems and (not found or len(set(found)) < len(found) or min(found) < 0):
            self.problems.append(f"seeds: expected different numbers of at least 0, such as [0, 1, 2]; found {raw!r}")
        return found

    def _named_system(self, raw: Any, path: str) -> dict[str, Any] | None:
        if isinstance(raw, dict) and isinstance(raw.get("name"), str):
            # What is given replaces the system's own; its adapter keeps its name: {name: tent, adapter: {lr: 0.01}}.
            name = raw["name"]
            known = SYSTEMS.get(name) or ({"adapter": name} if name in ADAPTERS else {})
            if not known and "adapter" not in raw and "phases" not in raw:
                self.problems.append(f"{path}.adapter: '{name}' is no known system, so it needs an adapter")
                return None
            merged = {**known, **raw}
            if isinstance(merged.get("adapter"), dict) and "adapter" in known:
                own = known["adapter"]
                merged["adapter"] = {**(own if isinstance(own, dict) else {"name": own}), **merged["adapter"]}
            return merged
        if not isinstance(raw, str):
            self.problems.append(f"{path}: expected the name of a system, or a mapping with a name; found {raw!r}")
            return None
        if raw in SYSTEMS:
            return {"name": raw, **SYSTEMS[raw]}
        if raw in ADAPTERS:
            return {"name": raw, "adapter": raw}
        aggregator, plus, adapter = raw.partition("+")
        if plus and aggregator in AGGREGATORS and adapter in {*SYSTEMS, *ADAPTERS}:
            return {"name": raw, **SYSTEMS.get(adapter, {"adapter": adapter}), "aggregator": aggregator}
        possible = {*SYSTEMS, *ADAPTERS}
        self.problems.append(f"{path}: unknown system '{raw}'; {nearest(raw, possible)} (or aggregator+adapter)")
        return None

    def _check_needs(self, adapter: Chosen, phases: Sequence[PhaseChoice], path: str) -> None:
        exported = {name for phase in phases for name in phase.algorithm.target.exports}
        for name in ("model", *adapter.target.needs):
            if name not in exported:
                by = [phase for phase, entry in PHASES.items() if name in entry.load().exports]
                self.problems.append(
                    f"{path}: adapter '{adapter.name}' needs '{name}', exported by no phase; add: {', '.join(by)}"
                )

    def _unknown(self, raw: Mapping[str, Any], keys: Sequence[str], path: str) -> None:
        prefix = f"{path}." if path else ""
        self.problems += [f"{prefix}{key}: unknown key; {nearest(key, keys)}" for key in raw if key not in keys]

    def _list(self, raw: Mapping[str, Any], key: str, path: str) -> list[tuple[int, Any]]:
        items = raw.get(key) or []
        if isinstance(items, list):
            return list(enumerate(items))
        self.problems.append(f"{path + '.' if path else ''}{key}: expected a list; found {items!r}")
        return []


def _place(container: Any, part: str) -> Any:
    """The key or position of `part` in a mapping or list; None if there is none."""
    if isinstance(container, dict):
        return part
    if isinstance(container, list):
        if part.isdigit() and int(part) < len(container):
            return int(part)
        names = [item.get("name") if isinstance(item, dict) else item for item in container]
        return names.index(part) if part in names else None
    return None


def _places(container: Any) -> list[str]:
    if isinstance(container, list):
        names = [item.get("name") if isinstance(item, dict) else item for item in container]
        return [*map(str, range(len(container))), *(str(name) for name in names)]
    return list(map(str, container)) if isinstance(container, dict) else []
