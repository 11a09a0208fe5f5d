"""Which file a cache uses, and what becomes of one that cannot be used."""

import contextlib
import hashlib
import os
import re
import sqlite3
from pathlib import Path
from typing import Final

from drakkar.cache.store import ForeignFileError, Store
from drakkar.errors import describe
from drakkar.fleet.provider import EventLogger

_PARTS: Final = ("", "-wal", "-shm")
_PLACES: Final = ("", ".2", ".3")
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NO_TEXT: Final = "Could not decode to UTF-8"
"""What Python says of damage within a text; it has no code."""

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def file_of(folder: Path, worker: str) -> Path:
    """The file of this worker's cache. Other workers have others, whatever characters are in their names."""
    readable = re.sub(r"[^a-zA-Z0-9_-]", "_", worker)[:60]
    return folder / f"cache-{readable}-{hashlib.sha256(worker.encode()).hexdigest()[:16]}.db"


def open_store(path: Path, worker: str, logger: EventLogger) -> tuple[Store, Path]:
    """Open the file at `path`, or what stands in for it.

    One that is damaged or not ours is moved to `<path>.set-aside`, in place of what was there, and a new one
    begun. One that another process has locked stays where it is, since it may be in use, and a file beside it
    is taken, emptied: what was in it is of another time, and may have been deleted since. Either is told in
    one line. Raises `OSError` or `sqlite3.Error` when there is no way, and when what may be sound cannot be
    opened.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in _PLACES:
        candidate = path.with_name(f"{path.name}{place}")
        try:
            store = _open_or_replace(candidate, worker, logger)
            return (_emptied(store, candidate, worker) if place else store), candidate
        except sqlite3.OperationalError as error:
            if not is_locked(error) or place == _PLACES[-1]:
                raise
            beside = path.with_name(f"{path.name}{_PLACES[_PLACES.index(place) + 1]}")
            logger.warning(
                "cache_file_replaced",
                file=str(candidate),
                reason="locked",
                error=describe(error),
                set_aside="",
                using=str(beside),
            )
    raise AssertionError  # the last place returns or raises


def is_locked(error: sqlite3.Error) -> bool:
    return _code(error) in _LOCKED


def is_damage(error: BaseException) -> bool:
    """Whether the file itself is broken, rather than the disk full or the folder gone."""
    return isinstance(error, sqlite3.Error) and (_code(error) in _DAMAGED or _NO_TEXT in str(error))


def replace_store(path: Path, worker: str, error: BaseException, logger: EventLogger) -> Store:
    """Set the file aside and begin a new one."""
    aside = path.with_name(f"{path.name}.set-aside")
    try:
        for part in _PARTS:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{part}").replace(f"{aside}{part}")
                continue
            Path(f"{aside}{part}").unlink(missing_ok=True)  # of what was set aside before
    except OSError as failure:
        raise OSError(f"{describe(error)}; it cannot be set aside: {describe(failure)}") from failure
    store = _open(path, worker)
    logger.warning(
        "cache_file_replaced",
        file=str(path),
        reason="schema" if isinstance(error, ForeignFileError) else "damaged",
        error=describe(error),
        set_aside=str(aside),
        using=str(path),
    )
    return store


def renew_store(path: Path, worker: str, logger: EventLogger) -> Store:
    """Begin a new file where the one in use has gone from; one that somebody has put there is taken."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in _PARTS[1:]:  # of the one that has gone; SQLite would read them into any other
        Path(f"{path}{part}").unlink(missing_ok=True)
    store = _open_or_replace(path, worker, logger)
    logger.warning(
        "cache_file_replaced",
        file=str(path),
        reason="gone",
        error="the file was removed or replaced while it was in use",
        set_aside="",
        using=str(path),
    )
    return store


def _open_or_replace(path: Path, worker: str, logger: EventLogger) -> Store:
    try:
        return _open(path, worker)
    except (sqlite3.Error, ForeignFileError) as error:
        if not (is_damage(error) or isinstance(error, ForeignFileError)):
            raise
        return replace_store(path, worker, error, logger)


def _emptied(store: Store, path: Path, worker: str) -> Store:
    issued_ms = store.issued_ms
    store.close()
    for part in _PARTS:
        Path(f"{path}{part}").unlink(missing_ok=True)
    store = _open(path, worker)
    store.go_on_from(issued_ms)
    return store


def _open(path: Path, worker: str) -> Store:
    with contextlib.suppress(FileExistsError):  # made here, so that nobody else may read it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    return Store(path, worker)


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended ones have it in the lowest byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
