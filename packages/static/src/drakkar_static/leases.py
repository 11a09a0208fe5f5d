"""Leases assigned by configuration: every name has one owner, for as long as the configuration says so.

Not given: fail-over (when the owner is down, nobody leads), fencing (the token is always 1), and any
protection against two processes of one worker name, or against workers whose configurations differ. It is
for fleets that have no store at all and can live with that.

The owner of a name is the worker of the first pattern in `assignments` that matches it; without one, the
winner of rendezvous hashing over the configured peers and this worker (Thaler and Ravishankar, 1998), so
that adding a worker moves only the names that it wins.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal

from drakkar_static.settings import LeaseOptions

_TOKEN = 1


class StaticLeases:
    """Holds no connection; no call can wait or fail."""

    min_ttl_seconds = 0.0
    fenced = False
    local = False

    def __init__(self, options: LeaseOptions) -> None:
        self._assignments = options.assignments
        self._workers = {peer.name for peer in options.peers}
        self._ctx: LeaseContext | None = None
        self._asked: set[str] = set()

    async def start(self, ctx: LeaseContext) -> None:
        self._ctx = ctx
        named = {*self._workers, *(worker for _, worker in self._assignments)}
        if named and ctx.worker not in named:
            ctx.logger.warning(
                "lease_worker_not_listed",
                worker=ctx.worker,
                hint="the others do not count on it: add it to fleet.registry.static.peers of every worker",
            )
        self._workers.add(ctx.worker)

    async def acquire(self, name: str) -> Lease | Held:
        """Grant what this worker owns. What another one owns is refused for good."""
        ctx = self._context()
        self._asked.add(name)
        owner = self._owner(name)
        if owner != ctx.worker:
            return Held(owner)
        return Lease(name, ctx.holder, _TOKEN, ctx.ttl_seconds)

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        return Renewal(kept=tuple(leases))

    async def release(self, name: str, token: int | None = None) -> None:
        """Does nothing: an assignment cannot be given back."""

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        """Return nothing after the time: no assignment of these names ever changes."""
        del names
        await asyncio.sleep(timeout_seconds)
        return frozenset()

    async def list(self) -> Sequence[LeaseInfo]:
        """The owners of the names that this process has asked for, whether they are up or not."""
        return [LeaseInfo(name, self._owner(name), _TOKEN, None, None) for name in sorted(self._asked)]

    async def stop(self) -> None:
        self._asked.clear()

    def _owner(self, name: str) -> str:
        for pattern, worker in self._assignments:
            if fnmatchcase(name, pattern):
                return worker
        return max(sorted(self._workers), key=lambda worker: _weight(worker, name))

    def _context(self) -> LeaseContext:
        if self._ctx is None:
            raise RuntimeError("the lease backend has not started")
        return self._ctx


def _weight(worker: str, name: str) -> bytes:
    return hashlib.sha256(f"{len(worker)}:{worker}{name}".encode()).digest()
