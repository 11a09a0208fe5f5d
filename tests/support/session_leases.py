"""A sound lease backend whose leases all hang on one session of their holder, as etcd and Consul have it: a
grant lives as long as its siblings do."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from drakkar.clock import Clock
from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal


@dataclass
class Record:
    holder: str
    session: int
    token: int
    granted_at: float


@dataclass
class SessionStore:
    """What the backends of one test share."""

    clock: Clock
    sessions: dict[int, float] = field(default_factory=dict)
    """When each runs out."""

    records: dict[str, Record] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    waiting: set[asyncio.Event] = field(default_factory=set)
    last_number: int = 0

    def number(self) -> int:
        self.last_number += 1
        return self.last_number

    def live(self, name: str) -> Record | None:
        record = self.records.get(name)
        return record if record is not None and self.alive(record.session) else None

    def alive(self, session: int) -> bool:
        return self.clock.elapsed() < self.sessions.get(session, float("-inf"))

    def delete(self, name: str) -> None:
        if self.records.pop(name, None) is not None:
            self.changes[name] = self.changes.get(name, 0) + 1
            for event in self.waiting:
                event.set()


class SessionLeases:
    """Keeps every promise of the contract."""

    min_ttl_seconds = 0.1
    fenced = True
    local = False

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.ctx: LeaseContext | None = None
        self.session = 0
        self.seen: dict[str, int] = {}

    async def start(self, ctx: LeaseContext) -> None:
        self.ctx = ctx

    async def acquire(self, name: str) -> Lease | Held:
        ctx, store = self.context(), self.store
        self.seen[name] = store.changes.get(name, 0)
        if not store.alive(self.session):
            self.session = store.number()
        self.keep_alive()
        record = store.live(name)
        if record is None:
            record = Record(ctx.holder, self.session, store.number(), store.clock.elapsed())
            store.records[name] = record
        if record.session != self.session:
            left = store.sessions[record.session] - store.clock.elapsed()
            return Held(record.holder, left)
        return Lease(name, ctx.holder, record.token, ctx.ttl_seconds)

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        if not self.store.alive(self.session):
            return Renewal(lost=list(leases))
        self.keep_alive()
        kept, lost = [], []
        for lease in leases:
            record = self.store.live(lease.name)
            ours = record is not None and (record.session, record.token) == (self.session, lease.token)
            if ours and lease.holder == self.context().holder:
                kept.append(Lease(lease.name, lease.holder, lease.token, self.context().ttl_seconds))
            else:
                lost.append(lease)
        return Renewal(kept, lost)

    async def release(self, name: str, token: int | None = None) -> None:
        record = self.store.records.get(name)
        if record is not None and record.session == self.session and token in (None, record.token):
            self.store.delete(name)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        wanted, until = frozenset(names), self.store.clock.elapsed() + timeout_seconds
        while True:
            free = frozenset(n for n in wanted if self.store.changes.get(n, 0) != self.seen.get(n))
            left = until - self.store.clock.elapsed()
            if free or left <= 0:
                return free
            event = asyncio.Event()
            self.store.waiting.add(event)
            try:
                await self.store.clock.wait(event, left)
            finally:
                self.store.waiting.discard(event)

    async def list(self) -> Sequence[LeaseInfo]:
        now = self.store.clock.elapsed()
        return [
            LeaseInfo(
                name,
                record.holder,
                record.token,
                now - record.granted_at,
                self.store.sessions[record.session] - now,
            )
            for name, record in self.store.records.items()
            if self.store.alive(record.session)
        ]

    async def stop(self) -> None:
        pass

    def keep_alive(self) -> None:
        self.store.sessions[self.session] = self.store.clock.elapsed() + self.context().ttl_seconds

    def context(self) -> LeaseContext:
        if self.ctx is None:
            raise RuntimeError("the backend has not started")
        return self.ctx
