"""Reading an experiment: YAML and overrides in, frozen dataclasses out, or every problem at once."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from acclimate.contracts import Algorithm
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
from acclimate.experiment.choice import Chosen, choose
from acclimate.experiment.experiment import Experiment, ModelChoice, PhaseChoice, Schedule, System
from acclimate.experiment.outside import Outside
from acclimate.experiment.overrides import override
from acclimate.experiment.schema import check
from acclimate.experiment.written import Unreadable, bound, load, unusual
from acclimate.options import LARGEST_SEED
from acclimate.plugins import is_plugin

MOST_CANDIDATES = 1000  # of a grid: each is tested
MOST_NAME = 100  # letters


def read(source: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a YAML file (or shipped under a name), with dotted overrides such as `seeds=[0]`.

    Reading imports the plug-ins that the file names: it is the user who names the file.
    """
    path = shipped().get(str(source), Path(source))
    if not path.is_file():
        hint = f"no such file, and no shipped experiment of that name; {nearest(source, shipped())}"
        raise ConfigError([hint], str(source))
    try:
        raw = load(path.read_text(encoding="utf-8"))
    except (Unreadable, UnicodeDecodeError) as error:
        raise ConfigError([str(error)], str(source)) from error
    return parse(raw, overrides, str(source), Outside(path.parent))


def parse(
    raw: Any, overrides: Sequence[str] = (), source: str = "the experiment", outside: Outside | None = None
) -> Experiment:
    """The experiment in plain data; only with `outside` may it name plug-ins."""
    reader = _Reader(outside)
    experiment = None
    if isinstance(raw, dict):
        _bounded(raw, source)
        raw = copy.deepcopy(raw)  # overrides are written into it
        for text in overrides:
            reader.problems += override(raw, text)
        _bounded(raw, source)
        reader.problems += [f"{key}: expected a finite number of usual size; found {n}" for key, n in unusual(raw)]
        experiment = reader.experiment(raw)
    else:
        reader.problems.append(f"expected a mapping with the keys {', '.join(_KEYS)}; found {type(raw).__name__}")
    if reader.problems or experiment is None:
        raise ConfigError(reader.problems, source)
    return experiment


def _bounded(raw: Any, source: str) -> None:
    try:
        bound(raw)
    except Unreadable as error:
        raise ConfigError([str(error)], source) from error


_KEYS = ("name", "scenario", "model", "phases", "systems", "test", "seeds")
_SYSTEM_KEYS = ("name", "phases", "adapter", "aggregator", "tune", "select", "model", "test")


def _seeds(seeds: list[int]) -> None:
    """For the schema."""


@dataclass(frozen=True)
class _Common:
    """What systems have in common unless they say otherwise; None: it has problems of its own."""

    phases: Sequence[PhaseChoice | None]
    written_model: Any  # as in the file
    model: ModelChoice | None
    test: Test
    test_scenario: Chosen | None


