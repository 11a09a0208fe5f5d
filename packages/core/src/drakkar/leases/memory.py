"""Leases in the memory of this process: for tests, and for the provider `none`.

Local by nature: workers of one process compete, others know nothing of them. Expiry is exact, by the clock
that the store was made with.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
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
    """What the backends of one process share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.records: dict[str, _Record] = {}
        self.changes: dict[str, int] = {}
        self.last_token = 0
        self._waiting: dict[asyncio.Event, None] = {}  # in the order in which they came

    def live(self, name: str) -> _Record | None:
        """The record of `name`, unless it has run out."""
        record = self.records.get(name)
        return record if record is not None and self.clock.elapsed() < record.expires_at else None

    def changed(self, name: str) -> None:
        self.changes[name] = self.changes.get(name, 0) + 1
        for event in self._waiting:
            event.set()

    async def next_change(self, timeout_seconds: float) -> None:
        event = asyncio.Event()
        self._waiting[event] = None
        try:
            await self.clock.wait(event, timeout_seconds)
        finally:
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
        for lease in leases:
            record = store.live(lease.name)
            if record is None or (record.holder, record.token) != (ctx.holder, lease.token):
                lost.append(lease)
                continue
            record.expires_at = store.clock.elapsed() + ctx.ttl_seconds
            kept.append(Lease(lease.name, ctx.holder, lease.token, ctx.ttl_seconds))
        return Renewal(kept, lost)

    async def release(self, name: str, token: int | None = None) -> None:
        record = self._store.records.get(name)
        if record is None or record.holder != self._context().holder or token not in (None, record.token):
            return
        del self._store.records[name]
        self._store.changed(name)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        wanted = frozenset(names)
        until = self._store.clock.elapsed() + timeout_seconds
        while True:
            free = frozenset(
                name for name in wanted if self._store.changes.get(name, 0) != self._seen.get(name)
            )
            left = until - self._store.clock.elapsed()
            if free or left <= 0:
                return free
            await self._store.next_change(left)

    async def list(self) -> Sequence[LeaseInfo]:
        now = self._store.clock.elapsed()
        return [
            LeaseInfo(name, record.holder, record.token, now - record.granted_at, record.expires_at - now)
            for name, record in self._store.records.items()
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
