"""The cache as application code sees it."""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from drakkar.cache.memory import Entry, Memory
from drakkar.cache.rows import MAX_MS, MAX_STAMP_MS, SCOPES, Row, Scope, check_key, encode_value, is_key, wins

MANY_CHANGES: Final = 10_000
"""That wait to be written: then they are written before their time."""

MAX_CHANGES: Final = 100_000
"""Kept while the disk fails; beyond it the oldest are not going to be written."""

_MISSING: Final = object()


class Cache:
    """Small JSON values by key: at hand in memory, kept on disk, shared with peers as their scope says.

    A cache, not a database. A value may be gone at any time; one that a peer has set comes some seconds to a
    minute later; of two that were set under one key the later one stays, on every worker. A deletion is this
    worker's own: peers keep what they have.

    To be used in the worker's event loop. All but `get` return at once. What was set or deleted is on disk
    after `cache.flush_interval_seconds`, and at the end of a clean stop.

    Scopes: `memory` is kept in memory alone, until there is no room; `local` on disk, too; `cluster` goes to
    the workers of this cluster as well, `global` to all workers.

    A list or map that is handed out is the same object for all who ask: do not change it, set another.

    There is nothing under a key that `set` refuses: to ask for it or to delete it is no error.
    """

    def __init__(
        self,
        worker: str,
        max_entries: int,
        now_ms: Callable[[], int],
        read_row: Callable[[str], Awaitable[Row | None]] | None = None,
    ) -> None:
        """`read_row` is how a row is found on disk; None when there is none. It does not raise."""
        self._worker = worker
        self._now_ms = now_ms
        self._read_row = read_row
        self._memory = Memory(max_entries)
        self._entries = self._memory.entries
        self._loading: dict[str, object] = {}
        self.changed: dict[str, Row | None] = {}
        """What is not on disk yet; None for what was deleted. For the service alone, as all that follows."""

        self.issued_ms = 0
        """The greatest `updated_at_ms` that this worker has given to a row."""

        self.closed = False
        self.on_many_changes: Callable[[], None] = lambda: None
        self.disk_fails: Callable[[], bool] = lambda: False
        """Whether there is no telling when changes will be written: then there is an end to how many wait."""

        self.dropped = 0
        """Changes that were too many while the disk failed, and are not going to be written."""

    def set(self, key: str, value: Any, ttl: float | None = None, scope: Scope = "local") -> None:
        """Keep a copy of `value` under `key`, for `ttl` seconds if it is given. Tuples become lists.

        Raises `ValueError`, and changes nothing, for what is not JSON or too large, for a key that is no
        plain text, and for a `ttl` or a scope that cannot be; `RuntimeError` after the worker has stopped.
        """
        if self.closed:
            raise RuntimeError("the cache is closed: the worker has stopped")
        check_key(key)
        if scope not in SCOPES:
            raise ValueError(f"a cache scope is one of {', '.join(SCOPES)}, not {scope!r:.60}")
        text, size = encode_value(value)
        now = self._now_ms()
        expires_at = None if ttl is None else min(MAX_MS, now + _milliseconds(ttl))
        known = self._entries.get(key)
        stamp = max(now, self.issued_ms + 1, 0 if known is None else known.row.updated_at_ms + 1)
        self.issued_ms = min(stamp, MAX_STAMP_MS)
        row = Row(key, scope, text, size, now, self.issued_ms, expires_at, self._worker)
        self._memory.put(row)
        # What is kept in memory alone must not leave an older value on disk, which would come back later.
        self._change(key, None if scope == "memory" else row)

    async def get(self, key: str) -> Any:
        """The value of `key`, from memory or else from disk; None when there is none that can be read.

        Cancelling changes nothing.
        """
        if self._read_row is None or self.closed or not isinstance(key, str):
            return self.peek(key)
        if self._at_hand(key) or not is_key(key):
            return self.peek(key)
        token = self._loading.setdefault(key, object())
        try:
            row = await self._read_row(key)
        finally:
            unchanged = self._loading.get(key) is token
            if unchanged:
                del self._loading[key]
        if self._at_hand(key):
            return self.peek(key)
        if row is None or row.expired(self._now_ms()):
            return None
        return (self._memory.put(row) if unchanged else Entry(row)).read()

    def peek(self, key: str) -> Any:
        """The value of `key` if it is in memory; None when it is not, though it may be on disk."""
        try:
            entry = self._entries[key]
            value = entry.value
        except (KeyError, AttributeError, TypeError):
            return self._look(key)
        entry.used = True
        return value

    def _look(self, key: object) -> Any:
        """Like `peek`, for what is not kept in memory any more, was not asked for yet, or expires."""
        if not isinstance(key, str):
            return None
        entry = self._entries.get(key)
        row = self.changed.get(key) if entry is None else entry.row
        if row is None or row.expired(self._now_ms()):
            return None
        return (entry or Entry(row)).read()

    def _at_hand(self, key: str) -> bool:
        return key in self._entries or key in self.changed

    def delete(self, key: str) -> None:
        """Forget `key` here, in memory and on disk; nothing happens when there is no such key.

        Peers keep what they have; and what another worker set comes back when that worker sets it anew, or
        when this one starts again and reads its peers from the beginning.
        """
        if not is_key(key):
            return
        self._memory.drop(key)
        self._change(key, None)

    def __contains__(self, key: object) -> bool:
        """Whether `peek` would find `key`, be its value null."""
        if not isinstance(key, str):
            return False
        entry = self._entries.get(key)
        row = self.changed.get(key) if entry is None else entry.row
        return row is not None and not row.expired(self._now_ms())

    def written(self, changes: Mapping[str, Row | None], issued_ms: int) -> None:
        """These are on disk now; whatever changed since is not."""
        for key, row in changes.items():
            if self.changed.get(key, _MISSING) is row:
                del self.changed[key]
        self.issued_ms = max(self.issued_ms, issued_ms)

    def pulled(self, rows: Iterable[Row]) -> None:
        """These rows of a peer were offered to the disk: where one is newer than what is in memory, the disk
        is asked the next time."""
        for row in rows:
            self._loading.pop(row.key, None)
            entry = self._entries.get(row.key)
            if entry is not None and row.key not in self.changed and wins(row, entry.row):
                self._memory.drop(row.key)

    def _change(self, key: str, row: Row | None) -> None:
        if self._read_row is None:
            return
        self._loading.pop(key, None)
        self.changed.pop(key, None)  # to the end of the line, so that the order is that of the changes
        self.changed[key] = row
        if len(self.changed) >= MANY_CHANGES:
            self.on_many_changes()
            if len(self.changed) > MAX_CHANGES and self.disk_fails():
                for oldest in [*islice(self.changed, len(self.changed) - MAX_CHANGES)]:
                    del self.changed[oldest]
                    self.dropped += 1


def _milliseconds(ttl: object) -> int:
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < math.inf:
        raise ValueError(f"a cache ttl is a number of seconds greater than 0, not {ttl!r:.60}")
    return math.ceil(min(ttl * 1000, MAX_MS))
