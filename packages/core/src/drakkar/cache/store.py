"""The file of a cache: SQLite, used by one thread of one process.

The file is locked for as long as it is open, so that two workers of one name do not write into each other's
history. Written is what `write` has returned from, also when the process is killed right after; after a power
cut the last seconds may be missing, but the file is sound.

The stamps that rows get in the end are fixed here, where rows of peers lie, and where it is known what peers
may have read: what is written later has a greater stamp than all that was written before, or a peer that
reads on from where it was would never see it.
"""

import heapq
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from drakkar.cache.rows import MAX_STAMP_MS, SERVED_SCOPES, Cursor, Row
from drakkar.cache.thread import breathe

SCHEMA_VERSION: Final = 1

_BUSY_SECONDS: Final = 1.0
_COLUMNS: Final = ", ".join(Row._fields)
_SET: Final = ", ".join(
    f"{name} = excluded.{name}"
    for name in ("scope", "value", "size_bytes", "expires_at_ms", "origin_worker_id")
)
_SCHEMA: Final = """
CREATE TABLE rows (
    key TEXT NOT NULL PRIMARY KEY, scope TEXT NOT NULL, value TEXT NOT NULL, size_bytes INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL, expires_at_ms INTEGER,
    origin_worker_id TEXT NOT NULL
);
CREATE INDEX rows_served ON rows (scope, updated_at_ms, key, expires_at_ms)
    WHERE origin_worker_id = {worker} AND (scope = 'cluster' OR scope = 'global');
CREATE INDEX rows_expiring ON rows (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
CREATE TABLE history (issued_ms INTEGER NOT NULL);
INSERT INTO history VALUES (0);
"""
_INSERT: Final = (
    f"INSERT INTO rows ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET {_SET}"  # noqa: S608
)
WRITE: Final = (
    f"{_INSERT}, updated_at_ms = min(max(excluded.updated_at_ms, rows.updated_at_ms + 1), {MAX_STAMP_MS})"
)
MERGE: Final = f"""{_INSERT}, created_at_ms = excluded.created_at_ms, updated_at_ms = excluded.updated_at_ms
WHERE excluded.updated_at_ms > rows.updated_at_ms
   OR excluded.updated_at_ms = rows.updated_at_ms AND excluded.origin_worker_id < rows.origin_worker_id"""
# Worker and scope stand in the text, and the index says OR and not IN: SQLite uses it only where it sees from
# the text that its condition holds.
CHANGES: Final = {
    scope: f"""SELECT {_COLUMNS} FROM rows
WHERE origin_worker_id = {{worker}} AND scope = '{scope}' AND (updated_at_ms, key) > (?, ?)
  AND (expires_at_ms IS NULL OR expires_at_ms > ?)
ORDER BY updated_at_ms, key LIMIT ?"""  # noqa: S608
    for scope in SERVED_SCOPES
}
NEWEST: Final = {
    scope: f"""SELECT updated_at_ms, key FROM rows
WHERE origin_worker_id = {{worker}} AND scope = '{scope}' AND (expires_at_ms IS NULL OR expires_at_ms > ?)
ORDER BY updated_at_ms DESC, key DESC LIMIT 1"""  # noqa: S608
    for scope in SERVED_SCOPES
}
EXPIRE: Final = "DELETE FROM rows WHERE rowid IN (SELECT rowid FROM rows WHERE expires_at_ms <= ? LIMIT ?)"
_REFUSALS: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ArithmeticError,
    TypeError,
    ValueError,
)
"""Of a text, a number or a type that SQLite does not take, as against what is wrong with the file."""

FROM_THE_BEGINNING: Final[Cursor] = (-(2**63), "")


class ForeignFileError(Exception):
    """A sound database file of somebody else, or of another version."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the file holds of this worker's own rows."""

    issued_ms: int
    """The greatest stamp ever written by this worker, also if its row has gone."""

    newest: Mapping[str, Cursor]
    """Of each scope that is served and has rows, the newest that has not expired."""


