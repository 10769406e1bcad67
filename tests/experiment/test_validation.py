"""Source clients' validation parts as one more stream of a test."""

import pytest

import battery
from acclimate.errors import ConfigError
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.report.table import table
from acclimate.store.database import Store

ON = {"batch_size": 10, "validation": True}


def measured(experiment, runs):
    """The cells of every system, and the clients of the validation stream."""
    run(experiment, runs)
    store = Store(runs / STORE)
    found = store.find(experiment.run_name)
    made = table(found)
    clients = {entry.title: found.client_accuracies(entry, "validation") for entry in found.entries}
    notes = {kind: found.noted(kind) for kind in ("tuned", "selected", "taken")}
    store.close()
    return {line.title: line.cells for line in made.lines}, clients, notes


def test_validation_is_a_stream_like_every_other(tmp_path):
    plain, _, _ = measured(parse(battery.tiny()), tmp_path)
    cells, clients, notes = measured(parse(battery.tiny(test=ON)), tmp_path)
    assert list(cells["tent"]) == ["label", "feature", "validation"]
    assert all(len(cell.harmed) == 1 for cell in cells["tent"].values())
    assert clients["tent"][0].keys() == {0, 1, 2}  # the source clients
    for stream in ("label", "feature"):
        assert cells["tent"][stream] == plain["tent"][stream]
    assert notes["taken"] == {}  # another test: nothing is taken from the run without


def test_validation_stream_scores_what_tuning_scored(tmp_path):
    """The same adapter on the same unlabelled images from the same state: the same accuracy, to the bit."""
    system = {"name": "em", "tune": {"iterations": [1, 3]}}
    cells, _, notes = measured(parse(battery.tiny(systems=[system], test=ON)), tmp_path)
    note = notes["tuned"]["em", 0]
    assert cells["em"]["validation"].accuracy == [max(note["validation"].values())]


def test_validation_stream_of_a_selected_round_is_tested_with_it(tmp_path):
    phases = [{"name": "fedavg", "rounds": 2, "keep_every": 1}]
    system = {"name": "tent", "adapter": "tent", "select": "best-validation"}
    cells, _, notes = measured(parse(battery.tiny(phases=phases, systems=[system], test=ON)), tmp_path)
    note = notes["selected"]["tent", 0]
    assert cells["tent (best validation)"]["validation"].accuracy == [note["validation"][str(note["round"])]]
    assert cells["tent"]["validation"].accuracy == [note["validation"]["2"]]


def test_validation_decides_the_name_of_a_run_only_if_it_is_on():
    off, on = (parse(battery.tiny(test={"batch_size": 10, "validation": v})) for v in (False, True))
    assert off.run_name == parse(battery.tiny(test={"batch_size": 10})).run_name != on.run_name


def test_validation_with_another_test_scenario_is_refused():
    with pytest.raises(ConfigError, match=r"test.validation: expected no test.scenario beside it"):
        parse(battery.tiny(test={**ON, "scenario": "twofold"}))


def test_validation_without_validation_parts_is_refused(tmp_path):
    experiment = parse(battery.tiny(test=ON), ["scenario.validation=0"])
    with pytest.raises(ConfigError, match=r"test.validation: no source client of this scenario has a validation part"):
        run(experiment, tmp_path)
