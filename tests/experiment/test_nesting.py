"""Options that are methods with options, at any depth."""

import copy

import pytest
import torch
from torch import nn

import acclimate as ac
import battery
import wrappers
from acclimate.adapters.tent import Tent
from acclimate.contracts import AdapterRecipe
from acclimate.errors import ConfigError, MissingKnowledge
from acclimate.experiment.catalog import AGGREGATORS
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.report.table import table
from acclimate.store.database import Store
from acclimate.terms import Proximal

DEEP = {
    "phases": [{"name": "around", "rounds": 2, "of": {"name": "around", "of": {"name": "fedprox", "mu": 0.5}}}],
    "systems": [
        {
            "name": "deep",
            "phases": [{"name": "around", "rounds": 1, "of": "bbse"}],
            "adapter": {"name": "watched", "of": {"name": "watched", "of": {"name": "bbse", "kind": "soft"}}},
            "aggregator": {"name": "through", "of": {"name": "through", "of": "fedamp"}},
        }
    ],
}


@pytest.fixture(autouse=True)
def _listed(monkeypatch):
    wrappers.list_them(monkeypatch)


def read(*overrides, **more):
    return parse(battery.tiny(**copy.deepcopy({**DEEP, **more})), overrides)


def problems(*overrides, **more):
    with pytest.raises(ConfigError) as error:
        read(*overrides, **more)
    return error.value.problems


def test_methods_of_methods_arrive_as_objects():
    (deep,) = read().systems
    assert deep.phases[0].algorithm.made.of.of.mu == 0.5
    assert deep.aggregator.made.of.of.sigma == "median"
    guard = deep.adapter.made
    assert isinstance(guard.options["of"], AdapterRecipe)
    assert guard.options["of"].options["of"].options["kind"] == "soft"
    assert deep.adapter.plain["of"]["of"] == {"name": "bbse", "kind": "soft", "smoothing": 0.001}


def test_what_a_wrapper_needs_exports_and_keeps_is_what_is_inside():
    (deep,) = read().systems
    assert deep.adapter.made.needs == ("confusion",)
    assert [phase.trains for phase in deep.phases] == [True, False]
    (other,) = read("systems.deep.aggregator.of.of=tsa").systems
    assert (deep.aggregator.made.signs, other.aggregator.made.signs) == (False, True)
    system = {**DEEP["systems"][0], "phases": []}
    assert problems(systems=[system]) == [
        "systems.0: adapter 'watched' needs 'confusion', exported by no phase; add: bbse"
    ]


def test_wrappers_that_change_nothing_change_no_bit(tmp_path):
    def unwrapped(of):
        return {"name": of} if isinstance(of, str) else unwrapped(of["of"]) if "of" in of else of

    def shown(experiment):
        run(experiment, tmp_path)
        store = Store(tmp_path / STORE)
        made = table(store.find(experiment.run_name))
        store.close()
        return [line.cells for line in made.lines]

    (system,) = DEEP["systems"]
    plain = {
        "name": "deep",
        "phases": [{**unwrapped(system["phases"][0]), "rounds": 1}],
        "adapter": unwrapped(system["adapter"]),
        "aggregator": unwrapped(system["aggregator"]),
    }
    bare = read(phases=[{**unwrapped(DEEP["phases"][0]), "rounds": 2}], systems=[plain])
    assert shown(read()) == shown(bare)


def test_typos_at_any_depth_are_named_by_their_whole_path():
    found = problems(
        "phases.0.of.of.nmae=1",
        "phases.0.of.most=0",
        "systems.deep.aggregator.of.of=fedmap",
        "systems.deep.adapter.of.of.knid=hard",
        "systems.deep.adapter.of.of.smoothing=2",
        "systems.deep.adapter.mragin=1",
    )
    possible = ", ".join(sorted(AGGREGATORS))
    assert found == [
        "phases.0.of.of.nmae: unknown key; did you mean 'name'? Possible: local, mu, name",
        "phases.0.of.most: expected a number greater than or equal to 1; found 0",
        "systems.0.adapter.of.of.smoothing: expected a number less than or equal to 1; found 2",
        "systems.0.adapter.of.of.knid: unknown key; did you mean 'kind'? Possible: kind, name, smoothing",
        "systems.0.adapter.mragin: unknown key; did you mean 'margin'? Possible: margin, name, of",
        f"systems.0.aggregator.of.of.name: unknown 'fedmap'; did you mean 'fedamp'? Possible: {possible}",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("systems.deep.aggregator=through", "systems.0.aggregator.of: required, but not given"),
        (
            "systems.deep.aggregator.of=3",
            "systems.0.aggregator.of: expected a name, or a mapping with a name and options; found 3",
        ),
        (
            "systems.deep.aggregator.of=null",
            "systems.0.aggregator.of: expected a name, or a mapping with a name and options; found None",
        ),
        (
            "systems.deep.aggregator.of.of.sigma=-1",
            "systems.0.aggregator.of.of.sigma: expected a number greater than 0",
        ),
    ],
)
def test_a_nested_method_that_is_none(override, message):
    assert problems(override)[0].startswith(message)


