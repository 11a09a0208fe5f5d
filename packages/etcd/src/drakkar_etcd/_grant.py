"""One etcd lease: what cards and records hang on, so that they go when nobody keeps it alive."""

import math
import secrets

from drakkar_etcd._answers import EtcdError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._wire import number

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
                self.ttl_seconds = float(number(answer["TTL"]))
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
        seconds = number(answer.get("result", {}).get("TTL"))
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
