"""Systems with a test or a model of their own, next to others."""

import pytest

import battery
from acclimate.errors import ConfigError
from acclimate.experiment.baselines import with_baselines
from acclimate.experiment.reader import parse, read
from acclimate.experiment.run import STORE, run
from acclimate.report.table import table
from acclimate.report.text import text
from acclimate.store.database import Store
from acclimate.store.records import Entry

OFFLINE = {"name": "offline", "adapter": "tent", "test": {"batch_size": "all"}}
GROUPS = {"name": "groups", "adapter": "em", "model": {"name": "simple-cnn", "batch_norm": True}}


def tiny(*overrides, **more):
    return parse(battery.tiny(**more), overrides)


def problems(*overrides, **more):
    with pytest.raises(ConfigError) as error:
        tiny(*overrides, **more)
    return error.value.problems


def test_a_system_has_the_experiments_test_and_model_with_its_own_keys_on_top():
    experiment = tiny(
        "test.reset=batch",
        systems=["em", OFFLINE, GROUPS, {"name": "wide", "adapter": "em", "model": {"hidden": [30, 30]}}],
        model={"name": "mlp", "hidden": [20]},
    )
    em, offline, groups, wide = experiment.systems
    assert (em.test, em.model) == (experiment.test, experiment.model)
    assert (offline.test.batch_size, offline.test.reset) == ("all", "batch")
    assert (groups.model.name, groups.model.chosen.options["batch_norm"]) == ("simple-cnn", True)
    assert (wide.model.name, wide.model.chosen.plain["hidden"]) == ("mlp", [30, 30])
    plain = {system["name"]: system for system in experiment.plain()["systems"]}
    assert "test" not in plain["em"] and "model" not in plain["em"]
    assert plain["offline"]["test"] == {
        "batch_size": "all",
        "reset": "batch",
        "sync_every": 1,
        "validation": False,
        "convergence": False,
    }
    assert [system.own(experiment) for system in experiment.systems] == [
        [],
        ["own test: batch_size=all"],
        ["own model: simple-cnn batch_norm=true"],
        ["own model: mlp hidden=[30, 30]"],
    ]


def test_overrides_reach_what_is_a_systems_own():
    experiment = tiny("systems.offline.test.batch_size=7", "systems.em.model.name=mlp", systems=[OFFLINE, "em"])
    assert experiment.systems[0].test.batch_size == 7
    assert experiment.systems[1].model.name == "mlp"


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"test": {"batch_sise": 3}}, "systems.0.test.batch_sise: unknown key; did you mean 'batch_size'?"),
        (
            {"test": {"batch_size": "none"}},
            "systems.0.test.batch_size: expected a valid integer or 'all'; found 'none'",
        ),
        ({"test": 3}, "systems.0.test: expected a mapping; found 3"),
        ({"test": {"scenario": "twofold"}}, "systems.0.test.scenario: all systems meet the same; set test.scenario"),
        ({"model": "mpl"}, "systems.0.model.name: unknown 'mpl'; did you mean 'mlp'?"),
        ({"model": {"name": "mlp", "hiden": [3]}}, "systems.0.model.hiden: unknown key; did you mean 'hidden'?"),
        ({"modle": "mlp"}, "systems.0.modle: unknown key; did you mean 'model'?"),
    ],
)
def test_typos_in_what_is_a_systems_own(own, message):
    (problem,) = problems(systems=[{"name": "x", "adapter": "em", **own}])
    assert problem.startswith(message)


def test_baselines_have_the_same_model_training_phases_and_test():
    again = {**OFFLINE, "name": "again"}
    systems, baseline = with_baselines(tiny(systems=["tent", OFFLINE, again, GROUPS]).systems)
    assert [s.name for s in systems] == [
        "none",
        "tent",
        "none for offline",
        "offline",
        "again",
        "none for groups",
        "groups",
    ]
    assert baseline["tent"] == "none"
    assert baseline["offline"] == baseline["again"] == "none for offline"
    assert baseline["groups"] == "none for groups"
    by_name = {system.name: system for system in systems}
    for name, other in baseline.items():
        mine, none = by_name[name], by_name[other]
        assert (mine.model, mine.training, mine.test) == (none.model, none.training, none.test)


