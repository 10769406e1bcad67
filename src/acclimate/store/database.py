"""Runs and what they measured, in one SQLite file that several runs may write to at once.

Scores and the place up to which a stream was tested are saved in one transaction, so there are never rows that
a resumed stream would measure again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from acclimate.engine.sealed import sealed, unsealed
from acclimate.errors import DamagedFile
from acclimate.store.records import SELECTED, TEST
from acclimate.store.run import ALL, WORKED, Run

if TYPE_CHECKING:  # they need torch, which takes longer to import than a report to write
    from acclimate.engine.checkpoint import Metric
    from acclimate.engine.evaluate import Commit, Resume
    from acclimate.trees import Parcel

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, experiment TEXT NOT NULL, versions TEXT NOT NULL,
    started TEXT NOT NULL, finished TEXT);
CREATE TABLE IF NOT EXISTS row (
    run INTEGER, system TEXT, seed INTEGER, phase TEXT, round INTEGER, client INTEGER, stream TEXT,
    slot INTEGER, shift TEXT, metric TEXT, value REAL,
    PRIMARY KEY (run, system, seed, phase, round, client, stream, slot, metric)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS paused (
    run INTEGER, system TEXT, seed INTEGER, phase TEXT, member INTEGER, slot INTEGER, state BLOB, tally TEXT,
    welcomed BLOB, PRIMARY KEY (run, system, seed, phase, member)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS server (
    run INTEGER, system TEXT, seed INTEGER, phase TEXT, stream TEXT, slot INTEGER, state BLOB,
    PRIMARY KEY (run, system, seed, phase, stream)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS figure (
    run INTEGER, system TEXT, seed INTEGER, phase TEXT, client INTEGER, stream TEXT, slot INTEGER, content BLOB,
    PRIMARY KEY (run, system, seed, phase, client, stream, slot)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unit (
    run INTEGER, system TEXT, seed INTEGER, phase TEXT, PRIMARY KEY (run, system, seed, phase)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS recipe (
    run INTEGER, system TEXT, seed INTEGER, phase TEXT, digest TEXT,
    PRIMARY KEY (run, system, seed, phase)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS recipes ON recipe (digest);
CREATE TABLE IF NOT EXISTS note (
    run INTEGER, system TEXT, seed INTEGER, name TEXT, value TEXT,
    PRIMARY KEY (run, system, seed, name)) WITHOUT ROWID;
"""

VERSION = 1  # of the tables: 0 had SELECTED as an ending of the system's name instead of a phase
_TEST = "test"  # the place of its states, for their sums
_UNIT = "WHERE run = ? AND system = ? AND seed = ? AND phase = ?"
_MEASURED = {
    "row": "round, client, stream, slot, shift, metric, value",
    "figure": "client, stream, slot, content",
}
_RESUMED = ("paused", "server")
_TAKEN = {TEST: "taken", SELECTED: "taken selected"}  # the note of a test that another run has measured


class Unit(NamedTuple):
    """One test of one system on one seed; phase TEST or SELECTED, or a name for what it helps to choose."""

    run: int
    system: str
    seed: int
    phase: str = TEST


