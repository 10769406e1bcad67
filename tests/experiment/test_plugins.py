"""Methods, models and scenarios of a user's own, named in an experiment file."""

import shutil
import subprocess
import sys
import textwrap

import pytest
import yaml

import battery
from acclimate.engine.executor import Processes, Serial
from acclimate.errors import ConfigError
from acclimate.experiment.reader import parse, read
from acclimate.experiment.run import run
from acclimate.plugins import listed
from acclimate.store.database import Store

MINE = """
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from acclimate.adapters.none import NoAdaptation
from acclimate.aggregators.fedavg import FedAvg as Mean
from acclimate.contracts import Adapter
from acclimate.options import Decay
from acclimate.scenarios.twofold import Twofold
from acclimate.training.fedavg import FedAvg


class Average(NamedTuple):
    mean: Tensor


class Smooth(Adapter):
    def __init__(self, net: nn.Module, *, momentum: Decay = 0.9) -> None:
        super().__init__(net)
        self.momentum, self.mean = momentum, torch.zeros(10)

    @torch.no_grad()
    def adapt(self, x: Tensor) -> None:
        self.mean = self.momentum * self.mean + (1 - self.momentum) * self.net(x).mean(0)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.net(x) - self.mean

    def state(self):
        return Average(self.mean.clone())

    def load_state(self, state) -> None:
        self.mean = state.mean.clone()

    def shared(self):
        return {"mean": self.mean.clone()}

    def load_shared(self, shared) -> None:
        self.mean = shared["mean"].clone()


@dataclass(frozen=True)
class Training(FedAvg):
    extra: int = 1


@dataclass(frozen=True)
class Half(Mean):
    pass


@dataclass(frozen=True)
class Day(Twofold):
    pass


class Net(nn.Module):  # as torchvision's: told nothing but the number of classes
    def __init__(self, num_classes: int = 1000, width: int = 4) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.LazyLinear(num_classes)
        self.forward(torch.zeros(2, 1, 18, 18))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.bn(self.conv(x)).relu().flatten(1))


def small(num_classes: int) -> nn.Module:
    return Net(num_classes, width=2)


def like_torchvision(*, weights: str | None = None, **more: int) -> nn.Module:
    return Net(**more)


ready = nn.Linear(1, 1)


class Nothing:
    pass
"""


def everything(**more):
    """An experiment in which everything is a plug-in."""
    raw = battery.tiny(
        model="./mine.py:Net",
        phases=[{"name": "./mine.py:Training", "rounds": 1}],
        systems=[{"name": "own", "adapter": {"name": "./mine.py:Smooth", "momentum": 0.5},
                  "aggregator": "./mine.py:Half"}],
        **more,
    )  # fmt: skip
    raw["scenario"]["name"] = "./mine.py:Day"
    return raw


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(everything()))
    return tmp_path


def accuracies(runs):
    store = Store(runs / "store.sqlite")
    rows = sorted(
        store._db.execute("SELECT system, client, slot, metric, value FROM row WHERE metric IN ('correct', 'count')")
    )
    store.close()
    return rows


def test_plugins_of_every_kind_run_the_same_with_workers_and_say_what_they_imported(folder):
    experiment = read(folder / "mine.yaml")
    assert set(experiment.imports.values()) == {str(folder / "mine.py")}
    assert set(experiment.imports) == {f"./mine.py:{name}" for name in ("Day", "Net", "Training", "Smooth", "Half")}
    said = []

    class Listener:
        begin = step = end = lambda *_: None
        say = lambda _, text: said.append(text)  # noqa: E731

    run(experiment, folder / "one", listener=Listener())
    shutil.rmtree(folder / "one" / experiment.run_name)
    with Processes(2) as executor:
        run(experiment, folder / "two", executor=executor)
    assert accuracies(folder / "one") == accuracies(folder / "two") != []
    assert f"imported {folder / 'mine.py'} for './mine.py:Smooth'" in said


def test_plugin_is_resumed_in_another_process(folder):
    """The state on disk is a NamedTuple of the plug-in: whoever resumes finds its class again."""
    words = [sys.executable, "-m", "acclimate", "run", "mine.yaml", "--workers", "1", "--json"]
    script = (
        "import os, sys, acclimate.store.database as d; commit = d.Store.commit\n"
        "def killed(self, *a):\n    commit(self, *a)\n    os._exit(9)\n"
        "d.Store.commit = killed\n"
        "import runpy; sys.argv = sys.argv[1:]; runpy.run_module('acclimate', run_name='__main__')"
    )
    environment = {"ACCLIMATE_COMMIT_SECONDS": "0", "ACCLIMATE_CACHE": str(folder / "cache"), **_environment()}
    first = subprocess.run([sys.executable, "-c", script, *words[2:]], cwd=folder, env=environment, check=False)
    assert first.returncode == 9
    text = (folder / "mine.py").read_text()
    (folder / "mine.py").write_text("# a comment changes nothing\n" + text)
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    run(read(folder / "mine.yaml"), folder / "whole", executor=Serial())
    assert accuracies(folder / "runs") == accuracies(folder / "whole")


def _environment():
    import os

    return {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "HOME", "OMP_NUM_THREADS") if key in os.environ}


