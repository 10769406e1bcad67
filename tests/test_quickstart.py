"""The quickstart on seeds that nobody chose: who helps and who harms, by more than two standard deviations."""

import statistics

import pytest

from acclimate.experiment.reader import read
from acclimate.experiment.run import STORE, run
from acclimate.report.table import table
from acclimate.store.database import Store


@pytest.fixture(scope="module")
def cells(tmp_path_factory, two_workers):
    experiment, runs = read("quickstart"), tmp_path_factory.mktemp("runs")
    assert experiment.seeds == (0, 1, 2)
    run(experiment, runs, executor=two_workers)
    store = Store(runs / STORE)
    found = table(store.runs()[0])
    store.close()
    return {line.system: line.cells for line in found.lines}


def gain(cells, system, stream):
    """Difference of the means to no adaptation, in units of the larger standard deviation over seeds."""
    with_, without = cells[system][stream].accuracy, cells["none"][stream].accuracy
    spread = max(statistics.stdev(with_), statistics.stdev(without))
    return (statistics.fmean(with_) - statistics.fmean(without)) / spread


@pytest.mark.parametrize("system", ["em", "bbse"])
def test_quickstart_shows_a_method_that_helps_under_label_shift(cells, system):
    assert gain(cells, system, "label") > 2


@pytest.mark.parametrize("system", ["bn-adapt", "tent"])
def test_quickstart_shows_a_method_that_helps_under_feature_shift(cells, system):
    assert gain(cells, system, "feature") > 2


@pytest.mark.parametrize("system", ["bn-adapt", "tent"])
def test_quickstart_shows_a_method_that_harms(cells, system):
    assert gain(cells, system, "label") < -2
    assert statistics.fmean(cells[system]["label"].harmed) > 0.9
