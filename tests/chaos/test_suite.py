"""A short part of the chaos suite; `make chaos` runs all of it."""

import pytest

from chaos import suite

SHORT = {"experiments": 60, "packs": 25, "states": 12, "replies": 4}


@pytest.mark.parametrize("part", SHORT)
def test_chaos_costs_only_itself(part):
    assert getattr(suite, part)(SHORT[part], seed=1) == []


@pytest.mark.slow
def test_run_that_is_killed_or_asked_to_end_goes_on():
    assert suite.kills(4, seed=1) == []
