"""The file of a cache while it is in use: replaced when it turns out to be damaged, or has gone."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from drakkar.cache.files import is_damage, open_store, renew_store, replace_store
from drakkar.cache.rows import Row
from drakkar.cache.store import Standing, Store
from drakkar.fleet.provider import EventLogger

T = TypeVar("T")


class CacheUnavailableError(Exception):
    """There is no file now."""


class OpenFile:
    """All methods are for the cache's thread alone. Raise what `Store` raises, and `OSError`."""

    def __init__(self, path: Path, worker: str, logger: EventLogger) -> None:
        self.path = path
        """Where it is; after `open` perhaps beside where it should be."""

        self.store: Store | None = None
        self._worker = worker
        self._logger = logger
        self._identity: tuple[int, int] | None = None
        """Of the open file; None while there is none, as when the next one could not be opened."""

        self._opened: list[Store] = []

    def open(self, now_ms: int) -> Standing:
        """Open the file, or what stands in for it; by what a start needs of it, damage may show as well."""
        store, self.path = open_store(self.path, self._worker, self._logger)
        self._take(store)
        return self.use(lambda store: store.standing(now_ms))

    def use(self, job: Callable[[Store], T]) -> T:
        """Do `job`; on a new file when this one turns out to be damaged."""
        store = self.store
        if store is None:
            raise CacheUnavailableError("the cache is closed")
        try:
            return job(store)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            self._shut(store)
            return job(self._take(replace_store(self.path, self._worker, error, self._logger)))

    def write(self, changes: Mapping[str, Row | None], pulled: Iterable[Row], now_ms: int) -> Standing:
        """As `Store.write`; into a new file when this one is not at its place any more."""
        if self.store is not None and (self._identity is None or self._identity != _identity(self.path)):
            self._shut(self.store)
            self._take(renew_store(self.path, self._worker, self._logger))
        return self.use(lambda store: store.write(changes, pulled, now_ms))

    def close(self) -> None:
        """Close also what was opened too late for anybody to wait. May be called twice."""
        for store in self._opened:
            with contextlib.suppress(sqlite3.Error):
                store.close()
        self.store = None

    def _take(self, store: Store) -> Store:
        """Use `store` from now on, whose stamps go on from those of the one before."""
        self._opened.append(store)
        if self.store is not None:
            store.go_on_from(self.store.issued_ms)
        self.store = store
        self._identity = _identity(self.path)
        return store

    def _shut(self, store: Store) -> None:
        self._identity = None
        store.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is at `path`; None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
