"""Nodes with images of their own, on a real SuperLink: predictions stay there, and one that hangs costs itself."""

import csv
import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest
import torch

import acclimate as ac
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE
from acclimate.store.database import Store
from flower.test_own_data import draw

pytest.importorskip("flwr", reason="Flower is not installed (pip install -e '.[flower]')")

from acclimate.flower.app import make_app
from system.deployment import Deployment, called, descendants, wait_for

pytestmark = pytest.mark.system

NAMES = ("north", "south")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    """The south has labels for what it meets, the north has none."""
    folder = tmp_path_factory.mktemp("owning")
    for n, name in enumerate(NAMES):
        draw(folder / "images" / name / "train" / "dark", 12, 70, n)
        draw(folder / "images" / name / "train" / "light", 12, 180, 10 + n)
    draw(folder / "images" / "north" / "test", 9, 180, 20)
    draw(folder / "images" / "south" / "test" / "dark", 5, 70, 30)
    draw(folder / "images" / "south" / "test" / "light", 5, 180, 31)
    with Deployment(folder / "deployment") as started:
        for name in NAMES:
            started.node(0, 1, f"{name}-key", data=str(folder / "images" / name), name=name)
        for name in NAMES:
            wait_for(lambda name=name: "SuperNode ID" in started.log(f"{name}-key"), f"the SuperNode of the {name}")
        yield started


def experiment(name, rounds):
    return parse({
        "name": name,
        "scenario": {"name": "nodes", "labels": ["dark", "light"], "size": 18},
        "model": "shallow-cnn",
        "phases": [{"name": "fedavg", "rounds": rounds, "local": {"lr": 0.05}}],
        "systems": ["fedavg+bn-adapt"],
        "test": {"batch_size": 3},
        "seeds": [0],
    })  # fmt: skip


def found(deployment, name):
    with closing(Store(deployment.folder / "runs" / STORE)) as store:
        run = next(run for run in store.runs() if run.name.startswith(name))
        return run.name, run.finished, {entry.system: set(c) for (entry, _, _), c in run.counts.items()}


def test_nodes_train_exchange_and_predict_on_images_that_stay_there(deployment, tmp_path):
    make_app(tmp_path / "app", experiment("owning", rounds=2))
    code, printed = deployment.run(tmp_path / "app")
    assert code == 0, printed
    assert "'north', with 24 images to train on and 9 to meet" in printed
    name, finished, tested = found(deployment, "owning")
    assert finished
    assert tested["fedavg+bn-adapt"] == {0, 1}
    (file,) = (deployment.folder / "of-north-key").glob("*/predictions/fedavg+bn-adapt-seed-0.csv")
    with file.open(newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == 9
    assert not list((deployment.folder / "of-south-key").glob("*/predictions/*"))  # all of its images have labels

    bundle = tmp_path / "bundle"
    command = [sys.executable, "-m", "acclimate", "export", name, "fedavg+bn-adapt", "-o", str(bundle)]
    done = subprocess.run(command, **deployment.how(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    logits = ac.load(bundle)(torch.rand(3, 3, 18, 18))
    assert logits.shape == (3, 2)


def test_a_node_that_hangs_costs_itself_and_the_run_finishes(deployment, tmp_path):
    """The last of these tests: one node does not come back from it."""
    make_app(tmp_path / "app", experiment("hanging", rounds=3))
    begun = deployment.begin(tmp_path / "app", "deadline=40.0")
    wait_for(lambda: "fedavg: 1/3" in deployment.log("run"), "the first round", 600)
    node = deployment.processes["south-key"].pid
    wait_for(lambda: called(node, "flwr-clientapp"), "the second round", 300)
    hanging = [node, *descendants(node)]
    for pid in hanging:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert begun.wait(900) == 0, deployment.log("run")
    finally:
        for pid in hanging:
            os.kill(pid, signal.SIGCONT)
    _, finished, tested = found(deployment, "hanging")
    assert finished
    assert 0 in tested["fedavg+bn-adapt"]
    assert "never answered: 1 (client 1" in deployment.log("run")
