"""The quickstart on seeds that nobody chose: who helps and who harms, surely, by paired differences over clients."""

import statistics

import pytest

from acclimate.experiment.reader import read
from acclimate.experiment.run import STORE, run
from acclimate.report.significance import clients, paired
from acclimate.store.database import Store
from acclimate.store.records import Entry


@pytest.fixture(scope="module")
def found(tmp_path_factory, two_workers):
    experiment, runs = read("quickstart"), tmp_path_factory.mktemp("runs")
    assert experiment.seeds == (0, 1, 2)
    run(experiment, runs, executor=two_workers)
    store = Store(runs / STORE)
    yield store.find(experiment.run_name)
    store.close()


def gain(found, system, stream, other="none"):
    return paired(clients(found, Entry(system), stream), clients(found, Entry(other), stream))


@pytest.mark.parametrize("system", ["em", "bbse"])
def test_quickstart_shows_a_method_that_helps_under_label_shift(found, system):
    assert gain(found, system, "label").low > 0


@pytest.mark.parametrize("system", ["bn-adapt", "tent", "careful"])
def test_quickstart_shows_a_method_that_helps_under_feature_shift(found, system):
    assert gain(found, system, "feature").low > 0


def test_quickstart_shows_a_method_that_harms_nearly_everybody(found):
    assert gain(found, "tent", "label").high < -10
    harmed = [one.harmed for one in found.scores() if (one.system, one.stream) == ("tent", "label")]
    assert statistics.fmean(harmed) > 0.9


@pytest.mark.parametrize("other", ["careful", "tuned"])
def test_quickstart_shows_that_care_costs_gain_and_saves_harm(found, other):
    """The whole trade-off: tent gains more where images change, and loses more where only classes do."""
    assert gain(found, "tent", "feature", other).low > 0
    assert gain(found, "tent", "label", other).high < 0
