"""Publishing and withdrawing cards, in such a way that a request which comes late changes nothing."""

from dataclasses import dataclass
from typing import Final

from drakkar_etcd._answers import EtcdError
from drakkar_etcd._cards import UnreadableError, decode_card
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._grant import Grant
from drakkar_etcd._wire import (
    Folder,
    compare,
    decoded,
    got,
    number,
    revision_of,
    then_delete,
    then_get,
    then_put,
    transaction,
)

_TRIES: Final = 5
"""Each fails only because somebody else wrote the same card meanwhile, or because its lease went."""


@dataclass
class _Own:
    """A card of this process."""

    grant: Grant
    mod: int = 0
    """The revision of the card that is to be replaced; 0 for none."""


class Publisher:
    """Writes below `folder`. Every method raises as `EtcdClient.call` does."""

    def __init__(self, client: EtcdClient, folder: Folder, prune_after_seconds: float) -> None:
        self._client = client
        self._folder = folder
        self._ttl_seconds = prune_after_seconds
        self._own: dict[str, _Own] = {}

    async def publish(self, worker: str, data: bytes) -> None:
        """Put the card in the place of the one that is there, on a lease with its full ttl.

        A publish that was cut short names the card that it would replace, so it cannot replace a later one;
        and the lease that it hangs on, so it cannot come after a withdrawal. The card first, its lease
        second: a reader that counts from the lease may take a card for older than it is, never for younger.
        """
        key = self._folder.key(worker)
        own = self._own.setdefault(worker, _Own(Grant(self._client, self._ttl_seconds)))
        for _ in range(_TRIES):
            lease = await own.grant.ensure()
            request = transaction(
                [compare(key, "mod", own.mod)], [then_put(key, data, lease)], [then_get(key)]
            )
            try:
                answer = await self._client.call("/kv/txn", request)
            except EtcdError as error:
                if not error.lease_is_gone:
                    raise
                own.grant.forget(lease)
                continue
            if not answer.get("succeeded"):
                found = got(answer, 0)
                own.mod = 0 if found is None else number(found["mod_revision"])
                continue
            own.mod = revision_of(answer)
            if await own.grant.keep_alive():
                return
        raise RuntimeError(f"the card of {worker} was changed by somebody else under every try")

    async def withdraw(self, worker: str, instance: str) -> None:
        """Delete the card while it is of `instance`, and end the lease that it hung on."""
        key = self._folder.key(worker)
        own = self._own.get(worker)
        for _ in range(_TRIES):
            answer = await self._client.call("/kv/range", {"key": key})
            found = next(iter(answer.get("kvs", ())), None)
            if found is not None:
                if _instance(decoded(found.get("value"))) != instance:
                    if own is not None and number(found.get("lease")) == own.grant.id:
                        return
                elif not await self.delete(key, number(found["mod_revision"])):
                    continue
            if own is not None:
                await own.grant.revoke()
                self._own.pop(worker, None)
            return
        raise RuntimeError(f"the card of {worker} was changed by somebody else under every try")

    async def delete(self, key: str, mod: int) -> bool:
        """Delete a key while it is of that revision; tell whether it was."""
        request = transaction([compare(key, "mod", mod)], [then_delete(key)])
        return bool((await self._client.call("/kv/txn", request)).get("succeeded"))


def _instance(data: bytes) -> object:
    try:
        return decode_card(data).get("instance")
    except UnreadableError:
        return None
