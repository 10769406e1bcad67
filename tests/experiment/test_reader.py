import copy

import pytest

from acclimate.errors import ConfigError
from acclimate.experiment.catalog import ADAPTERS, SCENARIOS, SYSTEMS, shipped
from acclimate.experiment.reader import parse, read

PLAIN = {
    "name": "tiny",
    "scenario": {"name": "twofold", "size": 18},
    "model": "shallow-cnn",
    "phases": [{"name": "fedavg", "rounds": 2}],
    "systems": ["none", "tent", "bbse", "fedamp+bn-adapt", {"name": "mine", "adapter": {"name": "tent", "lr": 0.01}}],
    "test": {"batch_size": "all"},
    "seeds": [0, 1],
}


def problems(change=None, overrides=()):
    raw = copy.deepcopy(PLAIN)
    if change:
        change(raw)
    with pytest.raises(ConfigError) as error:
        parse(raw, overrides)
    return error.value.problems


def test_parse_fills_in_everything():
    experiment = parse(copy.deepcopy(PLAIN))
    names = [(s.name, s.adapter.name, s.aggregator and s.aggregator.name, len(s.phases)) for s in experiment.systems]
    assert names == [
        ("none", "none", None, 1),
        ("tent", "tent", None, 1),
        ("bbse", "bbse", None, 2),
        ("fedamp+bn-adapt", "bn-adapt", "fedamp", 1),
        ("mine", "tent", None, 1),
    ]
    assert experiment.systems[4].adapter.options["lr"] == 0.01
    assert experiment.systems[0].phases[0].algorithm.made.local.lr == 0.1
    assert experiment.test.batch_size == "all"


def test_run_name_changes_with_anything_that_decides_results_and_nothing_else():
    name = parse(copy.deepcopy(PLAIN)).run_name
    assert name.startswith("tiny-")
    assert parse(copy.deepcopy(PLAIN), ["phases.0.local.lr=0.1"]).run_name == name  # the default, spelt out
    assert parse(copy.deepcopy(PLAIN), ["phases.0.local.lr=0.2"]).run_name != name
    assert parse(copy.deepcopy(PLAIN), ["test.reset=batch"]).run_name != name


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("phases.0.rounds=50", lambda e: e.systems[0].phases[0].rounds == 50),
        ("phases.fedavg.rounds=50", lambda e: e.systems[0].phases[0].rounds == 50),
        ("seeds=[7]", lambda e: e.seeds == (7,)),
        ("systems.tent.adapter.lr=0.5", lambda e: e.systems[1].adapter.options["lr"] == 0.5),
        ("systems.mine.adapter.lr=0.5", lambda e: e.systems[4].adapter.options["lr"] == 0.5),
        ("model.name=mlp", lambda e: e.model.name == "mlp"),
        ("scenario.new=false", lambda e: e.scenario.options["new"] is False),
    ],
)
def test_overrides_set_one_key(override, value):
    raw = copy.deepcopy(PLAIN)
    raw["systems"] = [s for s in raw["systems"] if override != "model.name=mlp" or s in ("none", "bbse")]
    assert value(parse(raw, [override]))


