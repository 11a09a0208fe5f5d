"""Started halves of the etcd package, each standing for a process."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.testkit import make_context
from drakkar_etcd.leases import EtcdLeases
from drakkar_etcd.registry import EtcdRegistry

MakeRegistry = Callable[..., Awaitable[EtcdRegistry]]
MakeBackend = Callable[..., Awaitable[EtcdLeases]]


class Workers:
    """Makes them; `stop` is for the end of the test."""

    def __init__(self) -> None:
        self._made: list[EtcdRegistry | EtcdLeases] = []

    async def registry(self, worker: str, options: dict[str, Any], **context: Any) -> EtcdRegistry:
        registry = EtcdRegistry(options)
        self._made.append(registry)
        await registry.start(make_card_context(worker, **context))
        return registry

    async def leases(self, worker: str, options: dict[str, Any], **context: Any) -> EtcdLeases:
        leases = EtcdLeases(options)
        self._made.append(leases)
        await leases.start(make_context(worker, secrets.token_hex(8), **context))
        return leases

    async def stop(self) -> None:
        for each in self._made:
            await each.stop()