def test_plugin_source_is_part_of_the_digest(folder):
    before = read(folder / "mine.yaml")
    (folder / "mine.py").write_text("# nothing\n" + MINE)
    assert read(folder / "mine.yaml").run_name == before.run_name
    (folder / "mine.py").write_text(MINE.replace("self.net(x) - self.mean", "self.net(x) + self.mean"))
    after = read(folder / "mine.yaml")
    assert after.run_name != before.run_name
    assert after.systems[0].adapter.target is not before.systems[0].adapter.target


def test_plugin_package_and_what_it_imports_of_itself_are_in_the_digest(folder, monkeypatch):
    package = folder / "ownpackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("SHIFT = 1\n")
    (package / "method.py").write_text(
        "from acclimate.adapters.none import NoAdaptation\nfrom .helper import SHIFT\n\n\n"
        "class Shifted(NoAdaptation):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    raw = battery.tiny(systems=["ownpackage.method:Shifted"])
    from acclimate.experiment.outside import Outside
    from acclimate.experiment.source import covered

    experiment = parse(raw, outside=Outside())
    assert experiment.systems[0].adapter.target.__name__ == "Shifted"
    assert {"ownpackage.method", "ownpackage.helper"} <= covered(experiment.systems[0].adapter.modules)


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        ("adapter", "./mine.py:Smoth", "'./mine.py' has no 'Smoth'; it has: Average, Smooth"),
        ("adapter", "./other.py:Smooth", "other.py; a path is relative to the file that names it"),
        ("adapter", "no_such_package.x:Smooth", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("adapter", "./mine.py:Nothing", "expected an adapter, a subclass of acclimate.Adapter; './mine.py:Nothing'"),
        ("adapter", "./mine.py:Training", "'./mine.py:Training' is a class"),
        ("adapter", "./mine.py:small", "'./mine.py:small' is a function"),
        ("aggregator", "./mine.py:Smooth", "expected an aggregator, a subclass of acclimate.Aggregator"),
        ("model", "./mine.py:Nothing", "expected a model, a subclass of torch.nn.Module or a function that makes one"),
        ("model", "./mine.py:ready", "'./mine.py:ready' is a Linear"),
        ("adapter", {"name": "./mine.py:Smooth", "momentm": 1}, "momentm: unknown key; did you mean 'momentum'"),
        ("adapter", {"name": "./mine.py:Smooth", "momentum": 1}, "momentum: expected a number less than 1; found 1"),
    ],
)
def test_plugin_problems_read_as_the_catalogs(folder, key, name, said):
    raw = {**everything()}
    if key == "model":
        raw[key] = name
    else:
        raw["systems"][0][key] = name
    (folder / "mine.yaml").write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError) as error:
        read(folder / "mine.yaml")
    assert said in str(error.value)


def test_plugin_that_fails_at_import_or_lacks_methods_is_a_message(folder):
    (folder / "mine.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"importing './mine.py:Net' failed: ZeroDivisionError: division by zero"):
        read(folder / "mine.yaml")
    (folder / "mine.py").write_text(
        textwrap.dedent("""
        from acclimate.contracts import Aggregator
        class Half(Aggregator):
            def init(self, start): ...
    """)
    )
    with pytest.raises(ConfigError, match=r"'./mine.py:Half' does not implement mix"):
        read(folder / "mine.yaml")


def test_plugins_are_imported_for_an_experiment_file_that_the_user_names_and_for_nothing_else(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=r"unknown './mine.py:Day'"):
        parse(everything())


def test_plugin_is_a_system_by_itself_or_behind_an_aggregator(folder):
    raw = battery.tiny(systems=["./mine.py:Smooth", "fedavg+./mine.py:Smooth"])
    (folder / "mine.yaml").write_text(yaml.safe_dump(raw))
    alone, both = read(folder / "mine.yaml").systems
    assert alone.adapter.name == both.adapter.name == "./mine.py:Smooth"
    assert (alone.aggregator, both.aggregator.name) == (None, "fedavg")


def test_plugin_model_as_a_function_gets_only_what_it_asks_for(folder):
    raw = everything(seeds=[1])
    raw["model"] = "./mine.py:small"
    (folder / "mine.yaml").write_text(yaml.safe_dump(raw))
    experiment = read(folder / "mine.yaml")
    net = experiment.model.build(experiment.scenario.made.build(0))(None)
    assert net.conv.out_channels == 2
    assert net.fc.out_features == 10
    raw["model"] = "./mine.py:like_torchvision"
    (folder / "mine.yaml").write_text(yaml.safe_dump(raw))
    experiment = read(folder / "mine.yaml")
    assert experiment.model.build(experiment.scenario.made.build(0))(None).fc.out_features == 10


def test_two_listed_plugins_of_one_name_are_refused_but_one_may_be_listed_twice(folder):
    (folder / "other.py").write_text(MINE + "\nOTHER = True\n")
    mine, other = f"{folder}/mine.py:Smooth", f"{folder}/other.py:Smooth"
    with pytest.raises(
        ValueError, match=r"two plug-ins are called 'Smooth', one of \w*mine_\w+ and one of \w*other_\w+"
    ):
        listed([mine, other])
    once = listed([mine])
    assert listed([mine, once["Smooth"]]) == once
