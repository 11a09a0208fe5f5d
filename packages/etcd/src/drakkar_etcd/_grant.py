"""One etcd lease: what cards and records hang on, so that they go when nobody keeps it alive."""

import math
import secrets

from drakkar_etcd._answers import EtcdError, UnansweredError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._wire import Json, number

_EXISTS = "lease already exists"


class Grant:
    """At most one etcd lease at a time. It is made when it is needed, and made anew when it is gone."""

    def __init__(self, client: EtcdClient, ttl_seconds: float) -> None:
        self._client = client
        self._asked_seconds = math.ceil(ttl_seconds)
        self._granted = False
        self.id = 0
        """Ours to choose: a grant whose answer was lost is found again under it, and does not stay behind."""

        self.ttl_seconds = float(self._asked_seconds)
        """What the server grants, which may be more than was asked for: it has a minimum."""

    async def ensure(self) -> int:
        """The id of the lease, which is made if there is none. Raises as `EtcdClient.call` does."""
        if not self._granted:
            self.id = id_ = self.id or secrets.randbits(62) + 1
            try:
                answer = await self._client.call(
                    "/lease/grant", {"ID": str(id_), "TTL": str(self._asked_seconds)}
                )
                seconds = _seconds(answer, id_)
                if seconds <= 0:
                    raise UnansweredError("etcd granted a lease without saying for how long")
                self.ttl_seconds = float(seconds)
            except EtcdError as error:
                if _EXISTS not in str(error):
                    raise
                self._granted = True  # by an earlier request: it has only what is left of it
                if not await self.keep_alive():
                    raise
            self._granted = True
        return self.id

    async def keep_alive(self) -> bool:
        """Bring the lease to its full ttl; False when it is gone, and then it is forgotten."""
        if not self._granted:
            return False
        id_ = self.id
        answer = await self._client.call("/lease/keepalive", {"ID": str(id_)})
        seconds = _seconds(answer.get("result"), id_)
        if seconds <= 0:  # no error: this is how etcd answers for a lease that it does not have
            self.forget(id_)
            return False
        self.ttl_seconds = float(seconds)
        return True

    def forget(self, id_: int) -> None:
        """The lease `id_` is gone. Does nothing when another one has its place by now."""
        if self.id == id_:
            self.id, self._granted = 0, False

    async def revoke(self) -> None:
        """End the lease, and all that hangs on it; what is still on its way to hang itself on it, fails."""
        if self.id:
            id_ = self.id
            try:
                await self._client.call("/lease/revoke", {"ID": str(id_)})
            except EtcdError as error:
                if not error.lease_is_gone:
                    raise
            self.forget(id_)


def _seconds(answer: Json | None, id_: int) -> int:
    """The ttl in an answer about the lease `id_`; 0 when the server does not have it."""
    if not isinstance(answer, dict) or number(answer.get("ID")) != id_:
        raise UnansweredError("etcd answered for another lease than was asked for")
    return number(answer.get("TTL"))
