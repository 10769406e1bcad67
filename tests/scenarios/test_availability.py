import numpy as np
import pytest

from acclimate.errors import ConfigError
from acclimate.experiment.reader import parse
from acclimate.scenarios.availability import AWAY, HERE, LATE, Availability
from battery import tiny


def share(table, what):
    return float((table == what).mean())


def lengths(table):
    """How long absences last."""
    edges = np.flatnonzero(np.diff(np.r_[0, table == AWAY, 0]))
    return edges[1::2] - edges[::2]


def test_availability_is_full_unless_told():
    assert Availability().full
    assert (Availability().table(0, 1, 0, 50) == HERE).all()
    assert not Availability(probability=0.9).full
    assert not Availability(late=0.1).full
    assert not Availability(periods=(1, 2)).full


@pytest.mark.parametrize("burst", [1.0, 10.0])
@pytest.mark.parametrize("probability", [0.1, 0.7])
def test_availability_has_its_share_of_time_whatever_the_burst(probability, burst):
    table = np.concatenate([Availability(probability, burst).table(0, client, 0, 2000) for client in range(40)])
    assert share(table, HERE) == pytest.approx(probability, abs=0.02)


def test_availability_bursts_last_longer():
    """Independent absences of probability 0.3 last 1 / 0.7 slots on average; with burst 5, five times as long."""
    for burst in (1.0, 5.0):
        table = Availability(0.7, burst).table(0, 1, 0, 200_000)
        assert lengths(table).mean() == pytest.approx(burst / 0.7, rel=0.05)


def test_availability_late_is_a_share_of_the_exchanges():
    table = Availability(probability=0.5, late=0.4).table(0, 1, 0, 50_000)
    assert share(table, LATE) / (1 - share(table, AWAY)) == pytest.approx(0.4, abs=0.02)


def test_availability_with_periods_is_every_so_many_slots():
    tables = [Availability(periods=(1, 3)).table(0, 9, position, 7) for position in range(3)]
    assert [np.flatnonzero(table == HERE).tolist() for table in tables] == [list(range(7)), [2, 5], list(range(7))]


def test_availability_depends_on_seed_and_client():
    some = Availability(probability=0.5)
    assert (some.table(0, 1, 0, 99) == some.table(0, 1, 3, 99)).all()
    assert (some.table(0, 1, 0, 99) != some.table(0, 2, 0, 99)).any()
    assert (some.table(0, 1, 0, 99) != some.table(1, 1, 0, 99)).any()


def test_availability_in_an_experiment_is_checked_with_its_path():
    experiment = parse(tiny(), ["scenario.availability.probability=0.4"])
    assert experiment.scenario.made.availability == Availability(probability=0.4)
    with pytest.raises(ConfigError, match=r"scenario.availability.probability: expected a number less"):
        parse(tiny(), ["scenario.availability.probability=4"])
    with pytest.raises(ConfigError, match=r"scenario.availability.bursts: unknown key.*burst"):
        parse(tiny(), ["scenario.availability.bursts=4"])