def test_problems_come_all_at_once_with_path_found_and_possible():
    def break_everything(raw):
        raw["name"] = "my exp"
        raw["scenario"] = {"name": "twofld"}
        raw["model"] = {"name": "mlp", "hidden": [0]}
        raw["phases"] = [{"name": "fedavg", "rounds": "ten", "local": {"lr": -1, "epoch": 2}}]
        raw["systems"] = ["tentt", {"name": "a", "adapter": {"name": "tent", "stpes": 2}}, {"name": "c"}]
        raw["test"] = {"batch_size": "none", "rest": 1}
        raw["seeds"] = [0, 0]
        raw["sed"] = 1

    assert problems(break_everything) == [
        "sed: unknown key; did you mean 'seeds'? Possible: model, name, phases, scenario, seeds, systems, test",
        "name: expected letters, digits and . _ + - only; found 'my exp'",
        f"scenario.name: unknown 'twofld'; did you mean 'twofold'? Possible: {', '.join(sorted(SCENARIOS))}",
        "model.hidden.0: expected a number greater than or equal to 1; found 0",
        "test.batch_size: expected a valid integer or 'all'; found 'none'",
        "test.rest: unknown key; did you mean 'reset'? "
        "Possible: batch_size, convergence, reset, sync_every, validation",
        "seeds: expected different numbers from 0 to 2³¹ − 1, as [0, 1, 2]; found [0, 0]",
        "phases.0.local.lr: expected a number greater than 0; found -1",
        "phases.0.local.epoch: unknown key; did you mean 'epochs'? Possible: batch_size, clip, decay, "
        "decay_every, epochs, lr, momentum, steps, weight_decay",
        "phases.0.rounds: expected a valid integer; found 'ten'",
        f"systems.0: unknown system 'tentt'; did you mean 'tent'? Possible: {', '.join(sorted({*SYSTEMS, *ADAPTERS}))} "
        "(or aggregator+adapter)",
        "systems.1.adapter.stpes: unknown key; did you mean 'steps'? Possible: layers, lr, momentum, name, optimizer, "
        "steps",
        "systems.2.adapter: 'c' is no known system, so it needs an adapter",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.pop("model"), "model: required, but not given"),
        (lambda raw: raw.update(systems=[]), "systems: expected at least one, such as [none, tent]"),
        (lambda raw: raw.update(systems="tent"), "systems: expected a list; found 'tent'"),
        (lambda raw: raw.update(systems=["tent", "tent"]), "systems: two are called 'tent'; give one another name"),
        (lambda raw: raw["phases"][0].pop("rounds"), "phases.0.rounds: required, but not given"),
        (
            lambda raw: raw.update(phases=[3]),
            "phases.0: expected a name, or a mapping with a name and options; found 3",
        ),
        (
            lambda raw: raw.update(systems=[{"name": "x", "adapter": "bbse"}]),
            "systems.0: adapter 'bbse' needs 'confusion', exported by no phase; add: bbse",
        ),
        (
            lambda raw: raw.update(systems=[{"name": "x", "adapter": "tent", "select": "best"}]),
            "systems.0.select: expected best-validation; found 'best'",
        ),
        (
            lambda raw: raw.update(systems=[{"name": "tent", "select": "best-validation"}]),
            "systems.0.select: nothing to select from; give the last phase a keep_every",
        ),
        (
            lambda raw: raw.update(systems=[{"name": "tent", "tune": {"lr": 0.1}}]),
            "systems.0.tune: expected true or lists of values, such as {lr: [0.001, 0.01]}; found {'lr': 0.1}",
        ),
        (
            lambda raw: raw.update(systems=[{"name": "tent", "tune": {"lr": [0.1, -1]}}]),
            "systems.0.tune.lr: expected a number greater than 0; found -1",
        ),
        (
            lambda raw: raw.update(scenario={"name": "tgfl", "augment": {"margn": 2}}),
            "scenario.augment.margn: unknown key; did you mean 'margin'? Possible: flip, margin",
        ),
        (
            lambda raw: raw.update(scenario={"name": "tgfl", "augment": {"margin": 0}}),
            "scenario.augment.margin: expected a number greater than or equal to 1; found 0",
        ),
    ],
)
def test_problem_names_the_key_and_what_to_do(change, message):
    assert message in problems(change)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seeds", "override 'seeds': expected KEY=VALUE"),
        ("seeds=[0", "override 'seeds=[0': not readable as YAML"),
        ("phases.3.rounds=1", "override 'phases.3.rounds=1': there is no '3' in 'phases'"),
        ("systems.tnt.adapter.lr=1", "did you mean 'tent'?"),
    ],
)
def test_override_that_leads_nowhere(override, message):
    assert message in problems(overrides=[override])[0]


def test_read_names_a_missing_file_and_what_is_shipped(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'quickstart'"):
        read("quikstart")


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2", "", "\x00"])
def test_read_refuses_what_is_no_experiment(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad.yaml has 1 problem"):
        read(path)


@pytest.mark.parametrize("name", shipped())
def test_shipped_experiments_are_valid(name):
    assert read(name).name == name


def test_yaml_cannot_run_code(tmp_path):
    path = tmp_path / "evil.yaml"
    path.write_text("name: !!python/object/apply:os.system ['true']")
    with pytest.raises(ConfigError, match="not readable as YAML"):
        read(path)


def test_devices_may_have_models_of_different_sizes():
    raw = copy.deepcopy(PLAIN)
    raw["model"] = {"name": "fedtta-cnn", "variants": [{"width": "small"}, {"width": "medium"}, {"width": "big"}]}
    raw["systems"] = ["none"]
    assert [variant.options["width"] for variant in parse(raw).model.variants] == ["small", "medium", "big"]
    raw["model"]["variants"][1]["width"] = "huge"
    with pytest.raises(ConfigError, match=r"model.variants.1.width: expected 'small', 'medium' or 'big'; found 'huge'"):
        parse(raw)


def test_parse_leaves_what_it_was_given():
    raw = copy.deepcopy(PLAIN)
    parse(raw, ["seeds=[7]", "systems.tent.adapter.lr=0.5"])
    assert raw == PLAIN
