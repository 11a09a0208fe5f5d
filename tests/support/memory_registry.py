"""A sound provider whose store is a dict, and whose clock stands still."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from drakkar.fleet.card import decode_card, encode_card
from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext


@dataclass
class Row:
    data: bytes
    at: float
    first_at: float


@dataclass
class Store:
    """What the providers of one check share: rows by worker name, and a clock."""

    rows: dict[str, Row] = field(default_factory=dict)
    now: float = 0.0

    def advance(self, seconds: float) -> None:
        self.now += seconds


class MemoryRegistry:
    """Keeps every promise of the contract. Its small methods are there for broken ones to override."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.published = False
        self.prune_after_seconds = 600.0

    async def start(self, ctx: RegistryContext) -> None:
        self.prune_after_seconds = ctx.prune_after_seconds

    async def publish(self, card: dict[str, Any]) -> None:
        data = self.encode(card)
        await asyncio.sleep(0)
        self.write(card["worker"], data)
        self.published = True

    async def list(self) -> PeerCardList:
        await asyncio.sleep(0)
        self.prune()
        return [PeerCard(self.decode(row.data), self.age(row)) for row in self.store.rows.values()]

    async def withdraw(self, worker: str, instance: str) -> None:
        row = self.store.rows.get(worker)
        if row is not None and decode_card(row.data).get("instance") == instance:
            del self.store.rows[worker]

    async def stop(self) -> None:
        pass

    def encode(self, card: dict[str, Any]) -> bytes:
        return encode_card(card)

    def decode(self, data: bytes) -> dict[str, Any]:
        return decode_card(data)

    def write(self, worker: str, data: bytes) -> None:
        old = self.store.rows.get(worker)
        self.store.rows[worker] = Row(data, self.store.now, self.store.now if old is None else old.first_at)

    def age(self, row: Row) -> float | None:
        return self.store.now - row.at if self.published else None

    def prune(self) -> None:
        for worker in [worker for worker, row in self.store.rows.items() if self.is_old(row)]:
            del self.store.rows[worker]

    def is_old(self, row: Row) -> bool:
        return self.store.now - row.at > self.prune_after_seconds
