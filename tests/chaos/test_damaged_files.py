"""Files that are cut, flipped, zeroed, too new or where nothing may be written: named, made again, or refused."""

import random
import sqlite3
import sys
import warnings

import numpy as np
import pytest
import yaml

import battery
from acclimate import cli
from acclimate.data.folders import cache_folder
from acclimate.data.sealed import _seen as looked_at
from acclimate.data.sealed import is_sound, write_sealed
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.sealed import sealed, unsealed
from acclimate.errors import Damage, DamagedFile
from acclimate.experiment.cache import sound_checkpoint
from acclimate.experiment.reader import parse
from acclimate.experiment.run import run
from acclimate.store import database
from acclimate.store.database import Store, Unit


def selected(store, sql, *values):
    """Rows of a store, as they are in the file."""
    return store._db.execute(sql, values).fetchall()


def flip(path, bits=20, seed=0, start=0):
    """Turn some bits of a file around."""
    content, draws = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(bits):
        content[draws.randrange(start, len(content))] ^= 1 << draws.randrange(8)
    path.write_bytes(bytes(content))


DAMAGES = {
    "20 flipped bits": flip,
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "zero bytes": lambda path: path.write_bytes(b""),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}


@pytest.fixture
def array(tmp_path):
    path = tmp_path / "images.npy"
    write_sealed(path, lambda file: np.save(file, np.arange(10_000, dtype=np.uint8).reshape(100, 10, 10, 1)))
    return path


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_array_is_noticed_and_removed(array, how):
    assert is_sound(array)
    DAMAGES[how](array)
    with pytest.warns(Damage, match="made again"):
        assert not is_sound(array)
    assert not array.exists()


@pytest.mark.parametrize("how", ["zero bytes", "cut in half"])
def test_damaged_array_from_before_there_were_sums_is_noticed(array, how):
    array.with_name("images.npy.sha256").unlink()
    DAMAGES[how](array)
    with pytest.warns(Damage):
        assert not is_sound(array)


def test_array_from_before_there_were_sums_gets_one(array):
    note = array.with_name("images.npy.sha256")
    note.unlink()
    looked_at.clear()
    assert is_sound(array)
    assert note.exists()


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """A tiny experiment that was run, with a cache of its own: its results and how to run it again from nothing."""
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))

    def again(runs):
        id = run(parse(battery.tiny()), tmp_path / runs)
        store = Store(tmp_path / runs / "store.sqlite")
        rows = selected(
            store, "SELECT * FROM row WHERE metric != 'seconds' AND run = ? ORDER BY 1,2,3,4,5,6,7,8,10", id
        )
        store.close()
        return [row[1:] for row in rows]

    return again("first"), again


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("which", ["images/*.npy", "phases/*/*.sqlite"])
def test_damage_never_changes_a_table(finished, how, which):
    first, again = finished
    for path in cache_folder().glob(which):
        DAMAGES[how](path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Damage)
        try:
            assert again("second") == first
        except DamagedFile as error:  # the state of a client is read only when it is needed
            assert "delete the file" in str(error)


def test_flipped_bits_of_a_state_are_noticed():
    for place in range(len(sealed(bytes(40), "round 1"))):  # in the blob, in the mark behind it, in the sum
        kept = bytearray(sealed(bytes(range(40)), "round 1"))
        kept[place] ^= 1
        with pytest.raises(DamagedFile):
            unsealed(bytes(kept), "round 1", "it")
    with pytest.raises(DamagedFile):
        unsealed(sealed(bytes(40), "round 1"), "round 2", "it")  # whole, but of another place
    for kept in (b"", b"short", b"from before there were sums, and long enough"):
        with pytest.raises(DamagedFile):
            unsealed(kept, "", "it")


def test_damaged_checkpoint_is_named_and_begins_anew(tmp_path):
    path = tmp_path / "phase.sqlite"
    saved = Checkpoint(path)
    saved.commit(0, bytes(500))
    saved._db.execute("UPDATE server SET state = ?", (b"\x01" + sealed(bytes(500), "server 0")[1:],))
    saved.close()
    with pytest.raises(DamagedFile, match="delete the file"):
        Checkpoint(path)
    with pytest.warns(Damage, match="made again"):
        assert sound_checkpoint(path).last() is None


def test_store_of_a_newer_version_says_so(tmp_path):
    path = tmp_path / "store.sqlite"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {database.VERSION + 1}")
    db.close()
    with pytest.raises(DamagedFile, match="newer version"):
        Store(path)


def test_store_from_before_there_were_versions_is_taken_over(tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store(path)
    store.run("a", {}, {})
    store._db.execute("PRAGMA user_version = 0")
    store.close()
    store = Store(path)
    assert [found.name for found in store.runs()] == ["a"]
    assert selected(store, "PRAGMA user_version") == [(database.VERSION,)]
    store.close()


def test_store_that_is_none_is_named(tmp_path):
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(DamagedFile, match="no store of acclimate"):
        Store(path)


def test_full_disk_says_so(tmp_path, monkeypatch, capsys):
    """SQLite is allowed no further page: the same error as on a full disk, from the same place."""
    opened = database._opened

    def small(path):
        db = opened(path)
        db.execute("PRAGMA max_page_count = 1")  # raised to the pages there are
        return db

    monkeypatch.setattr(database, "_opened", small)
    path = tmp_path / "e.yaml"
    path.write_text(yaml.safe_dump(battery.tiny(systems=["none"])))
    words = ["acclimate", "run", str(path), "--runs", str(tmp_path), "--workers", "1"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "disk full" in capsys.readouterr().err


def test_array_cut_short_by_a_full_disk_says_so():
    assert "disk full" in cli._told(OSError("1797 requested and 496 written"))  # NumPy's words, which have no number


def test_store_that_may_only_be_read_is_read(tmp_path, monkeypatch):
    store = Store(tmp_path / "store.sqlite")
    store.run("a", {"x": 1}, {})
    store.close()
    connect = sqlite3.connect

    def forbidding(path, *args, **options):
        if not options.get("uri"):
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return connect(path, *args, **options)

    monkeypatch.setattr(sqlite3, "connect", forbidding)
    store = Store(tmp_path / "store.sqlite")
    assert [found.name for found in store.runs()] == ["a"]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        store.finish(1)
    store.close()


def test_damaged_place_of_a_test_begins_it_again(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    unit = Unit(1, "tent", 0)
    commits = list(battery.run_test("tent", "fedavg"))
    store.commit(unit, commits[0])
    store.resume(unit)
    ((kept,),) = selected(store, "SELECT state FROM paused WHERE state IS NOT NULL LIMIT 1")
    damaged = kept[:99] + bytes([kept[99] ^ 1]) + kept[100:]
    store._db.execute("UPDATE paused SET state = ? WHERE state IS NOT NULL", (damaged,))
    with pytest.raises(DamagedFile):
        store.resume(unit)
    store.forget(unit)
    assert store.resume(unit).members == {}
    store.close()
