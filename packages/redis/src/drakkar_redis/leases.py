"""The lease backend `redis`: a key with an expiry for each lease, one counter of tokens for the fleet.

Not guaranteed: that a lease survives what its server forgets. A server that is restarted without its data,
flushed, told to evict, or replaced by a replica that was behind, may grant a lease again before its holder
has noticed, which it does at its next renewal. Tokens rise over all of these, as they are never below the
server's clock in microseconds, nor below one that the process which asks has seen: they are what to rely on.
`min_replicas` narrows the gap of a fail-over; it does not close it.

The ends of leases are measured by the server's wall clock alone: a step forward of that clock ends them
early.
"""

import asyncio
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal

from drakkar_redis import _rights
from drakkar_redis._client import SHARE_OF_LIMIT, RedisClient
from drakkar_redis._errors import StoreError
from drakkar_redis._keys import Keys
from drakkar_redis._lease_scripts import ACQUIRE, LIST, LOOK, RELEASE, RENEW
from drakkar_redis._script import Script
from drakkar_redis._start import check
from drakkar_redis._tls import check_files
from drakkar_redis._wakeups import WakeUps
from drakkar_redis.settings import read_settings

POLL_SECONDS: Final = 1.0
"""How often leases that are waited for are looked at while nobody tells of changes."""

_FAR_TOKEN: Final = 2**52
"""No clock of this century comes to it: what somebody wrote there by hand must not become everybody's."""


