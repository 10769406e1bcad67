import numpy as np
import pytest
from PIL import Image

from acclimate.errors import ConfigError
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.report.table import table
from acclimate.scenarios.own import Own
from acclimate.scenarios.picture import picture
from acclimate.store.database import Store


@pytest.fixture
def folder(tmp_path):
    """Four clients with cats and dogs, one without labels."""
    rng = np.random.default_rng(0)
    for client in ("ann", "bob", "cid", "dan"):
        for label in ("cat", "dog"):
            place = tmp_path / "data" / client / label
            place.mkdir(parents=True)
            for i in range(6):
                Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(place / f"{i}.png")
    (tmp_path / "data" / "eve").mkdir()
    for i in range(6):
        Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(tmp_path / "data" / "eve" / f"{i}.png")
    return tmp_path / "data"


def test_own_clients_with_labels_train_and_the_others_are_new(folder):
    chosen = Own(folder=str(folder), test=("bob",)).plan(0)
    names = chosen.dataset.names["client"]
    assert {names[client] for client in chosen.source} == {"ann", "cid", "dan"}
    assert {names[s.client] for s in chosen.streams} == {"bob", "eve"}
    assert {(len(t.rows), len(c.rows)) for t, c in chosen.source.values()} == {(10, 2)}
    assert "without labels" in picture(Own(folder=str(folder), test=("bob",)).build(0))


def test_own_data_run_from_an_experiment_and_score_only_what_has_labels(folder, tmp_path):
    experiment = parse(
        {
            "name": "mine",
            "scenario": {"name": "own", "folder": str(folder), "test": ["bob"]},
            "model": "shallow-cnn",
            "phases": [{"name": "fedavg", "rounds": 1}],
            "systems": ["none", "tent"],
            "test": {"batch_size": 4},
        }
    )
    run(experiment, tmp_path / "runs")
    store = Store(tmp_path / "runs" / STORE)
    found = table(store.runs()[0])
    counts = [store._db.execute("SELECT sum(value) FROM row WHERE system = 'tent' AND metric = 'count'").fetchone()]
    store.close()
    assert counts == [(12.0,)]  # bob's; eve's six do not count
    assert all(0 <= line.cells["test"].accuracy[0] <= 1 for line in found.lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "expected one of folder and csv"), ({"test": ("bop",)}, "unknown client 'bop'; did you mean 'bob'")],
)
def test_own_data_names_what_is_wrong(folder, options, message):
    with pytest.raises(ConfigError, match=message):
        Own(**({"folder": str(folder), **options} if options else {})).plan(0)
