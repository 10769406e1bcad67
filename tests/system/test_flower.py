"""The same experiment in this process and on a real SuperLink with two SuperNodes, with TLS and keys."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
import yaml

import battery
from acclimate import trees
from acclimate.experiment.baselines import with_baselines
from acclimate.experiment.cache import trained
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.store.database import Store
from acclimate.training.private import clipped

flwr = pytest.importorskip("flwr", reason="Flower is not installed (pip install -e '.[flower]')")

from acclimate.flower.app import make_app  # noqa: E402
from acclimate.flower.places import OnNodes  # noqa: E402
from system.deployment import Deployment, called, descendants, end_all, wait_for  # noqa: E402

pytestmark = pytest.mark.system

SYSTEMS = [
    {"name": "atp", "phases": [{"name": "atp", "rounds": 2}], "adapter": "atp"},
    "tsa+tta-bn",
    {"name": "heads", "phases": [{"name": "fedper", "rounds": 2}], "adapter": "tent"},
]


def experiment(name, systems, rounds=2):
    """Three clients that train and meet two streams of two slots each."""
    given = battery.tiny(
        name=name, systems=systems, phases=[{"name": "fedavg", "rounds": rounds}], test={"batch_size": 10}
    )
    given["scenario"]["new"] = False
    return parse(given)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("deployment")) as started:
        started.nodes(2)
        yield started


def measured(runs, name):
    """Everything but times."""
    with closing(Store(runs / STORE)) as store:
        found = store.find(name)
        assert found.finished
        return [{key: value for key, value in row.items() if "ms" not in key} for row in found.table()]


def states(experiment, cache, monkeypatch):
    """The servers' states at the end of all phases."""
    monkeypatch.setenv("ACCLIMATE_CACHE", str(cache))
    found, (population, _) = [], experiment.populations(0)
    for system in with_baselines(experiment.systems)[0]:
        with trained(system, population, 0) as known:
            found += [tensor for outcome in known.outcomes for tensor in trees.leaves(outcome.server)]
    return found


def test_a_deployment_gives_the_same_accuracies_and_tensors(deployment, tmp_path, monkeypatch):
    chosen = experiment("parity", SYSTEMS)
    there = OnNodes.of(chosen, deployment.folder / "runs")
    make_app(tmp_path / "app", chosen)
    code, printed = deployment.run(tmp_path / "app")
    assert code == 0, printed
    here = tmp_path / "cache"
    monkeypatch.setenv("ACCLIMATE_CACHE", str(here))
    run(chosen, tmp_path)
    assert measured(deployment.folder / "runs", there.run_name) == measured(tmp_path, chosen.run_name)
    ours = states(chosen, here, monkeypatch)
    theirs = states(there, deployment.folder / "cache", monkeypatch)
    assert len(ours) == len(theirs) > 20
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def kept(deployment, experiment):
    """The digests of the states that the first node keeps."""
    with closing(sqlite3.connect(deployment.folder / "of-node0" / experiment.run_name / "node.sqlite")) as db:
        return set(db.execute("SELECT digest FROM state"))


def test_a_killed_server_goes_on_to_the_same_result(deployment, tmp_path, monkeypatch):
    """With states on the clients, which are then a round ahead of the server's."""
    systems = [
        {"name": "drift", "phases": [{"name": "scaffold", "rounds": 3}], "adapter": "none"},
        {"name": "heads", "phases": [{"name": "fedper", "rounds": 2}], "adapter": "none"},
    ]
    chosen = experiment("killed", systems, rounds=1)
    there = OnNodes.of(chosen, deployment.folder / "runs")
    make_app(tmp_path / "app", chosen)
    begun = deployment.begin(tmp_path / "app")
    wait_for(lambda: "scaffold: 1/3" in deployment.log("run"), "the first round of SCAFFOLD", 600)
    node, superlink = (deployment.processes[name].pid for name in ("node0", "superlink"))
    wait_for(lambda: called(node, "flwr-clientapp"), "the second round", 300)
    (server,) = called(superlink, "flwr-serverapp")[:1]
    os.kill(server, signal.SIGSTOP)  # it never hears of what the node is about to finish
    before = kept(deployment, there)
    wait_for(lambda: kept(deployment, there) != before, "a node that is a round ahead", 300)
    os.kill(server, signal.SIGKILL)
    assert begun.wait(300) != 0  # though `flwr run` says that all is well
    code, printed = deployment.run(tmp_path / "app")
    assert code == 0, printed
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))
    run(chosen, tmp_path)
    assert measured(deployment.folder / "runs", there.run_name) == measured(tmp_path, chosen.run_name)