class Store:
    """An open file. Everything here blocks, and is called by one thread.

    Raises `sqlite3.Error` when the file cannot be used, `ForeignFileError` when it should not be.
    """

    def __init__(self, path: Path, worker: str) -> None:
        self._own = "'" + worker.replace("'", "''") + "'"
        self._changes = {scope: query.format(worker=self._own) for scope, query in CHANGES.items()}
        self._newest_of = {scope: query.format(worker=self._own) for scope, query in NEWEST.items()}
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            new = self._look()  # before anything is changed: the file may be somebody else's
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("BEGIN IMMEDIATE")  # takes the lock
            if new:
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement.format(worker=self._own))
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._db.execute("COMMIT")
            [(self.issued_ms,)] = self._db.execute("SELECT issued_ms FROM history")
        except BaseException:
            self._db.close()
            raise

    def _look(self) -> bool:
        """Whether the file is new. Raises `ForeignFileError` when it is not one of ours."""
        [(version,)] = self._db.execute("PRAGMA user_version")
        [(tables,)] = self._db.execute("SELECT count(*) FROM sqlite_schema")
        if version == 0 and tables == 0:
            return True
        if version != SCHEMA_VERSION:
            raise ForeignFileError(f"schema version {version}, not {SCHEMA_VERSION}")
        try:
            self._db.execute(f"SELECT {_COLUMNS} FROM rows LIMIT 0")  # noqa: S608
            self._db.execute("SELECT issued_ms FROM history LIMIT 0")
        except sqlite3.OperationalError as error:
            if "no such" not in str(error):
                raise
            raise ForeignFileError(str(error)) from error
        return False

    def close(self) -> None:
        self._db.close()

    def go_on_from(self, issued_ms: int) -> None:
        """Give no stamp that is not greater: the file that was here before has been read by peers."""
        self.issued_ms = max(self.issued_ms, issued_ms)

    def write(self, changes: Mapping[str, Row | None], pulled: Iterable[Row], now_ms: int) -> Standing:
        """Store what this worker has set (None: deleted), then what peers have, where that is newer.

        All or nothing.
        """
        issued = self.issued_ms
        rows: list[Row] = []
        for row in changes.values():
            if row is None:
                continue
            if row.updated_at_ms <= self.issued_ms:
                issued = min(issued + 1, MAX_STAMP_MS)
                row = row._replace(updated_at_ms=issued)  # noqa: PLW2901
            rows.append(row)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if len(rows) < len(changes):
                deleted = ((key,) for key, row in changes.items() if row is None)
                self._db.executemany("DELETE FROM rows WHERE key = ?", deleted)
            self._db.executemany(WRITE, rows)
            self._db.executemany(MERGE, pulled)
            newest = self._newest(now_ms)
            issued = max([issued, *(row.updated_at_ms for row in rows), *(ms for ms, _ in newest.values())])
            if issued > self.issued_ms:
                self._db.execute("UPDATE history SET issued_ms = ?", (issued,))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self.issued_ms = issued
        return Standing(issued, newest)

    def refused(self, changes: Mapping[str, Row | None]) -> list[str]:
        """Those of `changes` that could never be written, whatever the state of the disk. Changes nothing."""
        refused = []
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for key, row in changes.items():
                try:
                    if row is None:
                        self._db.execute("DELETE FROM rows WHERE key = ?", (key,))
                    else:
                        self._db.execute(WRITE, row)
                except _REFUSALS:
                    refused.append(key)
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        return refused

    def standing(self, now_ms: int) -> Standing:
        return Standing(self.issued_ms, self._newest(now_ms))

    def read(self, key: str) -> Row | None:
        found = self._db.execute(f"SELECT {_COLUMNS} FROM rows WHERE key = ?", (key,)).fetchone()  # noqa: S608
        return None if found is None else Row._make(found)

    def changes(
        self, scopes: Sequence[str], after: Cursor | None, limit: int, max_bytes: int, now_ms: int
    ) -> tuple[list[Row], bool]:
        """Up to `limit` of this worker's own rows after `after`, in their order, and whether there are more.

        Fewer when they come to more than `max_bytes`, but at least one.
        """
        ms, key = FROM_THE_BEGINNING if after is None else after
        found = [self._db.execute(self._changes[scope], (ms, key, now_ms, limit + 1)) for scope in scopes]
        rows: list[Row] = []
        size = 0
        merged = heapq.merge(*found, key=lambda row: (row[5], row[0]))
        for row in map(Row._make, islice(merged, limit + 1)):
            size += row.size_bytes + len(row.key)
            if len(rows) == limit or (rows and size > max_bytes):
                return rows, True
            rows.append(row)
            if len(rows) % 200 == 0:
                breathe()
        return rows, False

    def expire(self, now_ms: int, limit: int) -> bool:
        """Delete up to `limit` expired rows; whether there may be more."""
        return self._db.execute(EXPIRE, (now_ms, limit)).rowcount == limit

    def _newest(self, now_ms: int) -> dict[str, Cursor]:
        newest: dict[str, Cursor] = {}
        for scope, query in self._newest_of.items():
            for ms, key in self._db.execute(query, (now_ms,)):
                newest[scope] = (ms, key)
        return newest
