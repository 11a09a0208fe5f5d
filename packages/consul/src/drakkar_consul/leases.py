"""The lease backend `consul`: one key per lease below `<prefix>/leases/`, held by one session per process.

Not guaranteed: that a lease whose holder died is free after its ttl to the second; the servers free it within
some tens of milliseconds of that, but a fail-over among them gives every session its full time again. Nor
that whoever can write below the prefix or end sessions does no harm: a key that is deleted, or whose session
or node is removed, may be taken by another process before its holder notices at its next renewal, and so may
all when the servers lose their data; a key that somebody overwrites stays locked until then.

Reads are made in the default mode. A server that has just been cut off from the others, and does not know it,
may answer them for half a second with what was true then. That costs a refusal or a wake-up that comes to
nothing, never a lease: every grant and every release is a transaction that the majority must agree to, and a
lease that was lost in that moment is noticed at the next renewal.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal

from drakkar_consul._base import TokenBase
from drakkar_consul._client import ConsulClient
from drakkar_consul._keys import Entry
from drakkar_consul._locks import Grant, Locks
from drakkar_consul._lookout import Lookout
from drakkar_consul._names import name_of, place_of
from drakkar_consul._records import Record, decode, encode
from drakkar_consul._session import Session, elapsed_seconds
from drakkar_consul.settings import read_settings

T = TypeVar("T")

CONNECTIONS: Final = 4
"""And one for the blocking query. An agent takes 200 connections of one address in all."""

MIN_TTL_SECONDS: Final = 20.0
MAX_TTL_SECONDS: Final = 86400.0
_STOP_SECONDS: Final = 1.0


class ConsulLeases:
    """Keeps leases as locked keys. See `drakkar.leases.backend.LeaseBackend` for what each method promises.

    A call that the agent does not answer within nine tenths of the keeper's time limit raises `ConsulError`.
    """

    min_ttl_seconds = MIN_TTL_SECONDS
    fenced = True
    local = False

    def __init__(self, options: Mapping[str, object]) -> None:
        """Raises `ValueError`, one line, when the options do not hold."""
        self._settings = read_settings(options)
        self._prefix = f"{self._settings.prefix}/leases/"
        self._client = ConsulClient(self._settings, connections=CONNECTIONS)
        self._base = TokenBase(self._client, f"{self._settings.prefix}/token-base")
        self._lookout = Lookout(self._client, self._prefix)
        self._ctx: LeaseContext | None = None
        self._pid = 0
        self._session: Session
        self._locks: Locks

    async def start(self, ctx: LeaseContext) -> None:
        """Read, or make, the key from which tokens are counted.

        Raises `ConsulError` when that fails, and `ValueError` for a ttl that Consul cannot keep; may be
        called again.
        """
        if not self.min_ttl_seconds <= ctx.ttl_seconds <= MAX_TTL_SECONDS:
            raise ValueError(
                f"a lease in Consul lasts {self.min_ttl_seconds:g} to {MAX_TTL_SECONDS:g} s,"
                f" not {ctx.ttl_seconds:g}: it frees a dead session at twice its ttl, which is 10 s at least"
            )
        if self._ctx is None:
            self._client.limit_seconds = 0.9 * ctx.timeout_seconds
            name = f"drakkar leases of {place_of(ctx.worker)[:200]}"
            self._session = Session(self._client, name, ctx.ttl_seconds / 2, delete=False)
            self._locks = Locks(self._client, self._base, self._session)
            self._ctx = ctx
            self._pid = os.getpid()
        await self._call(self._base.get)

    async def acquire(self, name: str) -> Lease | Held:
        """Lock the key, on a session that was renewed first.

        `retry_after_seconds` is a whole ttl: a key that becomes free wakes whoever waits, however that
        happens. Cancelling may or may not have taken effect; but not after the next call for this name.
        """
        return await self._call(lambda: self._acquire(name))

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        """Renew the session, then read all keys and compare session and index of each: the session alone
        would not tell that a key was deleted or overwritten."""
        asked = list(leases)
        ctx = self._context()
        if not asked:
            return Renewal()
        entries = await self._call(self._renewed)
        kept, lost = [], []
        holder, ttl_seconds = ctx.holder, ctx.ttl_seconds
        for lease in asked:
            key = self._key(lease.name)
            grant = self._locks.grants.get(key)
            ours = grant is not None and (lease.holder, lease.token) == (holder, grant.token)
            if not ours or not self._locks.is_ours(entries.get(key), grant):
                lost.append(lease)
            elif lease.ttl_seconds == ttl_seconds:
                kept.append(lease)
            else:
                kept.append(Lease(lease.name, holder, lease.token, ttl_seconds))
        return Renewal(kept, lost)

    async def release(self, name: str, token: int | None = None) -> None:
        """Unlock the key; may be repeated. One that somebody has overwritten while we held it is unlocked
        too.

        When it returns, no acquire of before can come through any more.
        """
        await self._call(lambda: self._locks.give_back(self._key(name), token))

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        """Wait for a change by one blocking query for all leases, on a connection of its own.

        Raises `ConsulError` when the agent cannot be asked. Cancelling leaves no change.
        """
        self._context()
        keys = {self._key(name): name for name in names}
        free = await self._lookout.wait(frozenset(keys), timeout_seconds)
        return frozenset(keys[key] for key in free)

    async def list(self) -> Sequence[LeaseInfo]:
        """Every lease that a session holds. The age is known for our own alone; what remains is unknown. A
        key that somebody has overwritten while it was held has no known holder.

        Raises `ConsulError` when the agent cannot be asked or the token may not read.
        """
        listing = await self._call(lambda: self._client.tree(self._prefix))
        await self._call(self._base.get)
        return [await self._row(entry) for entry in listing.entries.values() if entry.session is not None]

    async def stop(self) -> None:
        """Close the connections; leases that were not given back run out. May be called twice, and without
        `start`.

        Without such leases the session ends, so that nothing is left of this process; if the agent does not
        answer, it runs out too.
        """
        if self._ctx is not None and os.getpid() != self._pid:
            return  # the connections are the parent's
        await self._lookout.stop()
        try:
            if self._ctx is not None and not self._locks.grants:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._session.destroy()
        except TimeoutError:
            pass
        finally:
            await self._client.close()

    async def _acquire(self, name: str) -> Lease | Held:
        ctx, key = self._context(), self._key(name)
        taken = await self._locks.take(key, encode(Record(ctx.holder, name)))
        if isinstance(taken, Grant):
            return Lease(name, ctx.holder, taken.token, ctx.ttl_seconds)
        self._lookout.refused(key, taken.index)
        record = decode(key.removeprefix(self._prefix), taken.value)
        # Under our name, but on another session: a copy of this process.
        holder = None if record is None or record.holder == ctx.holder else record.holder
        return Held(holder, ctx.ttl_seconds)

    async def _renewed(self) -> Mapping[str, Entry]:
        if not await self._session.renew():
            return {}
        return (await self._client.tree(self._prefix)).entries

    async def _row(self, entry: Entry) -> LeaseInfo:
        place = entry.key.removeprefix(self._prefix)
        record = decode(place, entry.value)
        grant = self._locks.grants.get(entry.key)
        ours = self._locks.is_ours(entry, grant)
        return LeaseInfo(
            name=record.name if record is not None else name_of(place) or place,
            holder=None if record is None else record.holder,
            token=await self._base.token(entry.index),
            age_seconds=elapsed_seconds() - grant.granted_at if grant is not None and ours else None,
            remaining_seconds=None,
        )

    def _key(self, name: str) -> str:
        return self._prefix + place_of(name)

    def _context(self) -> LeaseContext:
        if self._ctx is None:
            raise RuntimeError("the lease backend has not started")
        if os.getpid() != self._pid:
            raise RuntimeError("a forked copy of a process has none of its leases")
        return self._ctx

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        self._context()
        async with self._client.within():
            return await work()