class Store:
    """The database of a folder of runs."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = _opened(path)

    def close(self) -> None:
        self._db.close()

    def run(self, name: str, experiment: dict[str, Any], versions: dict[str, str]) -> int:
        """The id of a run, new or known; what another sitting used is named beside what was used before."""
        with _all_or_nothing(self._db):
            self._db.execute(
                "INSERT OR IGNORE INTO run (name, experiment, versions, started) VALUES (?, ?, ?, ?)",
                (name, json.dumps(experiment), json.dumps(versions), _now()),
            )
            found = self._db.execute("SELECT id, versions FROM run WHERE name = ?", (name,)).fetchone()
            together = json.dumps(_united(json.loads(found[1]), versions))
            self._db.execute("UPDATE run SET versions = ? WHERE id = ? AND finished IS NULL", (together, found[0]))
        return int(found[0])

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        found = self._db.execute("SELECT id, name, experiment, versions, started, finished FROM run")
        return [
            Run(id, name, json.loads(experiment), json.loads(versions), started, finished, self._db)
            for id, name, experiment, versions, started, finished in found
        ]

    def find(self, name: str) -> Run | None:
        """A run by its whole name."""
        return next((run for run in self.runs() if run.name == name), None)

    def finish(self, run: int) -> None:
        """Remember that everything asked for was measured."""
        self._db.execute("UPDATE run SET finished = ? WHERE id = ? AND finished IS NULL", (_now(), run))

    def has_measured(self, run: int) -> bool:
        """Whether anything of a run, or of its training, would be lost with it."""
        found = (
            self._db.execute(f"SELECT 1 FROM {table} WHERE run = ? LIMIT 1", (run,)) for table in ("row", "paused")
        )
        return any(rows.fetchone() is not None for rows in found)

    def delete(self, name: str) -> None:
        """Forget a run and all it measured; what others took from it, they have copied."""
        with _all_or_nothing(self._db):
            (id,) = self._db.execute("SELECT id FROM run WHERE name = ?", (name,)).fetchone() or (None,)
            for table in (*_MEASURED, *_RESUMED, "unit", "recipe", "note"):
                self._db.execute(f"DELETE FROM {table} WHERE run = ?", (id,))
            self._db.execute("DELETE FROM run WHERE id = ?", (id,))

    def note(self, run: int, system: str, seed: int, name: str, value: Any) -> None:
        """Something worth telling about a run: what was chosen, what was sent once, who is compared with whom."""
        text = json.dumps(value, default=lambda tensor: tensor.tolist())
        self._db.execute("INSERT OR REPLACE INTO note VALUES (?, ?, ?, ?, ?)", (run, system, seed, name, text))

    def notes(self, run: int, name: str) -> dict[tuple[str, int], Any]:
        """Notes of one kind by system and seed."""
        found = self._db.execute("SELECT system, seed, value FROM note WHERE run = ? AND name = ?", (run, name))
        return {(system, seed): json.loads(value) for system, seed, value in found}

    def add_work(self, run: int, seconds: float) -> None:
        """Count the time that a sitting has worked on a run."""
        self.note(run, "", ALL, WORKED, self.notes(run, WORKED).get(("", ALL), 0.0) + seconds)

    def commit(self, unit: Unit, commit: Commit) -> None:
        """Save a piece of a test: scores, figures and where everybody stands, or nothing."""
        with _all_or_nothing(self._db):
            self._db.executemany(
                "INSERT INTO row VALUES (?, ?, ?, ?, -1, ?, ?, ?, ?, ?, ?)",
                (
                    (*unit, score.client, score.stream, score.slot, score.shift, metric, value)
                    for score in commit.scores
                    for metric, value in score.values.items()
                ),
            )
            self._db.executemany(
                "INSERT INTO figure VALUES (?, ?, ?, ?, ?, ?, ?, ?)", ((*unit, *f) for f in commit.figures)
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO paused VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (*unit, m, p.slot, _sealed(p.state), json.dumps(p.tally), _sealed(p.welcomed))
                    for m, p in commit.members.items()
                ),
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO server VALUES (?, ?, ?, ?, ?, ?, ?)",
                ((*unit, stream, slot, sealed(state, _TEST)) for stream, (slot, state) in commit.servers.items()),
            )

    def resume(self, unit: Unit) -> Resume:
        """Where a test stands."""
        from acclimate.engine.evaluate import Commit, Paused

        members = self._db.execute(f"SELECT member, slot, state, tally, welcomed FROM paused {_UNIT}", unit)
        servers = self._db.execute(f"SELECT stream, slot, state FROM server {_UNIT}", unit)
        return Commit(
            members={
                m: Paused(slot, _parcel(state), json.loads(tally), _parcel(welcomed))
                for m, slot, state, tally, welcomed in members
            },
            servers={s: (slot, unsealed(state, _TEST, "where the server stands")) for s, slot, state in servers},
        )

    def begin(self, unit: Unit, recipe: str) -> None:
        """Before a test goes on: what was begun of something else is dropped."""
        before = self.notes(unit.run, _begun(unit)).get((unit.system, unit.seed), recipe)
        if before != recipe:
            self.forget(unit)
        self.note(unit.run, unit.system, unit.seed, _begun(unit), recipe)

    def forget(self, unit: Unit) -> None:
        """Drop all that a test has measured so far."""
        with _all_or_nothing(self._db):
            for table in (*_MEASURED, *_RESUMED):
                self._db.execute(f"DELETE FROM {table} {_UNIT}", unit)

    def complete(self, unit: Unit, recipe: str) -> None:
        """Mark a test as finished, remember what it was made of, and drop what was only needed to resume it."""
        with _all_or_nothing(self._db):
            self._db.execute("INSERT OR IGNORE INTO unit VALUES (?, ?, ?, ?)", unit)
            self._db.execute("INSERT OR REPLACE INTO recipe VALUES (?, ?, ?, ?, ?)", (*unit, recipe))
            begun = (unit.run, unit.system, unit.seed, _begun(unit))
            self._db.execute("DELETE FROM note WHERE run = ? AND system = ? AND seed = ? AND name = ?", begun)
            for table in _RESUMED:
                self._db.execute(f"DELETE FROM {table} {_UNIT}", unit)

    def take(self, unit: Unit, recipe: str) -> str | None:
        """Copy a finished test of the same recipe, also over a begun one; the name of the run that measured it."""
        with _all_or_nothing(self._db):
            found = self._db.execute("SELECT run, system, seed, phase FROM recipe WHERE digest = ? LIMIT 1", (recipe,))
            other = found.fetchone()
            if other is None:
                return None
            for table in (*_MEASURED, *_RESUMED):
                self._db.execute(f"DELETE FROM {table} {_UNIT}", unit)
            for table, columns in _MEASURED.items():
                self._db.execute(
                    f"INSERT INTO {table} SELECT ?, ?, ?, ?, {columns} FROM {table} {_UNIT}", (*unit, *other)
                )
            self._db.execute("INSERT INTO unit VALUES (?, ?, ?, ?)", unit)
            runs = "SELECT name, versions FROM run WHERE id = ?"
            (_, ours), (name, theirs) = (self._db.execute(runs, (id,)).fetchone() for id in (unit.run, other[0]))
            together = json.dumps(_united(json.loads(ours), json.loads(theirs)))
            self._db.execute("UPDATE run SET versions = ? WHERE id = ?", (together, unit.run))
            if unit.phase in _TAKEN and other[0] != unit.run:  # two of its own systems may be alike
                self.note(unit.run, unit.system, unit.seed, _TAKEN[unit.phase], name)
        return str(name)

    def is_complete(self, unit: Unit) -> bool:
        """Whether a test is finished."""
        return self._db.execute(f"SELECT 1 FROM unit {_UNIT}", unit).fetchone() is not None

    def accuracy(self, unit: Unit) -> float:
        """Sample-weighted accuracy over all slots of a test."""
        sums = dict(
            self._db.execute(
                f"SELECT metric, sum(value) FROM row {_UNIT} AND slot >= 0 "
                "AND metric IN ('correct', 'count') GROUP BY metric",
                unit,
            )
        )
        return float(sums["correct"] / max(sums["count"], 1))

    def add_training(self, run: int, phase: str, seed: int, metrics: Iterable[Metric]) -> None:
        """Copy a phase's metrics to a run, in place of those of a training that other code has begun."""
        with _all_or_nothing(self._db):
            old = "DELETE FROM row WHERE run = ? AND system = '' AND seed = ? AND phase = ?"
            self._db.execute(old, (run, seed, phase))
            self._db.executemany(
                "INSERT INTO row VALUES (?, '', ?, ?, ?, ?, '', -1, '', ?, ?)",
                ((run, seed, phase, round, client, name, value) for round, client, name, value in metrics),
            )


