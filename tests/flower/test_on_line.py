"""The same experiment in this process and on nodes: the same numbers; what travels, what stays, and who is lost."""

from contextlib import closing

import pytest

import battery
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.flower.executor import OnLine
from acclimate.flower.places import OnNodes
from acclimate.store.database import Store
from flower.inside import Inside

SYSTEMS = [
    {"name": "atp", "phases": [{"name": "atp", "rounds": 2}], "adapter": "atp"},
    "tsa+tta-bn",
    {"name": "drift", "phases": [{"name": "scaffold", "rounds": 2}], "adapter": "tent", "tune": {"lr": [0.01, 0.1]}},
    {"name": "heads", "phases": [{"name": "fedper", "rounds": 2}], "adapter": "tent", "aggregator": "fedavg"},
]


def experiment(**more):
    given = battery.tiny(systems=SYSTEMS, test={"batch_size": 5}, **more)
    given["scenario"]["new"] = False
    return parse(given)


def measured(folder, name):
    with closing(Store(folder / STORE)) as store:
        found = store.find(name)
        assert found.finished
        rows = [{k: v for k, v in row.items() if "ms" not in k} for row in found.table()]
        figures = [(d.entry, d.client, d.slot, d.content) for s in found.streams for d in found.figures(s)]
    return rows, sorted(map(repr, figures))


def on_nodes(folder, chosen, line, **more):
    there = OnNodes.of(chosen)
    executor = OnLine(line, there, say=lambda text: None, **more)
    executor.greet()
    run(there, folder, executor=executor)
    return measured(folder, there.run_name), executor


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    chosen = experiment()
    run(chosen, folder)
    return measured(folder, chosen.run_name)


def test_nodes_give_the_same_numbers_and_figures(alone, tmp_path):
    found, _ = on_nodes(tmp_path / "runs", experiment(), Inside(tmp_path))
    assert found == alone
