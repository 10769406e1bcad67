"""What a phase's file holds: the newest states, once; older files are read and gone on with."""

import sqlite3

import pytest

from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.sealed import sealed
from acclimate.errors import DamagedFile

BEFORE = """
CREATE TABLE server (round INTEGER PRIMARY KEY, kept INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE client (id INTEGER, round INTEGER, state BLOB NOT NULL, PRIMARY KEY (id, round)) WITHOUT ROWID;
CREATE TABLE metric (
    round INTEGER, client INTEGER, name TEXT, value REAL, PRIMARY KEY (round, client, name)) WITHOUT ROWID;
"""


def rows(path):
    db = sqlite3.connect(path)
    found = db.execute("SELECT id, round FROM client ORDER BY 1, 2").fetchall()
    db.close()
    return found


def test_checkpoint_does_not_write_a_state_again_that_did_not_change(tmp_path):
    saved = Checkpoint(tmp_path / "phase.sqlite")
    saved.commit(1, b"server", {0: b"same", 1: b"one"})
    assert [saved.client(id) for id in (0, 1)] == [b"same", b"one"]
    saved.commit(2, b"server", {0: b"same", 1: b"two"})
    assert rows(saved.path) == [(0, 1), (1, 2)]
    assert [saved.client(id) for id in (0, 1)] == [b"same", b"two"]


def test_checkpoint_keeps_states_of_kept_rounds_though_later_ones_are_equal(tmp_path):
    saved = Checkpoint(tmp_path / "phase.sqlite")
    for round, state in enumerate([b"a", b"a", b"b", b"a"], start=1):
        saved.client(0)
        saved.commit(round, b"server", {0: state}, keep=round in (2, 3))
    assert [saved.client(0, round) for round in (2, 3, 4)] == [b"a", b"b", b"a"]
    assert rows(saved.path) == [(0, 1), (0, 3), (0, 4)]


def test_checkpoint_reads_an_older_file_and_goes_on_with_it(tmp_path):
    path = tmp_path / "phase.sqlite"
    db = sqlite3.connect(path)
    db.executescript(BEFORE)
    db.execute("INSERT INTO server VALUES (1, 0, ?)", (sealed(b"server", "server 1"),))
    states = [(id, 1, sealed(state, f"client {id} 1")) for id, state in enumerate((b"old", b"older", b"left"))]
    db.executemany("INSERT INTO client VALUES (?, ?, ?)", states)
    db.commit()
    db.close()
    saved = Checkpoint(path)
    assert [saved.client(id) for id in (0, 1)] == [b"old", b"older"]
    saved.commit(2, b"server", {0: b"new", 1: b"newer"})
    saved.close()
    saved = Checkpoint(path)
    assert [saved.client(id) for id in (0, 1, 2)] == [b"new", b"newer", b"left"]


def test_checkpoint_notices_a_state_in_another_s_place(tmp_path):
    saved = Checkpoint(tmp_path / "phase.sqlite")
    saved.commit(1, b"server", {0: b"mine", 1: b"yours"})
    db = sqlite3.connect(saved.path)
    db.execute("UPDATE client SET state = x'00' WHERE id = 0")
    db.execute("UPDATE client SET (sum, state) = (SELECT sum, state FROM client WHERE id = 1) WHERE id = 0")
    db.commit()
    db.close()
    assert saved.client(1) == b"yours"
    with pytest.raises(DamagedFile, match="the state of client 0 was damaged"):
        saved.client(0)


def test_checkpoint_does_not_grow_with_the_rounds(tmp_path):
    saved, sizes = Checkpoint(tmp_path / "phase.sqlite"), []
    for round in range(1, 31):
        saved.commit(round, b"server", {id: bytes([round]) * 300_000 for id in range(4)})
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
    assert max(sizes[10:]) <= max(sizes[:10])