def test_overrides_reach_any_depth_also_below_a_bare_name():
    (deep,) = read("systems.deep.aggregator.of.of.sigma=2", "phases.around.of.of.mu=0.25").systems
    assert deep.aggregator.made.of.of.sigma == 2.0
    assert deep.phases[0].algorithm.made.of.of.mu == 0.25
    system = {"name": "x", "adapter": "tent", "aggregator": "usual"}
    (x,) = read("systems.x.aggregator.of=fedamp", "systems.x.aggregator.of.sigma=2", systems=[system]).systems
    assert x.aggregator.made.of.sigma == 2.0


def test_tune_names_nested_keys_with_dots():
    adapter = {"name": "watched", "of": {"name": "watched", "of": "tent"}}
    tried = {"margin": [0.1, 0.2], "of.of.lr": [0.01, 0.1]}
    (system,) = read(systems=[{"name": "x", "adapter": adapter, "tune": tried}]).systems
    found = [(c.plain["margin"], c.plain["of"]["of"]["lr"]) for c in system.tune]
    assert found == [(0.1, 0.01), (0.1, 0.1), (0.2, 0.01), (0.2, 0.1)]
    wrong = {"name": "x", "adapter": adapter, "tune": {"of.of.lrr": [1]}}
    assert problems(systems=[wrong])[0].startswith("systems.0.tune.of.of.lrr: unknown key; did you mean 'lr'?")


def test_tuning_over_nested_methods_is_told_by_dotted_keys(tmp_path):
    adapter = {"name": "watched", "of": "tent"}
    experiment = read(
        phases=[{"name": "fedavg", "rounds": 1}], systems=[{"name": "x", "adapter": adapter, "tune": True}]
    )
    id = run(experiment, tmp_path)
    store = Store(tmp_path / STORE)
    note = store.notes(id, "tuned")["x", 0]
    store.close()
    assert set(note["validation"]) == {"of.lr=0.001", "of.lr=0.01"}


def test_a_default_that_is_a_method_is_described_and_is_no_difference():
    systems = [{"name": "x", "adapter": "tent", "aggregator": "usual"}]
    (usual,) = read(systems=systems).systems
    assert usual.aggregator.plain["of"]["name"] == "fedamp"
    assert usual.aggregator.differs == {"name": "usual"}
    (written,) = read("systems.x.aggregator.of={name: fedamp, sigma: 0.5}", systems=systems).systems
    assert written.aggregator.differs == {"name": "usual"}
    (other,) = read("systems.x.aggregator.of={name: fedamp, sigma: 0.25}", systems=systems).systems
    assert other.aggregator.differs == {"name": "usual", "of": {"name": "fedamp", "revision": 1, "sigma": 0.25}}


def net():
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3))


@pytest.mark.parametrize("term", ["fedprox", {"name": "fedprox", "mu": 0.1}, Proximal(0.1)])
def test_wrap_takes_a_term_by_name_with_options_or_as_an_object(term):
    adapter = ac.wrap(net(), "tta-grad", term=term)
    assert adapter.adapter.term == (Proximal() if term == "fedprox" else Proximal(0.1))


def test_wrap_takes_an_adapter_around_another_with_what_that_one_needs():
    confusion = torch.eye(3)
    adapter = ac.wrap(net(), "watched", of={"name": "bbse", "kind": "soft"}, confusion=confusion)
    assert adapter(torch.rand(5, 4)).shape == (5, 3)
    assert isinstance(ac.wrap(net(), "watched", of="tent").adapter.of, Tent)
    with pytest.raises(MissingKnowledge, match="'watched' needs confusion"):
        ac.wrap(net(), "watched", of="bbse")
    with pytest.raises(ConfigError, match=r"watched.confusion: unknown key"):
        ac.wrap(net(), "watched", of="tent", confusion=confusion)
    with pytest.raises(ConfigError, match=r"watched.of.name: unknown 'tnet'; did you mean 'tent'"):
        ac.wrap(net(), "watched", of="tnet")
    with pytest.raises(ConfigError, match=r"tta-grad.term.mu: expected a number greater than or equal to 0; found -1"):
        ac.wrap(net(), "tta-grad", term={"name": "fedprox", "mu": -1})


def test_wrap_names_every_problem_but_no_knowledge_that_was_given():
    with pytest.raises(ConfigError) as error:
        ac.wrap(net(), "bbse", confusion=torch.eye(3), smoothing=2, knid="soft")
    assert [problem.partition(":")[0] for problem in error.value.problems] == ["bbse.smoothing", "bbse.knid"]
