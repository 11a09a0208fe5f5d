"""The cache of one worker at work: its file, the loops that write and clean it, what peers may read of it."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from drakkar.cache.cache import Cache
from drakkar.cache.changes import MAX_PAGE_BYTES, ChangesQuery, encode_page
from drakkar.cache.exchange import NotStoredError
from drakkar.cache.files import file_of
from drakkar.cache.openfile import CacheUnavailableError, OpenFile
from drakkar.cache.peers import mark_of
from drakkar.cache.rows import Cursor, Row
from drakkar.cache.store import Standing, Store
from drakkar.cache.thread import CacheThread
from drakkar.cache.trouble import Trouble
from drakkar.calls import wait_ended
from drakkar.clock import Clock
from drakkar.errors import describe
from drakkar.fleet.provider import EventLogger

T = TypeVar("T")

START_SECONDS: Final = 5.0
STOP_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
_EXPIRE_ROWS: Final = 2000


@dataclass(frozen=True, slots=True)
class CacheTiming:
    """The keys of `cache`; what they mean stands there."""

    flush_interval_seconds: float = 3.0
    cleanup_interval_seconds: float = 60.0
    max_memory_entries: int = 10000


class CacheService:
    """Runs between `start` and `stop`, each called once. Without a `folder` nothing is on disk or served."""

    def __init__(
        self,
        worker: str,
        folder: Path | None,
        timing: CacheTiming,
        *,
        serves: bool,
        on_marks: Callable[[], None],
        clock: Clock,
        logger: EventLogger,
    ) -> None:
        """`serves`: whether peers may read; `on_marks` is called when `features` has changed."""
        self._worker = worker
        self._folder = folder
        self._timing = timing
        self._serves = serves
        self._on_marks = on_marks
        self._clock = clock
        self._logger = logger
        self._file: OpenFile | None = None
        self._newest: Mapping[str, Cursor] = {}
        self._writing = asyncio.Lock()
        self._many_changes = asyncio.Event()
        self._trouble = Trouble(clock, logger)
        self._write_began: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._close_files: Callable[[], None] = lambda: None
        self.thread = CacheThread()
        self.cache = Cache(worker, timing.max_memory_entries, self._now_ms)

    @property
    def serves(self) -> bool:
        return self._serves and self._file is not None

    @property
    def _store(self) -> Store | None:
        return None if self._file is None else self._file.store

    async def start(self) -> None:
        """Open the file; takes at most `START_SECONDS`. Without it the cache is kept in memory alone."""
        if self._folder is None:
            self._logger.warning(
                "cache_file_disabled_no_dir",
                hint="the cache is kept in memory alone and shared with nobody; set storage.dir",
            )
            return
        file = OpenFile(file_of(self._folder, self._worker), self._worker, self._logger)
        self._close_files = file.close
        try:
            async with asyncio.timeout(START_SECONDS):
                standing = await self.thread.run(lambda: file.open(self._now_ms()))
        except Exception as error:  # noqa: BLE001  the worker runs on, whatever is wrong with the file
            self._logger.error("cache_file_failed", file=str(file.path), error=describe(error))
            return
        self._file, self._trouble.file = file, str(file.path)
        self.cache = Cache(self._worker, self._timing.max_memory_entries, self._now_ms, self._read)
        self.cache.issued_ms = standing.issued_ms
        self.cache.on_many_changes = self._many_changes.set
        self.cache.disk_fails = self._disk_fails
        self._newest = standing.newest
        for loop in (self._write_loop, self._cleanup_loop):
            self._tasks.append(asyncio.create_task(loop(), name=f"drakkar cache {loop.__name__[1:]}"))

    async def stop(self) -> None:
        """Write what has changed and close the file; takes at most about `STOP_SECONDS`."""
        self.cache.closed = True
        for task in self._tasks:
            task.cancel()
        await wait_ended(self._tasks, STOP_SECONDS, self._clock)
        try:
            if self._file is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_SECONDS):
                        with suppress(NotStoredError):
                            await self._write(())
                        await self.thread.run(self._close_files)
                self._tell_dropped()
                self._trouble.lost(len(self.cache.changed), "the worker stopped before they were written")
        finally:
            self._file = None
            self.thread.close(self._close_files)

    def features(self) -> dict[str, Any]:
        """What the card tells of the cache; nothing when peers cannot read it."""
        if not self.serves:
            return {}
        return {"cache": {scope: mark_of(cursor) for scope, cursor in self._newest.items()}}

    async def changes(self, query: ChangesQuery) -> bytes:
        """The body of an answer. Raises `CacheUnavailableError` when it cannot be read in time."""
        now_ms = self._now_ms()

        def read(store: Store) -> bytes:
            return encode_page(*store.changes(query.scopes, query.after, query.limit, MAX_PAGE_BYTES, now_ms))

        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._use(read)
        except (TimeoutError, sqlite3.Error, OSError) as error:
            raise CacheUnavailableError(describe(error)) from error

    async def keep(self, rows: Sequence[Row]) -> None:
        """Keep the rows of a peer, where they are newer than ours. Raises `NotStoredError`."""
        await self._write(rows)
        self.cache.pulled(rows)

    async def _write(self, pulled: Sequence[Row]) -> None:
        """Write what has changed, then what peers have: so each has the stamp it had when the other came."""
        async with self._writing:
            changes = dict(self.cache.changed)
            if not changes and not pulled:
                return
            self._write_began = self._clock.elapsed()
            try:
                standing = await self._write_all_that_can_be(changes, pulled)
                self.cache.written(changes, standing.issued_ms)
                self._show(standing)
            except Exception as error:  # whatever it is, the next write must come
                if self._trouble.failed("write", error):
                    self._tell_dropped()
                raise NotStoredError from error
            finally:
                self._write_began = None
            self._trouble.recovered("write")
            self._tell_dropped()

    async def _write_all_that_can_be(self, changes: dict[str, Row | None], pulled: Sequence[Row]) -> Standing:
        """Write; what could never be written is left out of `changes` and told, so that it keeps nothing else
        from the disk."""
        now_ms = self._now_ms()
        try:
            return await self._run(lambda file: file.write(changes, pulled, now_ms))
        except (CacheUnavailableError, sqlite3.OperationalError, OSError):
            raise
        except Exception as error:
            refused = await self._use(lambda store: store.refused(changes))
            if not refused:
                raise
            self.cache.written({key: changes.pop(key) for key in refused}, 0)
            self._trouble.lost(len(refused), describe(error))
            return await self._run(lambda file: file.write(changes, pulled, now_ms))

    async def _read(self, key: str) -> Row | None:
        try:
            row = await self._use(lambda store: store.read(key))
        except Exception as error:  # noqa: BLE001  who asks for a value is not who can do anything about it
            self._trouble.failed("read", error)
            return None
        self._trouble.recovered("read")
        return row

    async def _use(self, job: Callable[[Store], T]) -> T:
        return await self._run(lambda file: file.use(job))

    async def _run(self, job: Callable[[OpenFile], T]) -> T:
        file = self._file
        if file is None:
            raise CacheUnavailableError("the cache is closed")
        return await self.thread.run(lambda: job(file))

    async def _write_loop(self) -> None:
        while True:
            await self._clock.wait(self._many_changes, self._timing.flush_interval_seconds)
            self._many_changes.clear()
            with suppress(NotStoredError):
                await self._write(())

    async def _cleanup_loop(self) -> None:
        while True:
            await self._clock.sleep(self._timing.cleanup_interval_seconds)
            now_ms = self._now_ms()
            try:
                while await self._use(partial(Store.expire, now_ms=now_ms, limit=_EXPIRE_ROWS)):
                    pass
                self._show(await self._use(partial(Store.standing, now_ms=now_ms)))
            except Exception as error:  # noqa: BLE001  whatever it is, the next cleanup must come
                self._trouble.failed("write", error)

    def _show(self, standing: Standing) -> None:
        if standing.newest != self._newest:
            self._newest = standing.newest
            self._on_marks()

    def _disk_fails(self) -> bool:
        """Whether writing fails, or has not come back for long."""
        began = self._write_began
        hangs = began is not None and self._clock.elapsed() - began > STOP_SECONDS
        return hangs or self._trouble.failing("write")

    def _tell_dropped(self) -> None:
        self._trouble.lost(self.cache.dropped, "too many changes while the disk failed")
        self.cache.dropped = 0

    def _now_ms(self) -> int:
        return int(self._clock.wall().timestamp() * 1000)