def _begun(unit: Unit) -> str:
    """The note of what a test was begun of, for as long as it is not finished."""
    return f"begun {unit.phase}"


def _opened(path: Path) -> sqlite3.Connection:
    """The database of a file, ready to write to, or, where it may only be read, to read from."""
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=120)
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            db.close()
            raise DamagedFile(
                f"{path} was written by a newer version of acclimate (its form is {version}, ours {VERSION}); "
                "use that version, or another --runs folder"
            )
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.executescript(_SCHEMA)
        if version < VERSION:
            _bring_up_to_date(db)
        return db
    except sqlite3.OperationalError as error:
        if ("readonly" not in str(error) and "unable to open" not in str(error)) or not path.exists():
            raise
        return _read_only(path)
    except sqlite3.DatabaseError as error:
        raise DamagedFile(
            f"{path} is damaged or no store of acclimate ({error}); move it away and run again"
        ) from error


def _read_only(path: Path) -> sqlite3.Connection:
    """To read from; where not even that is possible without writing beside it, without what is not merged into it."""
    for also in ("", "&immutable=1"):
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{also}", uri=True, isolation_level=None)
        with suppress(sqlite3.OperationalError):
            db.execute("SELECT 1 FROM run LIMIT 1")
            break
    return db


def _bring_up_to_date(db: sqlite3.Connection) -> None:
    """Tests of selected rounds, written by earlier code, get a phase of their own and their system's plain name."""
    ending = f" ({SELECTED})"
    plain, which = f"substr(system, 1, length(system) - {len(ending)})", f"WHERE system LIKE '%{ending}'"
    with _all_or_nothing(db):
        for table in (*_MEASURED, *_RESUMED, "unit", "recipe"):
            db.execute(f"UPDATE {table} SET system = {plain}, phase = '{SELECTED}' {which}")
        db.execute(f"DELETE FROM note {which} AND name = 'baseline'")
        db.execute(f"UPDATE note SET system = {plain}, name = '{_TAKEN[SELECTED]}' {which} AND name = 'taken'")
        db.execute(f"UPDATE note SET system = {plain} {which}")
        db.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def _all_or_nothing(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has ended the transaction already
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _united(before: dict[str, str], versions: dict[str, str]) -> dict[str, str]:
    """All versions that were used, the first ones first."""
    used = {key: [*before.get(key, value).split(", "), *value.split(", ")] for key, value in versions.items()}
    return {**before, **{key: ", ".join(dict.fromkeys(names)) for key, names in used.items()}}


def _sealed(parcel: Parcel | None) -> bytes | None:
    return None if parcel is None else sealed(parcel.seal(), _TEST)


def _parcel(blob: bytes | None) -> Parcel | None:
    from acclimate.trees import Parcel

    return None if blob is None else Parcel(unsealed(blob, _TEST, "where a client stands"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