@dataclass
class _Reader:
    outside: Outside | None = None
    problems: list[str] = field(default_factory=list)

    def experiment(self, raw: dict[str, Any]) -> Experiment | None:
        self._unknown(raw, _KEYS, "")
        for key in ("name", "scenario", "model", "systems"):
            if key not in raw:
                self.problems.append(f"{key}: required, but not given")
        name = raw.get("name", "unnamed")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
            self.problems.append(f"name: expected letters, digits and . _ + - only; found {name!r}")
        elif len(name) > MOST_NAME:
            self.problems.append(f"name: expected at most {MOST_NAME} letters; found {len(name)}")
        scenario = self.chosen(raw.get("scenario", "twofold"), "scenario", SCENARIOS)
        model = self.model(raw.get("model", "mlp"), "model")
        test, test_scenario = self.test(raw.get("test") or {})
        seeds = self.seeds(raw.get("seeds", [0]))
        shared = [self.phase(item, f"phases.{i}") for i, item in self._list(raw, "phases", "")]
        common = _Common(shared, raw.get("model"), model, test, test_scenario)
        systems = [self.system(item, f"systems.{i}", common) for i, item in self._list(raw, "systems", "")]
        if "systems" in raw and not systems and not self.problems:
            self.problems.append("systems: expected at least one, such as [none, tent]")
        names = [system.name for system in systems if system]
        self.problems += [
            f"systems: two are called '{n}'; give one another name" for n in {n for n in names if names.count(n) > 1}
        ]
        if self.problems or scenario is None or model is None:
            return None
        chosen = tuple(system for system in systems if system)
        imports = dict(self.outside.found) if self.outside else {}
        return Experiment(str(name), scenario, model, chosen, test, test_scenario, seeds, imports)

    def chosen(self, raw: Any, path: str, table: Mapping[str, Entry], reserved: Sequence[str] = ()) -> Chosen | None:
        """Something of a catalog table: a bare name, or a mapping with its name and options."""
        found, problems = choose(raw, path, table, reserved, self.outside)
        self.problems += problems
        return found

    def model(self, raw: Any, path: str) -> ModelChoice | None:
        """A model; devices differ by `variants`, lists of its options: variants: [{width: small}, {width: big}]."""
        chosen = self.chosen(raw, path, MODELS, ("variants",))
        listed = raw.get("variants") if isinstance(raw, dict) else None
        if chosen is None or listed is None:
            return ModelChoice(chosen) if chosen else None
        if not isinstance(listed, list) or not listed or not all(isinstance(item, dict) for item in listed):
            self.problems.append(f"{path}.variants: expected a list of options; found {listed!r}")
            return None
        base = {key: value for key, value in raw.items() if key != "variants"}
        made = [self.chosen({**base, **item}, f"{path}.variants.{i}", MODELS) for i, item in enumerate(listed)]
        return ModelChoice(chosen, tuple(variant for variant in made if variant))

    def phase(self, raw: Any, path: str) -> PhaseChoice | None:
        given = {"name": raw} if isinstance(raw, str) else raw
        common = [field.name for field in fields(Schedule)]
        algorithm = self.chosen(given, path, PHASES, [*common, "scenario"])
        if not isinstance(given, dict):
            return None
        keys, _, problems = check(Schedule, {key: given[key] for key in common if key in given}, path)
        self.problems += problems
        scenario = None
        if given.get("scenario") is not None:
            scenario = self.chosen(given["scenario"], f"{path}.scenario", SCENARIOS)
            if scenario is None:
                return None
        return PhaseChoice(algorithm, scenario, **keys) if algorithm and not problems else None

    def system(self, raw: Any, path: str, common: _Common) -> System | None:
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
        model, test = self._own_model(given.get("model"), path, common), self._own_test(given.get("test"), path, common)
        phases = tuple(phase for phase in [*common.phases, *own] if phase is not None)
        if adapter is None or model is None or None in own or None in common.phases:
            return None
        own_last = [phase for phase in phases if phase.scenario is None][-1:]
        if given.get("select") and (not own_last or own_last[0].keep_every is None):
            self.problems.append(f"{path}.select: nothing to select from; give the last phase a keep_every")
        if test.convergence and (not own_last or own_last[0].keep_every is None):
            self.problems.append(f"{path}: test.convergence has no rounds to test; give the last phase a keep_every")
        if len(str(given["name"])) > MOST_NAME or not str(given["name"]).isprintable():
            found = f"{given['name']!r}"
            self.problems.append(f"{path}.name: expected at most {MOST_NAME} printable characters; found {found}")
        tune = self.tune(given.get("tune"), adapter, path)
        self._check_needs([adapter, *tune], phases, path)
        return System(str(given["name"]), phases, adapter, model, test, aggregator, tune, bool(given.get("select")))

    def tune(self, raw: Any, adapter: Chosen, path: str) -> tuple[Chosen, ...]:
        """The candidates of a grid: `true` takes the catalog's, a mapping gives lists of values, by dotted keys.

        A list has them one by one, as a run's own `experiment.yaml` does.
        """
        if raw in (None, False, []):
            return ()
        if isinstance(raw, list):
            listed = [self.chosen(one, f"{path}.tune.{i}", ADAPTERS) for i, one in enumerate(raw)]
            return tuple(one for one in listed if one is not None)
        own = ADAPTERS[adapter.name].grid if adapter.name in ADAPTERS else {}
        grid = own if raw is True else raw
        if not isinstance(grid, Mapping) or not grid or not all(isinstance(v, list) and v for v in grid.values()):
            self.problems.append(
                f"{path}.tune: expected true or lists of values, such as {{lr: [0.001, 0.01]}}; found {raw!r}"
            )
            return ()
        if (number := math.prod(len(values) for values in grid.values())) > MOST_CANDIDATES:
            self.problems.append(f"{path}.tune: expected at most {MOST_CANDIDATES} candidates; the grid has {number:,}")
            return ()
        candidates = []
        for values in itertools.product(*grid.values()):
            candidate = self.chosen(_tried(adapter.plain, grid, values), f"{path}.tune", ADAPTERS)
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
        if not problems and (not found or len(set(found)) < len(found) or min(found) < 0 or max(found) > LARGEST_SEED):
            self.problems.append(f"seeds: expected different numbers from 0 to 2³¹ − 1, as [0, 1, 2]; found {raw!r}")
        return found

    def _own_model(self, raw: Any, path: str, common: _Common) -> ModelChoice | None:
        """A system's own model; options without a name are put on top of the experiment's."""
        if raw is None or common.model is None:
            return common.model
        if isinstance(raw, dict) and "name" not in raw:
            base = common.written_model
            raw = {**(base if isinstance(base, dict) else {"name": base}), **raw}
        return self.model(raw, f"{path}.model")

    def _own_test(self, raw: Any, path: str, common: _Common) -> Test:
        """The experiment's test with a system's own keys on top."""
        if raw is None:
            return common.test
        if not isinstance(raw, dict):
            self.problems.append(f"{path}.test: expected a mapping; found {raw!r}")
            return common.test
        if "scenario" in raw:
            self.problems.append(f"{path}.test.scenario: all systems meet the same; set test.scenario for all of them")
        given = {key: value for key, value in raw.items() if key != "scenario"}
        values, _, problems = check(Test, given, f"{path}.test")
        self.problems += problems
        if common.test_scenario and given.get("validation"):
            self.problems.append(f"{path}.test.validation: expected no test.scenario, whose population is another one")
        return common.test if problems else replace(common.test, **{key: values[key] for key in given})

    def _named_system(self, raw: Any, path: str) -> dict[str, Any] | None:
        if isinstance(raw, dict) and isinstance(raw.get("name"), str):
            # What is given replaces the system's own; methods keep their name: {name: tent, adapter: {lr: 0.01}}.
            known = _known_system(raw["name"])
            if not known and "adapter" not in raw and "phases" not in raw:
                self.problems.append(f"{path}.adapter: '{raw['name']}' is no known system, so it needs an adapter")
                return None
            return {
                **known,
                **raw,
                **{k: _on_top(known[k], raw[k]) for k in ("adapter", "aggregator") if k in known and k in raw},
            }
        if not isinstance(raw, str):
            self.problems.append(f"{path}: expected the name of a system, or a mapping with a name; found {raw!r}")
            return None
        if known := _known_system(raw):
            return {"name": raw, **known}
        possible = {*SYSTEMS, *ADAPTERS}
        self.problems.append(f"{path}: unknown system '{raw}'; {nearest(raw, possible)} (or aggregator+adapter)")
        return None

    def _check_needs(self, adapters: Sequence[Chosen], phases: Sequence[PhaseChoice], path: str) -> None:
        for place, phase in enumerate(phases):
            who, others = phase.algorithm.name, " of its scenario" if phase.scenario else ""
            before = {n for p in phases[:place] if p.scenario == phase.scenario for n in p.exports}
            for name in phase.algorithm.made.needs:
                if name not in before:
                    add = ", ".join(_phases_for(name))
                    self.problems.append(
                        f"{path}: phase '{who}' needs '{name}', exported by no phase{others} before; add: {add}"
                    )
            if _goes_on(phase) and (own := _personal_model(phases[:place], phase)):
                self.problems.append(
                    f"{path}: phase '{who}' goes on from a model that is the same for everybody, and after '{own}' "
                    f"every client has its own; write {{name: local, of: {who}}} for everybody alone, or a finetune "
                    "with part: head"
                )
            adds = type(phase.algorithm.made).extend is not Algorithm.extend
            if phase.scenario and (phase.algorithm.made.personal or adds):
                self.problems.append(
                    f"{path}: phase '{who}' has a scenario of its own, from which only what everybody may know can be "
                    "brought along: nothing personal, and nothing that it adds to the model"
                )
        # Of another scenario's phases everything but the model, which must know none of the images tested on.
        exported = {name for phase in phases for name in phase.exports if phase.scenario is None or name != "model"}
        needed = {name: adapter.name for adapter in adapters for name in ("model", *adapter.made.needs)}
        for name, adapter in needed.items():
            if name not in exported:
                add = ", ".join(_phases_for(name))
                self.problems.append(f"{path}: adapter '{adapter}' needs '{name}', exported by no phase; add: {add}")

    def _unknown(self, raw: Mapping[str, Any], keys: Sequence[str], path: str) -> None:
        prefix = f"{path}." if path else ""
        self.problems += [f"{prefix}{key}: unknown key; {nearest(key, keys)}" for key in raw if key not in keys]

    def _list(self, raw: Mapping[str, Any], key: str, path: str) -> list[tuple[int, Any]]:
        items = raw.get(key) or []
        if isinstance(items, list):
            return list(enumerate(items))
        self.problems.append(f"{path + '.' if path else ''}{key}: expected a list; found {items!r}")
        return []


