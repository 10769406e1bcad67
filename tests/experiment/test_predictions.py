"""A user's own images without labels: predicted, written down, and said not to be scored."""

import csv
import io
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import acclimate as ac
from acclimate.errors import Damage, MissingData
from acclimate.report.text import render


@pytest.fixture
def clinics(tmp_path):
    """Three clients with labels and two without; class 'dark' is dark."""
    rng = np.random.default_rng(0)
    for client in ("east", "north", "west", "new", "newer"):
        for label, level in (("bright", 200), ("dark", 20)):
            for i in range(4):
                folder = tmp_path / "clinics" / client / ("" if client.startswith("new") else label)
                folder.mkdir(parents=True, exist_ok=True)
                pixels = (rng.integers(0, 50, (18, 18)) + level).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{label}-{i}.png")
    return tmp_path


def experiment(clinics, **more):
    return {
        "name": "clinics",
        "scenario": {"name": "own", "folder": str(clinics / "clinics"), "test": ["west"]},
        "model": "shallow-cnn",
        "phases": [{"name": "fedavg", "rounds": 12, "local": {"lr": 0.01, "epochs": 5, "batch_size": 4}}],
        "systems": ["none", {"name": "tent", "adapter": {"name": "tent", "lr": 1e-4}}, "fedavg+bn-adapt"],
        "test": {"batch_size": 3},
        **more,
    }


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predictions_of_clients_without_labels_are_written_and_the_table_says_who_was_not_scored(clinics):
    run = ac.run(experiment(clinics), runs=clinics / "runs", workers=1, progress=False)
    folder = run.folder / "predictions"
    assert sorted(file.name for file in folder.iterdir()) == [
        "fedavg+bn-adapt-seed-0.csv", "none-seed-0.csv", "tent-seed-0.csv",
    ]  # fmt: skip
    for file in folder.iterdir():
        rows = read(file)
        assert {row["client"] for row in rows} == {"new", "newer"}
        named = [(row["path"].rpartition("/")[2].partition("-")[0], row) for row in rows]
        assert len(named) == 16
        assert len({row["path"] for row in rows}) == 16
        assert all(0.5 <= float(row["probability"]) <= 1 and row["intervened"] == "no" for row in rows)
    rows = read(folder / "none-seed-0.csv")
    right = sum(row["path"].rpartition("/")[2].startswith(row["class"]) for row in rows)
    assert right == 16  # bright and dark are easily told apart: rows and paths belong together
    assert run.measured().unscored == {"test": [2, 3]}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(run.measured(), 200))
    assert "2 of 3 clients of stream 'test' have no labels and were not scored" in console.export_text()
    records = {record["system"]: record for record in run.table()}
    assert records["none"]["accuracy"] == 1.0  # of the one client that has labels

    before = (folder / "tent-seed-0.csv").read_text()
    (folder / "tent-seed-0.csv").unlink()
    again = ac.run(experiment(clinics, seeds=[0], name="other"), runs=clinics / "runs", workers=1, progress=False)
    assert (again.folder / "predictions" / "tent-seed-0.csv").read_text() == before  # taken from the other run


def test_validation_parts_beside_them_are_no_predictions(clinics):
    """Their figures are drawn too, by a guard for example, and are of images with labels."""
    watched = {"name": "watched", "adapter": {"name": "guard", "adapter": "bn-adapt"}}
    scenario = {**experiment(clinics)["scenario"], "validation": 0.25}
    given = experiment(clinics, scenario=scenario, systems=[watched], test={"batch_size": 3, "validation": True})
    run = ac.run(given, runs=clinics / "runs", workers=1, progress=False)
    assert {row["client"] for row in read(run.folder / "predictions" / "watched-seed-0.csv")} == {"new", "newer"}


def test_images_that_changed_since_are_told_of(clinics):
    given = experiment(clinics, systems=["none"])
    first = ac.run(given, runs=clinics / "runs", workers=1, progress=False)
    shutil.copy(clinics / "clinics" / "new" / "dark-0.png", clinics / "clinics" / "new" / "dark-9.png")
    with pytest.warns(Damage, match="the images have changed since: .* give the experiment another name"):
        again = ac.run(given, runs=clinics / "runs", workers=1, progress=False)
    assert again.table() == first.table()  # what was measured stays
    with closing(sqlite3.connect(clinics / "runs" / "store.sqlite")) as db, db:
        db.execute("UPDATE run SET finished = NULL")
        db.execute("DELETE FROM unit")
    with pytest.raises(MissingData, match="expected the images that this run has begun with, found others"):
        ac.run(given, runs=clinics / "runs", workers=1, progress=False)


def test_where_everybody_has_labels_nothing_is_written(clinics):
    for client in ("new", "newer"):
        shutil.rmtree(clinics / "clinics" / client)
    run = ac.run(experiment(clinics), runs=clinics / "runs", workers=1, progress=False)
    assert not (run.folder / "predictions").exists()
    assert run.measured().unscored == {}