class RedisLeases:
    """Keeps leases in Redis. See `drakkar.leases.backend.LeaseBackend` for what each method promises.

    A call that the server does not answer within nine tenths of the keeper's time limit raises
    `TimeoutError`; one that fails raises `StoreError`.
    """

    min_ttl_seconds = 1.0
    fenced = True
    local = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises `ValueError`, one line, when the options do not hold, or a file they name cannot be used."""
        self._settings = read_settings(options)
        check_files(self._settings)
        self._keys = Keys(self._settings.prefix)
        self._refused: dict[str, str] = {}
        self._highest = 0
        self._given_back: dict[str, int] = {}
        """Tokens of grants that were released here without an answer: a late release must not take the lease
        from under a run."""

        self._ctx: LeaseContext | None = None
        self._pid = 0
        self._ttl_ms = 0
        self._limit_seconds = 0.0
        self._client: RedisClient
        self._wakeups: WakeUps

    async def start(self, ctx: LeaseContext) -> None:
        """Show that the server can be asked; may be called again.

        Raises `StoreError` or `TimeoutError` when it cannot, and `ValueError` when the configuration keeps it
        from that.
        """
        if self._ctx is None:
            self._ctx = ctx
            self._pid = os.getpid()
            self._ttl_ms = math.ceil(1000 * ctx.ttl_seconds)
            self._limit_seconds = SHARE_OF_LIMIT * ctx.timeout_seconds
            self._client = RedisClient(self._settings, self._limit_seconds)
            self._wakeups = WakeUps(self._client.listen, self._keys.released, ctx.logger)
        self._context()  # not in a forked copy
        keys, args = [self._keys.names], [self._keys.lease_prefix]
        await check(self._client, self._settings, _rights.LEASES, LIST, keys, args)

    async def acquire(self, name: str) -> Lease | Held:
        """Take the lease. A grant that `min_replicas` do not confirm is given back, and `StoreError` raised.

        Cancelling may or may not have taken effect: then the next `acquire` returns the grant, or it runs
        out.
        """
        ctx = self._context()
        keys = [self._keys.lease(name), self._keys.token, self._keys.names]
        args = [ctx.holder, self._ttl_ms, name.encode(), self._keys.lease_prefix, self._highest]
        replicas = self._settings.min_replicas
        answer, confirmed = await self._client.run(ACQUIRE, keys, args, replicas)
        match answer:
            case [0, bytes() as token, bytes() as holder, int() as left_ms]:
                self._saw(token)
                self._refused[name] = token.decode() or "?"
                return Held(holder.decode(errors="replace") or None, max(0, left_ms) / 1000)
            case [1, bytes() as token] if token.isdigit():
                self._saw(token)
            case _:
                raise self._nonsense("an acquire")
        reason = f"{confirmed} of {replicas} replicas have the grant" if confirmed < replicas else ""
        if int(token) == self._given_back.get(name):
            reason = reason or "an earlier release of the grant may still arrive"
        if reason:
            self._given_back[name] = int(token)
            await self.release(name, int(token))
            self._given_back.pop(name, None)
            raise StoreError(f"{reason}, so it was given back")
        self._given_back.pop(name, None)
        self._refused.pop(name, None)
        return Lease(name, ctx.holder, int(token), ctx.ttl_seconds)

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        """Renew all in one script call. What `min_replicas` do not confirm is unknown, and `StoreError`
        raised unless something is lost."""
        ctx = self._context()
        asked = [lease for lease in leases if lease.holder == ctx.holder]
        foreign = [lease for lease in leases if lease.holder != ctx.holder]
        if not asked:
            return Renewal(lost=foreign)
        keys = [self._keys.names, *(self._keys.lease(lease.name) for lease in asked)]
        args = [ctx.holder, self._ttl_ms, self._keys.lease_prefix, *(lease.token for lease in asked)]
        replicas = self._settings.min_replicas
        answer, confirmed = await self._client.run(RENEW, keys, args, replicas)
        if not isinstance(answer, bytes) or len(answer) != len(asked):
            raise self._nonsense("a renewal")
        kept, lost, ttl_seconds = [], foreign, ctx.ttl_seconds
        for lease, is_ours in zip(asked, answer, strict=True):
            if is_ours != ord("1"):
                lost.append(lease)
            elif lease.ttl_seconds == ttl_seconds:
                kept.append(lease)
            else:
                kept.append(Lease(lease.name, lease.holder, lease.token, ttl_seconds))
        if kept and confirmed < replicas:
            if not lost:
                raise StoreError(f"{confirmed} of {replicas} replicas have the renewal")
            kept = []
        return Renewal(kept, lost)

    async def release(self, name: str, token: int | None = None) -> None:
        """Delete the record if it is that grant, and tell who waits; may be repeated."""
        ctx = self._context()
        keys = [self._keys.lease(name), self._keys.names]
        args = [ctx.holder, "" if token is None else token, name.encode(), self._keys.released]
        await self._client.run(RELEASE, keys, args)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        """Return when one was given back, ran out or changed hands. Cancelling leaves no change."""
        self._context()
        wanted = {name: name.encode() for name in names}
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        await self._wakeups.ready(min(self._limit_seconds, timeout_seconds))
        told = self._wakeups.wake_for(frozenset(wanted.values()))
        try:
            while True:
                told.clear()
                free, next_seconds = await self._look(list(wanted))
                left = until - loop.time()
                if free or left <= 0:
                    return free
                if not self._wakeups.hears:
                    next_seconds = min(next_seconds, POLL_SECONDS)
                limit = asyncio.timeout(min(left, next_seconds))
                try:
                    async with limit:
                        await told.wait()
                except TimeoutError:
                    if not limit.expired():
                        raise
        finally:
            self._wakeups.forget(told)

    async def list(self) -> Sequence[LeaseInfo]:
        """Every lease that somebody has, from one script call."""
        rows = await self._run(LIST, [self._keys.names], [self._keys.lease_prefix])
        return [
            LeaseInfo(
                name.decode(errors="replace"),
                holder.decode(errors="replace") or None,
                int(token) if token else None,
                None if age_ms < 0 else age_ms / 1000,
                None if left_ms < 0 else left_ms / 1000,
            )
            for name, token, holder, age_ms, left_ms in rows
        ]

    async def stop(self) -> None:
        """Close the connections, waiting for no server; leases that were not given back run out. May be
        called twice, and without `start`."""
        if self._ctx is None or os.getpid() != self._pid:
            return
        await self._wakeups.stop()
        await self._client.close()

    def _nonsense(self, call: str) -> StoreError:
        return StoreError(f"{self._settings.address} answered {call} with what is no answer to it")

    def _saw(self, token: bytes) -> None:
        """All names have one counter: the next grant must be above it, whatever the server has forgotten."""
        if token.isdigit() and int(token) < _FAR_TOKEN:
            self._highest = max(self._highest, int(token))

    async def _look(self, names: Sequence[str]) -> tuple[frozenset[str], float]:
        """Those that may be free by now, and in how many seconds the first of the others will have run
        out."""
        if not names:
            return frozenset(), math.inf
        found = await self._run(LOOK, [self._keys.lease(name) for name in names], [])
        free, soonest_ms = set(), math.inf
        for name, (token, left_ms) in zip(names, found, strict=True):
            now = token.decode()
            if not now or now != self._refused.get(name, now):
                free.add(name)
            elif left_ms >= 0:
                soonest_ms = min(soonest_ms, left_ms + 1)
        return frozenset(free), soonest_ms / 1000

    async def _run(self, script: Script, keys: Sequence[str], args: Sequence[object]) -> Any:
        self._context()
        answer, _ = await self._client.run(script, keys, args)
        return answer

    def _context(self) -> LeaseContext:
        if self._ctx is None:
            raise RuntimeError("the lease backend has not started")
        if os.getpid() != self._pid:
            raise RuntimeError("a forked copy of a process has none of its leases")
        return self._ctx
