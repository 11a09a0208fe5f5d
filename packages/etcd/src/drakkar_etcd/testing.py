"""A fleet in etcd for a test kit to run over: providers and lease backends that share it, and ways to let
time pass.

Meant for the checks of `drakkar.fleet.testkit` and `drakkar.leases.testkit`, or of any other kit for the
same contracts. The server is yours.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from drakkar_etcd.registry import EtcdRegistry, elapsed_seconds
from drakkar_etcd.settings import read_settings

if TYPE_CHECKING:
    from drakkar_etcd.leases import EtcdLeases


class Store:
    """The keys below the prefix of `options`; two providers of it stand for two processes."""

    lease_ttl_seconds: Final = 2.0
    """The shortest ttl that etcd grants."""

    def __init__(self, options: Mapping[str, Any], prune_after_seconds: float = 600) -> None:
        """`options` are those of the provider. Raises `ValueError` when they do not hold."""
        self._options = {**options, "prune_after_seconds": prune_after_seconds}
        self._moves: list[tuple[float, float]] = []
        read_settings(self._options)

    def make_provider(self) -> EtcdRegistry:
        """A new provider, not yet started."""
        return EtcdRegistry(
            self._options,
            clock=lambda: elapsed_seconds() + self._skipped_within(float("inf")),
            skipped_within=self._skipped_within,
        )

    def advance(self, seconds: float) -> None:
        """Make every card now stored `seconds` older on the clock that providers of this store use. The
        server knows nothing of it."""
        self._moves.append((elapsed_seconds(), seconds))

    def make_lease_backend(self) -> "EtcdLeases":
        """A new lease backend, not yet started."""
        from drakkar_etcd.leases import EtcdLeases

        return EtcdLeases(self._options)

    async def advance_leases(self, seconds: float) -> None:
        """Wait: leases run out on the clock of the server."""
        await asyncio.sleep(seconds)

    def _skipped_within(self, seconds: float) -> float:
        now = elapsed_seconds()
        return sum(skipped for at, skipped in self._moves if now - at <= seconds)
