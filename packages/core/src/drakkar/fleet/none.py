"""The provider of nobody: a worker that neither shows itself nor sees others.

Chosen as `none`, and taken in place of a provider that failed to start. Options are accepted and not
looked at, so that a fleet can be switched off by changing one word of its configuration.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drakkar.fleet.provider import PeerCardList, RegistryContext

if TYPE_CHECKING:
    from drakkar.leases.backend import LeaseBackend


class NoRegistry:
    """Keeps nothing, touches nothing and never fails."""

    async def start(self, ctx: RegistryContext) -> None:
        """Nothing to open."""

    async def publish(self, card: dict[str, Any]) -> None:
        """Nowhere to store `card`."""

    async def list(self) -> PeerCardList:
        """Return a new empty list, this worker's own card not included."""
        return []

    async def withdraw(self, worker: str, instance: str) -> None:
        """Nothing to delete."""

    async def stop(self) -> None:
        """Nothing to close."""


class _Factory:
    def __call__(self, options: Mapping[str, Any]) -> NoRegistry:
        """Return a registry of nobody; any options will do."""
        del options
        return NoRegistry()

    def lease_backend(self, options: Mapping[str, Any]) -> "LeaseBackend":
        """Return leases that workers of this process alone compete for; any options will do."""
        from drakkar.leases.memory import make_lease_backend

        return make_lease_backend(options)


make_registry = _Factory()
"""The factory behind the entry point `none`."""