def _known_system(name: str) -> dict[str, Any]:
    """A system of the catalog, an adapter by itself, or 'aggregator+adapter'; empty: none of these."""
    if name in SYSTEMS or name in ADAPTERS:
        return SYSTEMS.get(name, {"adapter": name})
    aggregator, plus, adapter = name.partition("+")
    if plus and aggregator in AGGREGATORS and (adapter in SYSTEMS or adapter in ADAPTERS or is_plugin(adapter)):
        return {**_known_system(adapter), "aggregator": aggregator}
    if is_plugin(name):
        return {"adapter": name}
    return {}


def _on_top(known: Any, given: Any) -> Any:
    """Options that are given for the method a system has; another method stands for itself."""
    own = known if isinstance(known, dict) else {"name": known}
    same = isinstance(given, dict) and given.get("name", own["name"]) == own["name"]
    return {**own, **given} if same else given


def _goes_on(phase: PhaseChoice) -> bool:
    """Whether a phase makes, of a model that it needs, another one for everybody."""
    made = phase.algorithm.made
    return "model" in made.needs and "model" in made.exports and "model" not in made.personal


def _personal_model(before: Sequence[PhaseChoice], phase: PhaseChoice) -> str:
    """The phase whose model it would go on from, if that is a client's own."""
    makers = [p.algorithm for p in before if p.scenario == phase.scenario and p.trains]
    return makers[-1].name if makers and "model" in makers[-1].made.personal else ""


def _phases_for(name: str) -> list[str]:
    """The phases that export something, as they are without options."""
    made = {phase: choose(phase, "", PHASES)[0] for phase in PHASES}
    return [phase for phase, chosen in made.items() if chosen and name in chosen.made.exports]


def _tried(plain: Mapping[str, Any], keys: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    """A method with some options set, by dotted keys."""
    tried: dict[str, Any] = copy.deepcopy(dict(plain))
    for key, value in zip(keys, values, strict=True):
        *parents, last = str(key).split(".")
        place = tried
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        place[last] = value
    return tried
