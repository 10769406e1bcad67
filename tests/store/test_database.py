import multiprocessing
import sqlite3

import pytest

from acclimate.engine.evaluate import Commit, Figure, Paused, Score
from acclimate.store.database import Store, Unit
from acclimate.trees import Parcel


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def score(client=0, slot=0, correct=1.0):
    return Score(client, "s", slot, "clean", {"correct": correct, "count": 2.0})


def test_store_knows_a_run_by_its_name(store):
    first = store.run("a", {"x": 1}, {"torch": "2"})
    assert store.run("a", {"x": 1}, {"torch": "2"}) == first
    assert store.run("b", {}, {}) != first
    assert [run.name for run in store.runs()] == ["a", "b"]
    assert store.runs()[0].experiment == {"x": 1}


def test_store_names_the_versions_of_all_sittings(store):
    run = store.run("a", {}, {"commit": "one", "torch": "2"})
    for commit in ("two", "one", "two"):
        assert store.run("a", {}, {"commit": commit, "torch": "2"}) == run
    assert store.runs()[0].versions == {"commit": "one, two", "torch": "2"}
    store.finish(run)
    store.run("a", {}, {"commit": "three", "torch": "2"})  # asked for again, nothing measured
    assert store.runs()[0].versions["commit"] == "one, two"


def test_store_resumes_where_the_last_commit_stood(store):
    unit = Unit(store.run("a", {}, {}), "tent", 0)
    store.commit(unit, Commit([score()], [], {0: Paused(1, Parcel(b"state"), [[1], [2]])}, {"s": (1, b"server")}))
    store.commit(unit, Commit([score(slot=1)], [], {0: Paused(2, None, [[2], [4]])}))
    found = store.resume(unit)
    assert found.members == {0: Paused(2, None, [[2], [4]])}
    assert found.servers == {"s": (1, b"server")}
    assert store.resume(unit._replace(seed=1)).members == {}
    assert store.accuracy(unit) == 0.5


def test_store_saves_all_of_a_commit_or_nothing(store, tmp_path):
    unit = Unit(store.run("a", {}, {}), "tent", 0)
    store.commit(unit, Commit([score()], [], {0: Paused(1, Parcel(b"state"), [])}))
    figure = Figure(0, "s", 1, b"")
    with pytest.raises(sqlite3.IntegrityError):  # slot 0 a second time: rows have a unique key
        store.commit(unit, Commit([score(slot=1), score()], [figure], {0: Paused(9, None, [])}))
    assert store.resume(unit).members == {0: Paused(1, Parcel(b"state"), [])}
    assert store._db.execute("SELECT count(*) FROM row").fetchall() == [(2,)]
    assert store._db.execute("SELECT count(*) FROM figure").fetchall() == [(0,)]


def test_store_drops_what_was_needed_to_resume_when_a_test_is_complete(store):
    unit = Unit(store.run("a", {}, {}), "tent", 0)
    store.commit(unit, Commit([score()], [], {0: Paused(1, None, [])}, {"s": (1, b"")}))
    assert not store.is_complete(unit)
    store.complete(unit, "recipe")
    assert store.is_complete(unit)
    assert store.resume(unit) == Commit()


def test_store_copies_a_test_of_the_same_recipe(store):
    first, second = (store.run(name, {}, {"commit": name}) for name in ("old", "new"))
    store.commit(Unit(first, "tent", 0), Commit([score()], [Figure(0, "s", 0, b"drawn")], {0: Paused(1, None, [])}))
    store.complete(Unit(first, "tent", 0), "recipe")
    ours = Unit(second, "mine", 0)
    assert store.take(ours, "another recipe") is None
    assert not store.is_complete(ours)
    assert store.take(ours, "recipe") == "old"
    assert store.is_complete(ours)
    assert store.accuracy(ours) == 0.5
    assert store._db.execute("SELECT system, content FROM figure WHERE run = ?", (second,)).fetchall() == [
        ("mine", b"drawn")
    ]
    assert store.notes(second, "taken") == {("mine", 0): "old"}
    assert [run.versions["commit"] for run in store.runs()] == ["old", "new, old"]


def test_store_prefers_a_finished_test_to_one_that_is_begun(store):
    first, second = Unit(store.run("a", {}, {}), "tent", 0), Unit(store.run("b", {}, {}), "tent", 0)
    store.commit(first, Commit([score(), score(slot=1, correct=2.0)], [], {0: Paused(2, None, [])}))
    store.complete(first, "recipe")
    store.commit(second, Commit([score()], [], {0: Paused(1, Parcel(b"state"), [])}, {"s": (1, b"server")}))
    assert store.take(second, "recipe") == "a"
    assert store.accuracy(second) == 0.75
    assert store.resume(second) == Commit()


def test_store_keeps_notes_of_many_kinds(store):
    run = store.run("a", {}, {})
    store.note(run, "tent", 0, "tuned", {"lr": 0.1})
    store.note(run, "tent", 0, "tuned", {"lr": 0.2})
    assert store.notes(run, "tuned") == {("tent", 0): {"lr": 0.2}}


def test_store_adds_up_the_work_of_all_sittings(store):
    run = store.run("a", {}, {})
    store.run("b", {}, {})
    assert store.find("a").worked is None
    store.add_work(run, 20.0)
    store.add_work(run, 1.5)
    assert (store.find("a").worked, store.find("b").worked) == (21.5, None)


def write_many(path, name):
    store = Store(path)
    unit = Unit(store.run(name, {}, {}), "tent", 0)
    for slot in range(50):
        store.commit(unit, Commit([score(slot=slot)], [], {0: Paused(slot + 1, Parcel(b"x" * 1000), [])}))
    store.close()


def test_store_takes_two_runs_at_once(tmp_path):
    path = tmp_path / "store.sqlite"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    store = Store(path)
    assert store._db.execute("SELECT run, count(*) FROM row GROUP BY run").fetchall() == [(1, 100), (2, 100)]
    store.close()
