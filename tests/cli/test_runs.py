"""Which run a name means, and taking runs away."""

import json
import sqlite3
from contextlib import closing

import pytest
import yaml

import battery
from acclimate.cli.runs import find
from acclimate.errors import AcclimateError, RunLocked
from acclimate.experiment.lock import lock
from acclimate.experiment.session import Session
from acclimate.store.database import Store

EXPERIMENT = battery.tiny(name="mine", systems=["em"])


@pytest.fixture(autouse=True)
def _experiment(tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(EXPERIMENT))


@pytest.fixture
def runs(tmp_path):
    """A folder with runs of these names, in this order, which measured nothing."""

    def make(*names):
        store = Store(tmp_path / "store.sqlite")
        for name in names:
            store.run(name, {"name": name.rpartition("-")[0]}, {})
        store.close()
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("mine", "mine-bb2"),  # the latest
        ("mine-aa1", "mine-aa1"),
        ("runs/mine-aa1", "mine-aa1"),
        ("mine-a", "mine-aa1"),
        ("mine-big", "mine-big-cc3"),
        ("mine-bi", "mine-big-cc3"),
        ("oth", "other-dd4"),
    ],
)
def test_find_takes_the_run_that_is_meant(runs, wanted, meant):
    assert find(runs("mine-aa1", "mine-bb2", "mine-big-cc3", "other-dd4"), wanted) == meant


@pytest.mark.parametrize(("wanted", "named"), [("mi", "mine, mine-big"), ("other-d", "other-dd4, other-dd5")])
def test_find_asks_only_where_several_are_meant(runs, wanted, named):
    folder = runs("mine-aa1", "mine-bb2", "mine-big-cc3", "other-dd4", "other-dd5")
    with pytest.raises(AcclimateError, match=f"'{wanted}' could be any of: {named}; write more"):
        find(folder, wanted)


def test_report_means_the_latest_run_and_list_says_which_it_is(call):
    call("run", "mine.yaml", "--workers", "1")
    call("run", "mine.yaml", "seeds=[1]", "--workers", "1")
    first, second = json.loads(call("list", "runs", "--json")[1])
    assert (first["short name"], second["short name"]) == (None, "mine")
    code, out, _ = call("report", "mine", "--text")
    assert code == 0
    assert f"Run {second['name']}\n" in out
    assert f"Run {first['name']}\n" in call("report", first["name"], "--text")[1]


def test_a_failed_start_leaves_no_run_behind(call, tmp_path):
    code, _, err = call("run", "mine.yaml", "scenario.major=200", "--workers", "1")
    assert code == 2
    assert "possible: about" in err
    assert call("list", "runs")[1] == "nothing here yet\n"
    assert not [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]


def test_a_run_that_fails_later_stays(call, monkeypatch):
    work = Session.seed

    def seed(session, seed, title):
        if seed == 1:
            raise AcclimateError("no more")
        work(session, seed, title)

    monkeypatch.setattr(Session, "seed", seed)
    code, _, err = call("run", "mine.yaml", "seeds=[0,1]", "--workers", "1")
    assert (code, err.splitlines()[-1]) == (2, "AcclimateError: no more")
    (run,) = json.loads(call("list", "runs", "--json")[1])
    assert run["finished"] is None
    assert "This run is not finished" in call("show", "mine")[1]


def test_delete_takes_a_run_and_what_it_measured(call, tmp_path):
    call("run", "mine.yaml", "--workers", "1")
    call("run", "mine.yaml", "seeds=[1]", "--workers", "1")
    first, second = (row["name"] for row in json.loads(call("list", "runs", "--json")[1]))
    table = call("show", first, "--json")[1]
    code, out, _ = call("runs", "delete", second, "--yes")
    assert (code, out) == (0, f"deleted: {second}\n")
    assert not (tmp_path / "runs" / second).exists()
    (left,) = json.loads(call("list", "runs", "--json")[1])
    assert (left["name"], left["short name"]) == (first, "mine")
    assert call("show", first, "--json")[1] == table
    with closing(sqlite3.connect(tmp_path / "runs" / "store.sqlite")) as db:
        ((left,),) = db.execute("SELECT id FROM run")
        for name in ("row", "figure", "paused", "server", "unit", "recipe", "note"):
            assert {run for (run,) in db.execute(f"SELECT DISTINCT run FROM {name}")} <= {left}


def test_delete_asks_first_and_never_takes_a_run_in_use(call, tmp_path):
    call("run", "mine.yaml", "--workers", "1")
    (run,) = (row["name"] for row in json.loads(call("list", "runs", "--json")[1]))
    code, _, err = call("runs", "delete", "mine")
    assert code == 2
    assert f"about to delete {run}; say --yes" in err
    with lock(tmp_path / "runs" / run / "lock"):
        code, _, err = call("runs", "delete", "mine", "--yes")
    assert code == 2
    assert RunLocked.__name__ in err
    assert (tmp_path / "runs" / run).exists()
