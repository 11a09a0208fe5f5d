"""A prefix in a real Consul for a test kit to run over: providers and lease backends that share it, and ways
to let time pass.

Meant for the checks of `drakkar.fleet.testkit` and `drakkar.leases.testkit`, or of any other kit for the
same contracts.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from drakkar_consul._session import elapsed_seconds
from drakkar_consul.registry import ConsulRegistry
from drakkar_consul.settings import read_settings

if TYPE_CHECKING:
    from drakkar_consul.leases import ConsulLeases


class Store:
    """The agent and prefix that `options` name; two providers of it stand for two processes."""

    lease_ttl_seconds: Final = 20.0
    """The shortest ttl that Consul can keep."""

    def __init__(self, options: Mapping[str, Any], prune_after_seconds: float = 600) -> None:
        """`options` are those of the provider. Raises `ValueError` when they do not hold."""
        self._options = {**options, "prune_after_seconds": prune_after_seconds}
        read_settings(self._options)
        self._ahead_seconds = 0.0

    def make_provider(self) -> ConsulRegistry:
        """A new provider, not yet started."""
        return ConsulRegistry(self._options, clock=lambda: elapsed_seconds() + self._ahead_seconds)

    def advance(self, seconds: float) -> None:
        """Make every card now stored `seconds` older for the providers of this store, which tell ages by what
        they saw. What the agent deletes of itself, it deletes in its own time."""
        self._ahead_seconds += seconds

    def make_lease_backend(self) -> "ConsulLeases":
        """A new lease backend, not yet started."""
        from drakkar_consul.leases import ConsulLeases

        return ConsulLeases(self._options)

    async def advance_leases(self, seconds: float) -> None:
        """Wait: the servers count the time of sessions, and nobody can make them hurry."""
        await asyncio.sleep(seconds)