def test_a_failing_server_makes_the_command_fail(deployment, tmp_path):
    make_app(tmp_path / "app", experiment("failing", ["none"]))
    code, printed = deployment.run(tmp_path / "app", "nodes=3", "wait=1.0")
    assert code == 2
    assert "expected 3 node(s) within 1 s, found 2" in printed
    assert "the run on Flower ended as 'finished:failed'" in printed


def test_an_unregistered_key_is_refused(deployment):
    process = deployment.node(0, 2, "stranger", register=False)
    assert process.wait(120) != 0
    assert "Failed to activate SuperNode" in deployment.log("stranger")
    deployment.processes.pop("stranger")


def test_a_killed_node_costs_its_clients_and_the_run_finishes(deployment, tmp_path):
    """The last of these tests: one node is gone after it."""
    chosen = experiment("bereft", ["tent"], rounds=3)
    make_app(tmp_path / "app", chosen)
    begun = deployment.begin(tmp_path / "app")
    wait_for(lambda: "fedavg: 1/3" in deployment.log("run"), "the first round", 600)
    deployment.stop("node1", signal.SIGKILL)
    assert begun.wait(900) == 0, deployment.log("run")
    with closing(Store(deployment.folder / "runs" / STORE)) as store:
        rows = store.find(OnNodes.of(chosen).run_name).table()
    assert {row["system"] for row in rows} == {"none", "tent"}
    assert "never answered: 1 (client 1" in deployment.log("run")


def test_the_simulation_gives_the_same_numbers_and_leaves_no_process(tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(battery.tiny(systems=["fedavg+tent"])))
    how = {"cwd": tmp_path, "env": {**os.environ, "ACCLIMATE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}}
    tables = []
    for more in ([], ["--engine", "flower", "--workers", "2"]):
        command = [sys.executable, "-m", "acclimate", "run", "tiny.yaml", "--workers", "1", "--json", *more]
        done = subprocess.run(command, **how, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        lines = json.loads(done.stdout[done.stdout.index("{") :])["lines"]
        tables.append([(line["system"], line["cells"]) for line in lines])
    assert tables[0] == tables[1]
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [command for command in commands if str(tmp_path).encode() in command]


def test_the_page_works_word_for_word(tmp_path):
    text = (Path(__file__).resolve().parents[2] / "docs" / "flower.md").read_text(encoding="utf-8")
    *script, ending = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    beside = str(Path(sys.executable).parent)
    how = {"cwd": tmp_path, "env": {**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}}
    try:
        with (tmp_path / "printed").open("w") as printed:
            done = subprocess.run(
                ["bash", "-e", "-c", "\n".join(script)], **how, stdout=printed, stderr=subprocess.STDOUT, timeout=1500
            )
        printed = (tmp_path / "printed").read_text()
        assert done.returncode == 0, printed
        assert re.search(r"fedavg\+bn-adapt +│", printed)
        assert list((tmp_path / "runs").glob("quickstart-*-flower/exchanges.csv"))
    finally:
        started = [int(file.read_text()) for file in tmp_path.glob("*.pid")]
        family = [pid for one in started for pid in (one, *descendants(one))]
        subprocess.run(["bash", "-c", ending], **how)
        end_all(family)


def test_replies_are_clipped_as_by_flowers_own_modifier():
    from flwr.supercore.differential_privacy import compute_clip_model_update

    torch.manual_seed(0)
    sent = {"a": torch.randn(40, 3), "b": torch.randn(7)}
    update = {name: tensor + torch.randn(tensor.shape) for name, tensor in sent.items()}
    for norm in (0.5, 1000.0):
        theirs = [tensor.double().numpy() for tensor in update.values()]
        compute_clip_model_update(theirs, [tensor.double().numpy() for tensor in sent.values()], norm)
        ours = clipped(update, sent, norm)
        assert all(
            torch.allclose(a.double(), torch.from_numpy(b), atol=1e-6)
            for a, b in zip(ours.values(), theirs, strict=True)
        )
