"""What all leases of this process hang on: one etcd lease, and a guard that late requests fail at.

An acquire that got no answer may still be on its way. Should it arrive when its name was given back since, it
would make a record that nobody knows of, kept alive for as long as the process holds anything. So each
acquire names the revision of a key of this process, the guard; and before a name of which an acquire is in
doubt is asked for or given back again, the guard is written anew, which takes a new revision. That costs a
request after a failure, and nothing else.
"""

import asyncio
from collections.abc import Callable

from drakkar_etcd._answers import EtcdError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._grant import Grant
from drakkar_etcd._wire import Json, compare, encoded, number, put, revision_of, then_get


class Session:
    """Made anew when the server has let it go. Every method raises as `EtcdClient.call` does."""

    def __init__(
        self, client: EtcdClient, guard: str, holder: str, ttl_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._guard = encoded(guard)
        self.guard_revision = 0
        """What an acquire names; 0 while there is no guard."""

        self._holder = holder
        self._grant = Grant(client, ttl_seconds)
        self._clock = clock
        self._turn = asyncio.Lock()
        self._doubtful: set[str] = set()
        self.renewed_at = float("-inf")
        """When the request was sent that last brought it to its full ttl."""

    @property
    def id(self) -> int:
        """The etcd lease; 0 while there is none."""
        return self._grant.id if self.guard_revision else 0

    @property
    def ttl_seconds(self) -> float:
        """What the server granted."""
        return self._grant.ttl_seconds

    async def renew(self, asked_at: float) -> bool:
        """Bring it to its full ttl by a request sent after `asked_at`; one for all who ask meanwhile. False
        when it is gone."""
        async with self._turn:
            return self.renewed_at >= asked_at or await self._keep_alive()

    async def make(self, asked_at: float) -> None:
        """The same, but made anew when it is gone."""
        async with self._turn:
            if self.renewed_at >= asked_at or await self._keep_alive():
                return
            sent_at = self._clock()
            if not await self._grant.keep_alive():  # it may be there, and only the guard be missing
                sent_at = self._clock()
                await self._grant.ensure()
            await self._write_guard()
            self.renewed_at = sent_at

    async def settle(self, name: str) -> None:
        """See to it that no earlier acquire of `name` can still arrive."""
        async with self._turn:
            if name not in self._doubtful:
                return
            doubtful, self._doubtful = self._doubtful, set()
            try:
                if self.id:  # what hangs on a lease that is gone, cannot arrive
                    await self._write_guard()
            except BaseException:
                self._doubtful |= doubtful
                raise

    def doubt(self, name: str) -> None:
        """An acquire of `name` was sent, and may not have arrived yet."""
        self._doubtful.add(name)

    def forget(self, id_: int) -> None:
        """The etcd lease `id_` is gone."""
        self._grant.forget(id_)
        if not self._grant.id:
            self.guard_revision, self.renewed_at = 0, float("-inf")

    def unchanged(self) -> Json:
        """The condition that an acquire names."""
        return compare(self._guard, "mod", self.guard_revision)

    def look(self) -> Json:
        """The read that tells why an acquire failed at it."""
        return then_get(self._guard)

    async def adopt(self, guard: Json | None, named: int) -> None:
        """Go on from what an acquire, which named the revision `named`, found in the guard's place."""
        async with self._turn:
            if not self.id or self.guard_revision != named:
                return  # it was written anew meanwhile
            found = 0 if guard is None else number(guard["mod_revision"])
            if found < named:  # deleted, or the store was set back to an earlier state of its own
                await self._write_guard()
            else:
                self.guard_revision = found

    async def _keep_alive(self) -> bool:
        if not self.id:
            return False
        id_, sent_at = self.id, self._clock()
        if await self._grant.keep_alive():
            self.renewed_at = sent_at
            return True
        self.forget(id_)
        self.guard_revision, self.renewed_at = 0, float("-inf")
        return False

    async def _write_guard(self) -> None:
        id_ = self._grant.id
        try:
            answer = await self._client.call("/kv/put", put(self._guard, self._holder, id_))
        except EtcdError as error:
            if error.lease_is_gone:
                self.forget(id_)
            raise
        self.guard_revision = revision_of(answer)
