"""The registry of a fixed list: every peer always there, nothing ever published."""

from collections.abc import Iterable
from typing import Any

from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext

from drakkar_static.settings import Peer


class StaticRegistry:
    """Lists the peers it was made with, each of unknown age: nothing here has ever heard of them.

    Holds no connection, file or clock, so no call can wait or fail.
    """

    def __init__(self, peers: Iterable[Peer]) -> None:
        self._peers = tuple(peers)

    async def start(self, ctx: RegistryContext) -> None:
        """Nothing to open."""

    async def publish(self, card: dict[str, Any]) -> None:
        """Does nothing: the list is its author's."""

    async def list(self) -> PeerCardList:
        """Return new cards in the order of the list."""
        return [PeerCard(card=peer.card(), age_seconds=None) for peer in self._peers]

    async def withdraw(self, worker: str, instance: str) -> None:
        """Does nothing: no card was published."""

    async def stop(self) -> None:
        """Nothing to close."""
