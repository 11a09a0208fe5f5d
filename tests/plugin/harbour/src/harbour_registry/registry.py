"""Cards in a dict of this process, one dict for each name of a harbour."""

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from drakkar.fleet.card import decode_card, encode_card
from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext

_HARBOURS: defaultdict[str, dict[str, tuple[bytes, float]]] = defaultdict(dict)


class HarbourRegistry:
    def __init__(self, options: Mapping[str, Any]) -> None:
        name = options.get("name")
        if not isinstance(name, str):
            raise ValueError("plugin_options.name must be the name of a harbour")
        self._cards = _HARBOURS[name]

    async def start(self, ctx: RegistryContext) -> None:
        """Nothing to open."""

    async def publish(self, card: dict[str, Any]) -> None:
        self._cards[card["worker"]] = encode_card(card), time.monotonic()

    async def list(self) -> PeerCardList:
        now = time.monotonic()
        return [PeerCard(decode_card(data), now - at) for data, at in self._cards.values()]

    async def withdraw(self, worker: str, instance: str) -> None:
        if worker in self._cards and decode_card(self._cards[worker][0]).get("instance") == instance:
            del self._cards[worker]

    async def stop(self) -> None:
        """Nothing to close."""
