"""What the test kits need to run over the provider `none`; each provider package has a module like it."""

from collections.abc import Mapping
from typing import Any, Final

from drakkar.clock import SystemClock
from drakkar.fleet.none import NoRegistry
from drakkar.leases.memory import MemoryLeases, MemoryStore


class Store:
    """Nobody's cards, and leases in memory that the backends of one store compete for."""

    publishes: Final = False
    """No card is kept, so the checks of reading apply and those of publishing do not."""

    lease_ttl_seconds: Final = 1.0
    """The shortest ttl that makes sense."""

    def __init__(self, options: Mapping[str, Any], prune_after_seconds: float = 600) -> None:
        """Any options will do, as for the provider."""
        del options, prune_after_seconds
        self._clock = _Clock()
        self._leases = MemoryStore(self._clock)

    def make_provider(self) -> NoRegistry:
        """A new provider, not yet started."""
        return NoRegistry()

    def advance(self, seconds: float) -> None:
        """Does nothing: there are no cards that could grow older."""

    def make_lease_backend(self) -> MemoryLeases:
        """A new lease backend, not yet started."""
        return MemoryLeases(self._leases)

    def advance_leases(self, seconds: float) -> None:
        """Let that much time pass for every lease backend of this store."""
        self._clock.ahead_seconds += seconds


class _Clock(SystemClock):
    ahead_seconds = 0.0

    def elapsed(self) -> float:
        return super().elapsed() + self.ahead_seconds
