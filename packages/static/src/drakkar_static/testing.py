"""What a test kit needs to run over this provider."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from drakkar.fleet.provider import RegistryProvider

from drakkar_static import make_registry

if TYPE_CHECKING:
    from drakkar.leases.backend import LeaseBackend


class Store:
    """A fixed list for one test, and leases that are all `worker-1`'s unless the options say otherwise."""

    publishes: Final = False
    """The list takes no cards, so the checks of reading apply and those of publishing do not."""

    lease_ttl_seconds: Final = 1.0
    """Nothing depends on it: an assignment never runs out."""

    def __init__(self, options: Mapping[str, Any], prune_after_seconds: float = 600) -> None:
        """`options` are those of both halves. `prune_after_seconds` is accepted as by every store; nothing
        of a fixed list is ever deleted."""
        del prune_after_seconds
        self._options = {name: value for name, value in options.items() if name != "assignments"}
        self._lease_options = {"assignments": {"*": "worker-1"}, **options}

    def make_provider(self) -> RegistryProvider:
        """A new provider, not yet started."""
        return make_registry(self._options)

    def advance(self, seconds: float) -> None:
        """Does nothing: the ages of a fixed list are unknown however long one waits."""

    def make_lease_backend(self) -> "LeaseBackend":
        """A new lease backend, not yet started."""
        return make_registry.lease_backend(self._lease_options)

    async def advance_leases(self, seconds: float) -> None:
        """Wait, which is all that `wait` notices of time here."""
        await asyncio.sleep(seconds)
