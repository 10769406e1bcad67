"""What a node keeps of one experiment, in one SQLite file: its text, what was sent once, and its clients' states.

A state is found by its digest, which is all that the server has of it. Kept are the one before and the one after the
last message (and those of rounds that the experiment keeps): a server that was killed, or never got an answer, names
the one before, and the message is done again from there. One message is one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from acclimate.engine.sealed import sealed, unsealed
from acclimate.errors import DamagedFile, ForeignState

_SCHEMA = """
CREATE TABLE IF NOT EXISTS blob (digest TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (
    place TEXT, who INTEGER, digest TEXT, kept INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (place, who, digest)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS begun (
    place TEXT, who INTEGER, content BLOB NOT NULL, PRIMARY KEY (place, who)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS predicted (
    place TEXT, who INTEGER, slot INTEGER, file TEXT, rows TEXT NOT NULL, PRIMARY KEY (place, who, slot)) WITHOUT ROWID;
"""


class After(NamedTuple):
    """A client's state after a message."""

    who: int
    before: str  # the digest of the state it began with; empty: with none
    digest: str
    content: bytes
    keep: bool = False


class Kept:
    """The file of one experiment on a node."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=120)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise DamagedFile(f"{path} ({error}): delete it; what its clients had learnt is lost with it") from error

    def close(self) -> None:
        self._db.close()

    def blobs(self) -> list[str]:
        """The digests of what was sent once."""
        return [row[0] for row in self._db.execute("SELECT digest FROM blob ORDER BY digest")]

    def blob(self, digest: str) -> bytes | None:
        """Something that was sent once; None: it is not here."""
        found = self._db.execute("SELECT content FROM blob WHERE digest = ?", (digest,)).fetchone()
        return None if found is None else unsealed(found[0], digest, f"{self.path}: {digest}")

    def keep_blobs(self, blobs: Iterable[tuple[str, bytes]]) -> None:
        """Keep what is sent once."""
        rows = [(digest, sealed(blob, digest)) for digest, blob in blobs]
        self._db.executemany("INSERT OR REPLACE INTO blob VALUES (?, ?)", rows)

    def state(self, who: int, digest: str) -> bytes:
        """The state of a client that the server means."""
        sql = "SELECT content FROM state WHERE who = ? AND digest = ? LIMIT 1"
        found = self._db.execute(sql, (who, digest)).fetchone()
        if found is None:
            raise ForeignState(
                f"the state that the server means ({digest[:8]}) is not on this node, which keeps those before and "
                "after its last message; if its folder was lost, begin anew (on the server: acclimate runs delete)"
            )
        return unsealed(found[0], digest, f"{self.path}: the state of {who}")

    def begun(self, place: str, who: int) -> bytes | None:
        """What was noted when a client began a test."""
        found = self._db.execute("SELECT content FROM begun WHERE place = ? AND who = ?", (place, who)).fetchone()
        return None if found is None else bytes(found[0])

    def begin(self, place: str, who: int, content: bytes) -> None:
        """Note something for the whole of a test."""
        self._db.execute("INSERT OR REPLACE INTO begun VALUES (?, ?, ?)", (place, who, content))

    def commit(self, place: str, states: Iterable[After], predicted: Iterable[tuple[int, int, str, str]] = ()) -> None:
        """Keep what a message has left, all of it or nothing; `predicted`: who, slot, file and its lines."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for one in states:
                row = (place, one.who, one.digest, int(one.keep), sealed(one.content, one.digest))
                db.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", row)
                db.execute(
                    "DELETE FROM state WHERE place = ? AND who = ? AND digest NOT IN (?, ?) AND NOT kept",
                    (place, one.who, one.before, one.digest),
                )
            db.executemany(
                "INSERT OR REPLACE INTO predicted VALUES (?, ?, ?, ?, ?)", [(place, *row) for row in predicted]
            )
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise

    def predictions(self, file: str) -> list[str]:
        """The lines of a file of predictions, in the order of clients and slots."""
        sql = "SELECT rows FROM predicted WHERE file = ? ORDER BY who, slot"
        return [row[0] for row in self._db.execute(sql, (file,))]
