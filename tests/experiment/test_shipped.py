"""Every shipped experiment runs one tiny round on its real data; skipped by name where the data are missing."""

from pathlib import Path

import pytest
import yaml

from acclimate.experiment.catalog import SCENARIOS, shipped
from acclimate.experiment.reader import parse, read
from acclimate.experiment.run import STORE, run
from acclimate.report.table import table
from acclimate.store.database import Store

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PACKS = {
    "cifar10": ("cifar10_jpeg.npz",),
    "mnist": ("mnist.npz",),
    "mnist-writers": ("mnist.npz", "mnist_writers.npz"),
    "fashion-mnist": ("fashion_mnist.npz",),
    "femnist": ("femnist.npz",),
    "cifar100": ("cifar100.npz",),
    "writers": ("mnist.npz", "mnist_writers.npz"),
    "office-caltech10": ("office_caltech10_64.npz",),
    "pacs": ("pacs_64.npz",),
    "digits-5": ("mnist.npz", "svhn_jpeg.npz", "usps.npz", "chars74k_font_digits.npz", "mnist_m_jpeg.npz"),
    "digits": (),
    "attribute-shift": ("cifar10_jpeg.npz", "cifar10_1.npz"),
}
# What makes a scenario tiny; the protocol stays.
TINY = {
    "twofold": {"source_clients": 3, "per_source": 30, "test_clients": 3, "major": 6, "size": 18},
    "ttpfl": {"clients": 20, "source_clients": 15, "per_client": 20, "major": 6, "minor": 1},
    "ttpfl-domains": {"data": "pacs", "per_domain": 7, "most": 150, "size": 18},
    "upfl": {"data": "cifar10", "clients": 100, "test_share": 0.05},
    "upfl-rotation": {},
    "ttfl": {"clients": 2, "groups": 2, "slots": 1, "most": 500},
    "tgfl": {"clients": 10, "most": 600},
    "domain-shift": {"most": 60, "most_test": 30},
    "attribute-shift": {"clients": 4},
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
    found = table(store.find(experiment.run_name))
    store.close()
    return found


def smaller(whole, raw):
    """Overrides that make a shipped experiment tiny; methods and their options stay."""
    small = ["seeds=[0]"]
    for place, chosen in (("scenario", whole.scenario), ("test.scenario", whole.test_scenario)):
        if chosen is not None:
            small += [f"{place}.{key}={value}" for key, value in TINY[chosen.name].items() if key != "data"]
    if whole.model.name.startswith("resnet"):  # not tiny: MEMO steps through all its parameters for every image
        small += ["model=shallow-cnn"]
    # Where models are personal, whoever is tested has trained.
    everybody = whole.scenario.name in ("tgfl", "domain-shift", "attribute-shift")
    few = f"cohort={'all' if everybody else 1 if whole.scenario.name == 'ttfl' else 2}"
    for i, phase in enumerate(raw.get("phases", [])):
        small += [f"phases.{i}.{key}" for key in ("rounds=1", "keep_every=1", few)]
        small += [f"phases.{i}.local.epochs=1"] if "local" in phase else []
    for given, system in zip(raw["systems"], whole.systems, strict=True):
        own = given.get("phases", []) if isinstance(given, dict) else []
        small += [f"systems.{system.name}.phases.{i}.{key}" for i in range(len(own)) for key in ("rounds=1", few)]
        if system.adapter.name == "memo" and isinstance(given, dict) and "tune" in given:  # slow: a grid of one
            small += [f"systems.{system.name}.tune.lr=[0.005]"]
        counted = {i: "steps=2" if "steps" in p["local"] else "epochs=1" for i, p in enumerate(own) if "local" in p}
        small += [f"systems.{system.name}.phases.{i}.local.{few_steps}" for i, few_steps in counted.items()]
        small += [f"systems.{system.name}.adapter.copies=2"] if "copies" in system.adapter.options else []
    return small


# Fourteen systems on a ConvNet, or a hundred clients, take minutes; `fedtta-rotation` has the same systems.
# Of experiments that are alike one is run always, the others where slow tests are.
SLOW = {name for name in shipped() if name.startswith("fedtta-")} - {"fedtta-rotation"}
SLOW |= {"btfl-table1", "btfl-models", "btfl-lambda", "atp-digits", "atp-pacs", "tsa-plugin", "tsa-options"}
SLOW |= {"fedicon-ablation", "fedicon-digits", "atp-figure3", "tsa-fedamp", "tsa-rates"}
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in shipped()]


@pytest.mark.parametrize("name", NAMES)
def test_shipped_experiment_runs_one_tiny_round(name, here, tmp_path):
    whole = read(name)
    here(whole.scenario)
    small = smaller(whole, yaml.safe_load(shipped()[name].read_text(encoding="utf-8")))
    found = finish(read(name, small), tmp_path)
    assert [line.system for line in found.lines][: len(whole.systems)]
    assert all(len(cell.accuracy) == 1 for line in found.lines for cell in line.cells.values())


@pytest.mark.parametrize("name", TINY)
def test_fedavg_trains_on_every_scenario(name, here, tmp_path):
    raw = {
        "name": "tiny",
        "scenario": {"name": name, **TINY[name]},
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
    assert set(SCENARIOS) - set(TINY) == {"own", "nodes"}  # tried with files made by tests/scenarios and tests/flower


def test_attribute_shift_says_what_is_missing(monkeypatch, tmp_path):
    from acclimate.errors import MissingData

    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path))
    with pytest.raises(MissingData, match="cifar10"):
        SCENARIOS["attribute-shift"].load()().build(0)
