"""Every file of a room is in the catalog and in docs/methods.md, with what it needs of a model."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import acclimate
import battery
from acclimate import params
from acclimate.engine.known import Known
from acclimate.errors import UnsupportedModel
from acclimate.experiment.catalog import ADAPTERS, ROOMS, TRAINING

PACKAGE = Path(acclimate.__file__).parent
DOCS = Path(__file__).resolve().parents[2] / "docs" / "methods.md"
SHARED = {
    "on_batches.py",
    "around.py",
    "mixing.py",
    "ts_bank.py",
    "ts_block.py",
    "ts_rows.py",
    "judging.py",
}  # not methods: what methods share, parts of TSA
ROOMS_OF_METHODS = ("training", "calibration", "adapters", "aggregators")
METHODS = [(room, name) for room in ROOMS_OF_METHODS for name in ROOMS[room]]


def documented():
    """docs/methods.md as (room, name) → row of cells."""
    rows, room = {}, ""
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            room = line[3:].strip().lower()
        if match := re.match(r"\| `([^`]+)` \|", line):
            rows[room, match[1]] = [cell.strip() for cell in line.strip("|").split("|")]
    return rows


@pytest.mark.parametrize("room", ROOMS_OF_METHODS)
def test_every_file_of_a_room_is_in_the_catalog(room):
    files = {path.name for path in (PACKAGE / room).glob("*.py")} - {"__init__.py"} - SHARED
    listed = {f"{entry.file}.py" for entry in ROOMS[room].values()}
    assert files == listed


@pytest.mark.parametrize(("room", "name"), METHODS)
def test_every_method_has_a_row_in_the_docs(room, name):
    assert (room, name) in documented()


def test_docs_name_no_method_that_is_not_there():
    assert set(documented()) == set(METHODS)


@pytest.mark.parametrize(("room", "name"), METHODS)
def test_every_method_fits_one_screenful_and_cites_its_paper(room, name):
    entry = ROOMS[room][name]
    entry.load()
    path = PACKAGE.parent / (entry.target.partition(":")[0].replace(".", "/") + ".py")
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 120
    if entry.paper:
        assert entry.paper in text.partition('"""\n')[0]


def without_normalisation(client=None):
    return nn.Sequential(nn.Flatten(), nn.Linear(324, 10))


def without_batch_norms(client=None):
    return nn.Sequential(nn.Flatten(), nn.LayerNorm(324), nn.Linear(324, 10))


def without_head(client=None):
    return nn.Sequential(nn.Conv2d(1, 10, 15), nn.BatchNorm2d(10), nn.AvgPool2d(4), nn.Flatten())


MODELS = {"normalisation": without_normalisation, "batch norms": without_batch_norms, "a head": without_head}


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("lacking", MODELS)
def test_adapter_on_a_model_without_the_needed_layers(name, lacking):
    lacks = {"normalisation": {"normalisation", "batch norms"}, "batch norms": {"batch norms"}, "a head": {"a head"}}
    needs = documented()["adapters", name][-1]

    def adapted():  # the phases that it needs may complain first
        model, knowledge = battery.knowledge(name, MODELS[lacking])
        net = params.load(MODELS[lacking](), model)
        return ADAPTERS[name].load()(net, **knowledge)

    if needs in lacks[lacking]:
        with pytest.raises(UnsupportedModel, match="Sequential has no") as error:
            adapted()
        assert "none" in str(error.value)  # an alternative is named
    else:
        assert adapted()(torch.rand(5, 1, 18, 18)).shape == (5, 10)


def mlp(client=None):
    return battery.build("mlp")(client)


@pytest.mark.parametrize("name", TRAINING)
def test_training_on_a_model_without_the_needed_layers(name):
    needs = documented()["training", name][-1]
    run = lambda: battery.run_phase(name, rounds=1, cohort="all", make=mlp)  # noqa: E731
    if needs == "normalisation":
        with pytest.raises(UnsupportedModel, match="MLP has none"):
            run()
    else:
        assert Known([run()]).of(0)["model"]
