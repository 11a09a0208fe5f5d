"""Leases in the memory of this process: for tests, and for the provider `none`.

Local by nature: workers of one process compete, whatever thread their event loop runs in; others know nothing
of them. Expiry is exact, by the clock that the store was made with.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.clock import Clock, SystemClock
from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal


@dataclass(slots=True)
class _Record:
    holder: str
    token: int
    granted_at: float
    expires_at: float


class MemoryStore:
    """What the backends of one process share. Records are read and changed under `lock`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.records: dict[str, _Record] = {}
        self.changes: dict[str, int] = {}
        self.last_token = 0
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}  # in the order in which they came

    def live(self, name: str) -> _Record | None:
        """The record of `name`, unless it has run out."""
        record = self.records.get(name)
        return record if record is not None and self.clock.elapsed() < record.expires_at else None

    def changed(self, name: str) -> None:
        with self.lock:
            self.changes[name] = self.changes.get(name, 0) + 1
            for event, loop in self._waiting.items():
                with contextlib.suppress(RuntimeError):  # the loop was closed over its waiter
                    loop.call_soon_threadsafe(event.set)

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set at every change."""
        event = asyncio.Event()
        with self.lock:
            self._waiting[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            with self.lock:
                del self._waiting[event]


_PROCESS: Final = MemoryStore(SystemClock())


class MemoryLeases:
    """A `LeaseBackend` over `store`; without one, over the store of this process."""

    min_ttl_seconds = 0.1
    fenced = True
    local = True

    def __init__(self, store: MemoryStore | None = None) -> None:
        self._store = _PROCESS if store is None else store
        self._ctx: LeaseContext | None = None
        self._seen: dict[str, int] = {}

    async def start(self, ctx: LeaseContext) -> None:
        self._ctx = ctx

    async def acquire(self, name: str) -> Lease | Held:
        ctx, store = self._context(), self._store
        with store.lock:
            self._seen[name] = store.changes.get(name, 0)
            now = store.clock.elapsed()
            record = store.live(name)
            if record is not None and record.holder != ctx.holder:
                return Held(record.holder, record.expires_at - now)
            if record is None:
                store.last_token += 1
                record = store.records[name] = _Record(ctx.holder, store.last_token, now, now)
            record.expires_at = now + ctx.ttl_seconds
            return Lease(name, record.holder, record.token, ctx.ttl_seconds)

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        ctx, store = self._context(), self._store
        kept, lost = [], []
        with store.lock:
            for lease in leases:
                record = store.live(lease.name)
                if record is None or (record.holder, record.token) != (ctx.holder, lease.token):
                    lost.append(lease)
                    continue
                record.expires_at = store.clock.elapsed() + ctx.ttl_seconds
                kept.append(Lease(lease.name, ctx.holder, lease.token, ctx.ttl_seconds))
        return Renewal(kept, lost)

    async def release(self, name: str, token: int | None = None) -> None:
        ctx, store = self._context(), self._store
        with store.lock:
            record = store.records.get(name)
            if record is None or record.holder != ctx.holder or token not in (None, record.token):
                return
            del store.records[name]
            store.changed(name)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        wanted, store = frozenset(names), self._store
        until = store.clock.elapsed() + timeout_seconds
        with store.listening() as event:
            while True:
                event.clear()  # before looking, so that no change is lost after it
                free = frozenset(
                    name for name in wanted if store.changes.get(name, 0) != self._seen.get(name)
                )
                left = until - store.clock.elapsed()
                if free or left <= 0:
                    return free
                await store.clock.wait(event, left)

    async def list(self) -> Sequence[LeaseInfo]:
        now = self._store.clock.elapsed()
        with self._store.lock:
            records = list(self._store.records.items())
        return [
            LeaseInfo(name, record.holder, record.token, now - record.granted_at, record.expires_at - now)
            for name, record in records
            if now < record.expires_at
        ]

    async def stop(self) -> None:
        self._seen.clear()

    def _context(self) -> LeaseContext:
        if self._ctx is None:
            raise RuntimeError("the backend has not started")
        return self._ctx


def make_lease_backend(options: Mapping[str, Any]) -> MemoryLeases:
    """The lease half of the provider `none`; accepts any options."""
    del options
    return MemoryLeases()
