"""A phase's progress in one SQLite file: the server's state, the clients' states, the metrics.

Every round is one transaction, so the file always holds exactly the rounds that were finished, also after
`kill -9`. States are safetensors blobs; only those of clients that took part are written, and only if they changed.
Reading a client's state reads one row, so memory does not grow with the number of clients; the file holds one state of
each, one more for every kept round, and what the last round replaced.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from acclimate.engine.sealed import content_sum, place_sum, sealed, unsealed
from acclimate.errors import DamagedFile

Metric = tuple[int, int, str, float]  # round, client, name, value

_SCHEMA = """
CREATE TABLE IF NOT EXISTS server (round INTEGER PRIMARY KEY, kept INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS client (
    id INTEGER, round INTEGER, sum BLOB, state BLOB NOT NULL, PRIMARY KEY (id, round));
CREATE TABLE IF NOT EXISTS metric (
    round INTEGER, client INTEGER, name TEXT, value REAL, PRIMARY KEY (round, client, name)) WITHOUT ROWID;
"""

_PAGE = 65536  # bytes: states of megabytes in pages of 4 kB, or beside the key in its tree, take six times as long
_LOG_PAGES = 128  # of the log that are copied into the file at once; without it a log of tiny rounds grows to 64 MB


class Checkpoint:
    """Rounds 0 (the initial state) to the last one finished; `path=None` keeps everything in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=120)
        self._before: dict[int, bytes] = {}  # sums of the states that were read since the last round
        try:
            self._db.execute(f"PRAGMA page_size={_PAGE}")  # of a new file
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
            self._db.execute(f"PRAGMA journal_size_limit={_LOG_PAGES * _PAGE}")
            self._db.executescript(_SCHEMA)
            columns = [column[1] for column in self._db.execute("PRAGMA table_info(client)")]
            self._sum = "sum" if "sum" in columns else "NULL"  # an older file has the sums behind the states
            for round in self.kept():
                self.server(round)
        except (DamagedFile, sqlite3.DatabaseError) as error:
            self._db.close()
            if isinstance(error, DamagedFile | sqlite3.OperationalError):  # a full disk and the like are no damage
                raise
            raise DamagedFile(self._told(str(error))) from error

    def close(self) -> None:
        self._db.close()

    def copy(self, path: Path) -> None:
        """The same in a file of its own, all of it or nothing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            with closing(sqlite3.connect(unfinished)) as other:
                self._db.backup(other)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def last(self) -> int | None:
        """The last finished round; None before anything was saved."""
        found: int | None = self._read("SELECT max(round) FROM server")[0][0]
        return found

    def kept(self) -> list[int]:
        """The rounds whose state can still be read."""
        return [row[0] for row in self._read("SELECT round FROM server ORDER BY round")]

    def server(self, round: int) -> bytes:
        """The server's state after a kept round."""
        found = self._read("SELECT state FROM server WHERE round = ?", round)
        if not found:
            raise KeyError(f"round {round} was not kept; kept: {self.kept()}")
        return unsealed(found[0][0], f"server {round}", self._told(f"the server's state of round {round}"))

    def client(self, id: int, round: int | None = None) -> bytes | None:
        """A client's state after a kept round (the last one by default); None if it had not taken part."""
        sql = f"SELECT round, {self._sum}, state FROM client WHERE id = ? AND round <= ? ORDER BY round DESC LIMIT 1"
        for at, known, kept in self._read(sql, id, 2**62 if round is None else round):
            place, what = f"client {id} {at}", self._told(f"the state of client {id}")
            if known is None:
                return unsealed(kept, place, what)
            state: bytes = kept
            self._before[id] = content_sum(state)
            if known != place_sum(self._before[id], place):
                raise DamagedFile(f"{what} was damaged")
            return state
        return None

    def _read(self, sql: str, *values: int) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.OperationalError:
            raise  # a lock, a full disk: no damage
        except (sqlite3.DatabaseError, OverflowError) as error:
            raise DamagedFile(self._told(str(error))) from error

    def _told(self, what: str) -> str:
        return f"{self.path} (delete the file, and what it held is made again): {what}"

    def was_useful(self) -> bool:
        """Whether in any round some client's reply could be used; also before the first round."""
        sql = "SELECT 1 FROM metric AS one WHERE name = 'bytes_up' AND NOT EXISTS (SELECT 1 FROM metric WHERE "
        sql += "round = one.round AND client = one.client AND name = 'left_out') LIMIT 1"
        return not self.last() or self._db.execute(sql).fetchone() is not None

    def metrics(self) -> Iterable[Metric]:
        """All metrics, round by round."""
        return self._db.execute("SELECT round, client, name, value FROM metric ORDER BY round, client, name")

    def commit(
        self,
        round: int,
        server: bytes,
        clients: Mapping[int, bytes] | None = None,
        metrics: Iterable[Metric] = (),
        keep: bool = False,
    ) -> None:
        """Save a finished round, all of it or nothing. Older states go unless they were to be kept."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            if self._sum == "NULL":
                db.execute("ALTER TABLE client ADD COLUMN sum BLOB")
            db.execute("INSERT INTO server VALUES (?, ?, ?)", (round, int(keep), sealed(server, f"server {round}")))
            db.execute("DELETE FROM server WHERE round < ? AND NOT kept", (round,))
            for id, state in (clients or {}).items():
                found = content_sum(state)
                if found == self._before.get(id):
                    continue
                # Of a client's older states, those that a kept round ended with stay.
                db.execute(
                    "DELETE FROM client AS old WHERE id = ? AND NOT EXISTS (SELECT 1 FROM server WHERE kept "
                    "AND round < ? AND round >= old.round)",
                    (id, round),
                )
                sum = place_sum(found, f"client {id} {round}")
                db.execute("INSERT INTO client (id, round, sum, state) VALUES (?, ?, ?, ?)", (id, round, sum, state))
            db.executemany("INSERT INTO metric VALUES (?, ?, ?, ?)", metrics)
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk has ended the transaction already
                db.execute("ROLLBACK")
            raise
        self._sum, self._before = "sum", {}