def test_each_system_is_tested_as_it_says_and_the_table_says_so(tmp_path):
    experiment = tiny(systems=["tent", OFFLINE, GROUPS])
    run(experiment, tmp_path)
    store = Store(tmp_path / STORE)
    (found,) = store.runs()
    made, report = table(found), text(table(found), found)
    slots = dict(store._db.execute("SELECT system, max(slot) FROM row WHERE phase = 'test' GROUP BY system"))
    harmed = [cell.harmed for line in made.lines for cell in line.cells.values() if line.system == "offline"]
    for stream, share in zip(made.streams, harmed, strict=True):
        own, none = (found.client_accuracies(Entry(name), stream)[0] for name in ("offline", "none for offline"))
        assert share == [sum(own[client] < none[client] for client in own) / len(own)]
    blocks = {system for system, _ in found.noted("blocks")}
    store.close()
    assert slots["tent"] == slots["none"] > 0
    assert slots["offline"] == slots["none for offline"] == 0
    assert blocks == {"", "groups", "none for groups"}
    remarks = {line.system: line.remarks for line in made.lines}
    assert remarks["tent"] == remarks["none"] == []
    assert remarks["offline"] == remarks["none for offline"] == ["own test: batch_size=all"]
    assert remarks["groups"] == ["own model: simple-cnn batch_norm=true"]
    assert "groups: own model: simple-cnn batch_norm=true" in report
    sent = {line.system: line.knowledge_bytes for line in made.lines}
    assert sent["groups"] != sent["tent"]


def test_a_system_that_is_told_the_boundaries_says_so():
    told = {"name": "told", "adapter": "tent", "test": {"reset": "shift"}}
    experiment = tiny(systems=[told])
    assert experiment.systems[0].own(experiment) == ["own test: reset=shift (told the boundaries of shifts)"]


def test_an_aggregator_plus_adapter_may_get_options_by_its_name():
    (system,) = tiny("systems.0.aggregator.sigma=2", "systems.0.adapter.lr=0.5", systems=["fedamp+tent"]).systems
    assert (system.aggregator.made.sigma, system.adapter.options["lr"]) == (2.0, 0.5)


def test_another_adapter_under_the_name_of_a_system_stands_for_itself():
    (system,) = tiny(systems=[{"name": "tta-bn", "adapter": {"name": "tent", "lr": 0.5}}]).systems
    assert system.adapter.name == "tent"
    (system,) = tiny(systems=[{"name": "tta-bn", "adapter": {"prior": 3}}]).systems
    assert system.adapter.differs == {"name": "bn-adapt", "prior": 3.0, "unbiased": False}


def test_systems_of_an_override_are_those_of_the_file():
    """Once an hour of training went to the catalog's system of the same name, which keeps no rounds."""
    whole = {system.name: system for system in read("fedtta-mnist").systems}
    some = read("fedtta-mnist", ["systems=[fedtta, tent]"]).systems
    assert [system.name for system in some] == ["fedtta", "tent"]
    assert all(system == whole[system.name] for system in some)
    assert some[0].phases[0].keep_every == 10


def test_a_systems_own_validation_column_needs_the_population_that_is_tested():
    scenario = {**battery.tiny()["scenario"], "minor": 2}
    own = {"name": "x", "adapter": "em", "test": {"validation": True}}
    (problem,) = problems(systems=[own], test={"scenario": scenario})
    assert problem == "systems.0.test.validation: expected no test.scenario, whose population is another one"


@pytest.mark.parametrize("first", [["fedbn"], ["fedavg", "finetune"]])
def test_a_head_for_everybody_needs_a_model_for_everybody(first):
    """Else it would be trained on everybody's own encoder and tested on one that nobody has trained."""
    phases = [{"name": name, "rounds": 1} for name in (*first, "head")]
    (problem,) = problems(phases=[], systems=[{"name": "x", "adapter": "none", "phases": phases}])
    assert f"after '{first[-1]}' every client has its own; write {{name: local, of: head}}" in problem
    alone = [*phases[:-1], {"name": "local", "rounds": 1, "of": "head"}]
    assert tiny(phases=[], systems=[{"name": "x", "adapter": "none", "phases": alone}]).systems
