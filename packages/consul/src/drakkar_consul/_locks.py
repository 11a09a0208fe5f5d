"""The keys of the leases, as this process locks and unlocks them.

Every lock and unlock is a transaction that names the change of the key which it follows. A request that was
cut off and comes through late does not find that state any more once a later call for the key was answered,
so that it can neither bring a lock back which nobody knows of, nor take one away that was granted since. Keys
are never deleted: a key that is missing again would look like one that was never there.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from drakkar_consul import _keys as keys
from drakkar_consul._base import TokenBase
from drakkar_consul._client import ConflictError, ConsulClient, ConsulError
from drakkar_consul._keys import Entry
from drakkar_consul._records import FREE
from drakkar_consul._session import Session, elapsed_seconds

_TRIES: Final = 6


@dataclass(frozen=True, slots=True)
class Grant:
    """What this process holds."""

    token: int
    index: int
    """Of the change that made it. Any other means that somebody wrote the key since."""

    granted_at: float


class Locks:
    """All of one process, on its one session."""

    def __init__(self, client: ConsulClient, base: TokenBase, session: Session) -> None:
        self._client = client
        self._base = base
        self._session = session
        self._turns: dict[str, asyncio.Lock] = {}
        """One call at a time for a key: a release that is repeated must not meet the grant that follows."""

        self._attempts: dict[str, set[int]] = {}
        """The state that each lock without an answer was to follow: while the key has it, the request may
        still be on its way."""

        self.grants: dict[str, Grant] = {}
        """By key. Those that were given to the caller, until they are given back."""

    def is_ours(self, entry: Entry | None, grant: Grant | None) -> bool:
        """Whether the key is locked by that grant, and was not written since."""
        if entry is None or grant is None or entry.session is None:
            return False
        return (entry.session, entry.index) == (self._session.id, grant.index)

    async def take(self, key: str, record: bytes) -> Grant | Entry:
        """Lock the key, on a session that is renewed for it; or return it as another session holds it.

        A key that our session holds already is the same grant as before, unless somebody wrote it.
        """
        asked_at = elapsed_seconds()
        async with self._turns.setdefault(key, asyncio.Lock()):
            return await self._take(key, record, asked_at)

    async def _take(self, key: str, record: bytes, asked_at: float) -> Grant | Entry:
        for _ in range(_TRIES):
            # While a lock may be on its way, only what is certain tells that it cannot come through.
            entry = await self._client.get(key, exact=key in self._attempts)
            if entry is not None and entry.session not in (None, self._session.id):
                self._attempts.pop(key, None)  # none of them finds what it is to follow
                if self._session.id is None:  # else a token without the right to one would look well until
                    await self._session.fresh(asked_at)  # the lease is free, and then nobody leads
                return entry
            session = await self._session.fresh(asked_at)
            if entry is None:
                entry = await self._make(key)
            if entry is None or entry.session not in (None, session):
                continue  # it was changed meanwhile, or our session was lost
            highest = self._base.highest  # before it is sent: answers may come out of order
            is_new = entry.session is None
            if entry.session is None and (entry := await self._lock(entry, session, record)) is None:
                continue
            grant = self.grants.get(key)
            is_known = grant is not None and grant.index == entry.index
            if not is_known and await self._base.token(entry.index) <= highest:
                # The servers were set back to an earlier state, and this token comes a second time; or it may
                # be one of that kind, of an earlier try, whose unlocking is still on its way.
                await self._unlock(key, entry.index)
                if is_new:
                    await self._base.begin_anew()
                continue
            return await self._granted(entry)
        raise self._busy(key)

    async def give_back(self, key: str, token: int | None) -> None:
        """Unlock the key if the grant `token` is ours, or any with None. When this returns, no `take` of
        before can come through any more."""
        async with self._turns.setdefault(key, asyncio.Lock()):
            await self._give_back(key, token)

    async def _give_back(self, key: str, token: int | None) -> None:
        grant = self.grants.get(key)
        known = grant is not None and token in (None, grant.token)
        if grant is not None and known and await self._unlock(key, grant.index):
            return
        for _ in range(_TRIES):
            entry = await self._client.get(key, exact=True)
            if entry is not None and entry.session is not None and entry.session == self._session.id:
                if not known and token not in (None, await self._base.token(entry.index)):
                    return  # another grant, of later
                if await self._unlock(key, entry.index):  # also when somebody wrote over our record
                    return
                continue
            if entry is None or entry.index not in self._attempts.get(key, ()):
                break
            if await self._supersede(entry):
                break
        else:
            raise self._busy(key)
        self._attempts.pop(key, None)
        if known:
            self.grants.pop(key, None)

    async def _make(self, key: str) -> Entry | None:
        """Make the key, held by nobody; None when another process was faster."""
        try:
            return (await self._client.transact(keys.put(key, FREE, 0)))[-1]
        except ConflictError:
            return None

    async def _lock(self, entry: Entry, session: str, record: bytes) -> Entry | None:
        """Lock a key that nobody holds; None when it, the base or the session is not what it was."""
        base = await self._base.get()
        self._attempts.setdefault(entry.key, set()).add(entry.index)
        try:
            locked = await self._client.transact(
                keys.check_index(base.key, base.index),
                keys.check_index(entry.key, entry.index),
                keys.lock(entry.key, session, record),
            )
        except ConflictError as error:
            if error.session_is_gone:
                self._session.forget(session)
            if error.failed(0):
                self._base.forget()
            return None
        return locked[-1]

    async def _granted(self, entry: Entry) -> Grant:
        grant = self.grants.get(entry.key)
        if grant is None or grant.index != entry.index:
            token = await self._base.token(entry.index)
            grant = self.grants[entry.key] = Grant(token, entry.index, elapsed_seconds())
        self._attempts.pop(entry.key, None)
        return grant

    async def _unlock(self, key: str, index: int) -> bool:
        """Unlock our key as it was after the change `index`; whether it still was so."""
        session = self._session.id
        if session is None:
            return False
        try:
            await self._client.transact(keys.check_index(key, index), keys.unlock(key, session, FREE))
        except ConflictError:
            return False
        self._attempts.pop(key, None)
        self.grants.pop(key, None)
        return True

    async def _supersede(self, entry: Entry) -> bool:
        """Change a key that nobody holds, so that a lock which is still on its way does not find the state
        that it is to follow; whether it still had that."""
        try:
            await self._client.transact(keys.put(entry.key, entry.value, entry.index, entry.flags + 1))
        except ConflictError:
            return False
        return True

    def _busy(self, key: str) -> ConsulError:
        return ConsulError(f"{self._client.address}: the key {key} changes all the time")
