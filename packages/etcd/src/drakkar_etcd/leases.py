"""The lease half: one etcd lease for this process, one key below `<prefix>/leases/` for each name it holds.

How soon a successor can start: milliseconds after a release. After a holder died, its ttl after it was last
heard of and up to half a second that etcd takes to notice; twice that when the cluster lost its leader
meanwhile, since a new one gives every lease its full time once more.

Not guaranteed: that an operator who deletes or overwrites a record does no harm before its holder's next
renewal.

This is the side towards the keeper: time limits and the refusal to forked copies.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal

from drakkar_etcd._claims import Claims
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._session import Session
from drakkar_etcd._wakeups import WakeUps
from drakkar_etcd._wire import Folder
from drakkar_etcd.registry import elapsed_seconds
from drakkar_etcd.settings import read_settings


class EtcdLeases:
    """Keeps leases in etcd. See `drakkar.leases.backend.LeaseBackend` for what each method promises.

    A call that no endpoint answers within nine tenths of the keeper's time limit raises `TimeoutError` or
    `ConnectionError`; what the server refuses raises `EtcdError`.
    """

    min_ttl_seconds = 2.0
    fenced = True
    local = False

    def __init__(self, options: Mapping[str, Any], *, clock: Callable[[], float] = elapsed_seconds) -> None:
        """`clock` returns elapsed seconds. Raises `ValueError`, one line, when the options do not hold."""
        self._settings = read_settings(options)
        self._clock = clock
        self._client = EtcdClient(self._settings)
        self._pid = 0
        self._claims: Claims | None = None
        self._session: Session
        self._wakeups: WakeUps

    async def start(self, ctx: LeaseContext) -> None:
        """Log in, make the etcd lease, and find or make what all tokens begin with; may be called again.

        Raises what any call raises.
        """
        self._client.open(0.9 * ctx.timeout_seconds)
        if self._claims is None:
            prefix = self._settings.prefix
            guard = f"{prefix}/holders/{ctx.instance}"
            self._pid = os.getpid()
            self._session = Session(self._client, guard, ctx.holder, ctx.ttl_seconds, self._clock)
            self._wakeups = WakeUps(self._client, Folder(f"{prefix}/leases/"))
            self._claims = Claims(self._client, prefix, ctx.holder, self._session, self._wakeups, self._clock)
        claims = self._started()
        async with self._client.within():
            await self._client.log_in()
            await self._session.make(self._clock())
            await claims.tokens.prepare()
        if self._session.ttl_seconds > ctx.ttl_seconds:
            ctx.logger.info("lease_ttl_raised", asked=ctx.ttl_seconds, granted=self._session.ttl_seconds)

    async def acquire(self, name: str) -> Lease | Held:
        """Renew the etcd lease, and take the name if it has no key. A cancelled acquire cannot take effect
        any more when the next call for that name was answered.

        Raises `UnansweredError` while endpoints are of different clusters, as `renew` does.
        """
        claims = self._started()
        async with self._agreed():
            return await claims.acquire(name)

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        """One keep-alive and one reading of all names, however many there are."""
        claims, asked = self._started(), list(leases)
        if not asked:
            return Renewal()
        async with self._agreed():
            return await self._renew(claims, asked)

    @asynccontextmanager
    async def _agreed(self) -> AsyncIterator[None]:
        """The time limit around what makes or keeps a leader; its answers count in one cluster alone."""
        async with self._client.within():
            await self._client.clusters.agree()
            yield
            await self._client.clusters.agree()

    async def _renew(self, claims: Claims, leases: list[Lease]) -> Renewal:
        # At the same time: a record that is read stays while its etcd lease lives, unless somebody deletes
        # it, which the next reading notices, as it would after any reading.
        reading = asyncio.create_task(claims.read(), name="drakkar etcd renewal")
        try:
            if not await self._session.renew(self._clock()):
                return Renewal(lost=leases)
            kept, lost = claims.compared(leases, await reading)
        finally:
            await _ended(reading)
        ttl_seconds = self._session.ttl_seconds
        renewed = [
            # It is the same nearly always, and `replace` is slow.
            lease if lease.ttl_seconds == ttl_seconds else replace(lease, ttl_seconds=ttl_seconds)
            for lease in kept
        ]
        return Renewal(renewed, lost)

    async def release(self, name: str, token: int | None = None) -> None:
        """Delete the key, which wakes who waits for it; may be repeated."""
        claims = self._started()
        async with self._client.within():
            await claims.release(name, token)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        """Return when the watch tells of a deletion. While the server is away nothing is told; what was
        missed is, when it is back."""
        self._started()
        return await self._wakeups.wait(names, timeout_seconds)

    async def list(self) -> Sequence[LeaseInfo]:
        """Every lease that somebody has, by one reading. Age and remaining time are known for our own."""
        claims = self._started()
        async with self._client.within():
            return await claims.rows()

    async def stop(self) -> None:
        """Close what was opened; leases that were not given back run out by themselves. May be called twice,
        and without `start`."""
        if self._claims is not None:
            if os.getpid() != self._pid:
                return  # the connections are the parent's
            await self._wakeups.stop()
        await self._client.close()

    def _started(self) -> Claims:
        if self._claims is None:
            raise RuntimeError("the lease backend has not started")
        if os.getpid() != self._pid:
            raise RuntimeError("a forked copy of a process has none of its leases")
        return self._claims


async def _ended(task: asyncio.Task[Any]) -> None:
    """Return when it is done with, and nothing that it raised is left over."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
