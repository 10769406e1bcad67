"""Every shipped experiment runs one tiny round on its real data; skipped by name where the data are missing."""

from pathlib import Path

import pytest

from acclimate.experiment.catalog import SCENARIOS, SYSTEMS, shipped
from acclimate.experiment.config import parse, read
from acclimate.experiment.run import STORE, run
from acclimate.report.table import table
from acclimate.store.database import Store

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PACKS = {
    "cifar10": ("cifar10_jpeg.npz",),
    "mnist": ("mnist.npz",),
    "writers": ("mnist.npz", "mnist_writers.npz"),
    "office-caltech10": ("office_caltech10_64.npz",),
    "pacs": ("pacs_64.npz",),
    "digits": (),
}
# What makes a scenario tiny; the protocol stays.
TINY = {
    "twofold": {"source_clients": 3, "per_source": 30, "test_clients": 3, "major": 6, "size": 18},
    "ttpfl": {"clients": 20, "source_clients": 15, "per_client": 20, "major": 6, "minor": 1},
    "ttpfl-domains": {"data": "pacs", "per_domain": 7},
    "upfl": {"data": "cifar10", "clients": 100, "test_share": 0.05},
    "upfl-rotation": {},
    "ttfl": {"clients": 4, "groups": 2, "slots": 1},
    "tgfl": {"clients": 10},
    "domain-shift": {"most": 60},
    "writers": {"most_source": 5, "most_new": 5},
    "timetable": {"per_segment": 5},
}
MODELS = {"writers": "shallow-cnn", "upfl-rotation": "mlp"}


@pytest.fixture
def here(monkeypatch):
    def need(scenario):
        name = scenario.options.get("data") or scenario.name
        for file in PACKS[scenario.name if scenario.name in PACKS else name]:
            if not (DATA / file).exists():
                pytest.skip(f"data set not here: {file}")
        monkeypatch.setenv("ACCLIMATE_DATA", str(DATA))

    return need


def finish(experiment, runs):
    run(experiment, runs)
    store = Store(runs / STORE)
    found = table(store, next(r for r in store.runs() if r["name"] == experiment.run_name))
    store.close()
    return found


@pytest.mark.parametrize("name", shipped())
def test_shipped_experiment_runs_one_tiny_round(name, here, tmp_path):
    whole = read(name)
    here(whole.scenario)
    small = [f"scenario.{key}={value}" for key, value in TINY[whole.scenario.name].items() if key != "data"]
    small += ["phases.0.rounds=1", f"phases.0.cohort={1 if whole.scenario.name == 'ttfl' else 2}", "seeds=[0]"]
    small += ["phases.0.keep_every=1", "phases.0.local.epochs=1"]
    for system in whole.systems:
        own = range(len(system.phases) - 1)
        small += [f"systems.{system.name}.phases.{i}.{key}" for i in own for key in ("rounds=1", "cohort=2")
                  if system.name not in SYSTEMS]  # fmt: skip
    if whole.scenario.name == "ttfl":  # one epoch over 50,000 images is not tiny
        small += ["scenario.validation=0.99"]
    found = finish(read(name, small), tmp_path)
    assert [line.system for line in found.lines][: len(whole.systems)]
    assert all(len(cell.accuracy) == 1 for line in found.lines for cell in line.cells.values())


@pytest.mark.parametrize("name", TINY)
def test_fedavg_trains_on_every_scenario(name, here, tmp_path):
    scenario = {"name": name, **TINY[name]}
    if name == "ttfl":
        scenario["validation"] = 0.99
    raw = {
        "name": "tiny",
        "scenario": scenario,
        "model": MODELS.get(name, "mlp"),
        "phases": [{"name": "fedavg", "rounds": 1, "cohort": 1}],
        "systems": ["none", "em"],
        "test": {"batch_size": 50},
    }
    experiment = parse(raw)
    here(experiment.scenario)
    found = finish(experiment, tmp_path)
    assert {line.system for line in found.lines} == {"none", "em"}
    assert all(0 <= cell.accuracy[0] <= 1 for line in found.lines for cell in line.cells.values())


def test_every_scenario_that_needs_no_files_of_the_user_is_tried():
    assert set(SCENARIOS) - set(TINY) == {"attribute-shift", "own"}  # tried with files made by tests/scenarios


def test_attribute_shift_says_what_is_missing(monkeypatch, tmp_path):
    from acclimate.errors import MissingData

    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path))
    with pytest.raises(MissingData, match="cifar10"):
        SCENARIOS["attribute-shift"].load()().build(0)
