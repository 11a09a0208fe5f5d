"""Providers that each break one promise of the contract, and keep the others as far as they can."""

import asyncio
import contextlib
import copy
import json
from typing import Any

from drakkar.fleet.card import decode_card, encode_card
from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext
from support.memory_registry import MemoryRegistry, Row, Store


class ForgetsUnknownFields(MemoryRegistry):
    def decode(self, data: bytes) -> dict[str, Any]:
        return {key: value for key, value in decode_card(data).items() if not key.startswith("x")}


class CountsInFloats(MemoryRegistry):
    def decode(self, data: bytes) -> dict[str, Any]:
        card: dict[str, Any] = json.loads(data, parse_int=float)
        return card | {"schema": 1}


class TakesEmptyArraysForObjects(MemoryRegistry):
    def decode(self, data: bytes) -> dict[str, Any]:
        return decode_card(data.replace(b"[]", b"{}"))


class NamesKeysAfterWorkers(MemoryRegistry):
    """As a store does that takes a slash for its own."""

    def write(self, worker: str, data: bytes) -> None:
        super().write(worker.split("/")[0], data)


class Merges(MemoryRegistry):
    def write(self, worker: str, data: bytes) -> None:
        old = self.store.rows.get(worker)
        if old is not None:
            data = encode_card(decode_card(old.data) | decode_card(data))
        super().write(worker, data)


class OverwritesInPlace(MemoryRegistry):
    def write(self, worker: str, data: bytes) -> None:
        old = self.store.rows.get(worker)
        rest = b"" if old is None else old.data[len(data) :]
        super().write(worker, data + rest)


class KeepsOneCardPerInstance(MemoryRegistry):
    def write(self, worker: str, data: bytes) -> None:
        super().write(f"{worker}/{decode_card(data)['instance']}", data)


class UpdatesFields(MemoryRegistry):
    """Writes the whole card once, and then only what changes."""

    def write(self, worker: str, data: bytes) -> None:
        if self.published:
            old = self.store.rows.get(worker)
            known = {} if old is None else decode_card(old.data)
            data = encode_card(known | {"worker": worker, "features": decode_card(data)["features"]})
        super().write(worker, data)


class HasLessRoom(MemoryRegistry):
    def encode(self, card: dict[str, Any]) -> bytes:
        data = encode_card(card)
        if len(data) >= 4096:
            raise ValueError("too large")
        return data


class CountsCharacters(MemoryRegistry):
    def encode(self, card: dict[str, Any]) -> bytes:
        text = json.dumps(card, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if len(text) > 4096:
            raise ValueError("too large")
        return text.encode()

    def decode(self, data: bytes) -> dict[str, Any]:
        card: dict[str, Any] = json.loads(data)
        return card


class ChecksAfterWriting(MemoryRegistry):
    def encode(self, card: dict[str, Any]) -> bytes:
        self.store.rows.pop(card["worker"], None)
        return encode_card(card)


class WritesPythonsJson(MemoryRegistry):
    def encode(self, card: dict[str, Any]) -> bytes:
        return json.dumps(card).encode()


class WritesAnything(MemoryRegistry):
    def encode(self, card: dict[str, Any]) -> bytes:
        return json.dumps(card, default=str).encode(errors="replace")

    def decode(self, data: bytes) -> dict[str, Any]:
        card: dict[str, Any] = json.loads(data)
        return card


class HandsOutItsCache(MemoryRegistry):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.cache: dict[bytes, dict[str, Any]] = {}

    def decode(self, data: bytes) -> dict[str, Any]:
        return self.cache.setdefault(data, decode_card(data))


class CopiesTheFirstLevel(HandsOutItsCache):
    def decode(self, data: bytes) -> dict[str, Any]:
        return dict(super().decode(data))


class HandsOutItsList(MemoryRegistry):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.listing: PeerCardList | None = None

    async def list(self) -> PeerCardList:
        if self.listing is None:
            self.listing = await super().list()
        return self.listing


class KeepsTheCard(MemoryRegistry):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.kept: dict[str, dict[str, Any]] = {}

    async def publish(self, card: dict[str, Any]) -> None:
        await super().publish(card)
        self.kept[card["worker"]] = self.keep(card)

    async def list(self) -> PeerCardList:
        listing = await super().list()
        return [PeerCard(self.kept.get(row.card["worker"], row.card), row.age_seconds) for row in listing]

    def keep(self, card: dict[str, Any]) -> dict[str, Any]:
        return card


class KeepsTheFirstLevelsCopy(KeepsTheCard):
    def keep(self, card: dict[str, Any]) -> dict[str, Any]:
        return copy.copy(card)


class NeverWithdraws(MemoryRegistry):
    async def withdraw(self, worker: str, instance: str) -> None:
        pass


class StaysWithdrawn(MemoryRegistry):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.withdrawn = False

    async def withdraw(self, worker: str, instance: str) -> None:
        await super().withdraw(worker, instance)
        self.withdrawn = True

    def write(self, worker: str, data: bytes) -> None:
        if not self.withdrawn:
            super().write(worker, data)


class WithdrawsAnyInstance(MemoryRegistry):
    async def withdraw(self, worker: str, instance: str) -> None:
        self.store.rows.pop(worker, None)


class WithdrawsByPrefix(MemoryRegistry):
    async def withdraw(self, worker: str, instance: str) -> None:
        for name in [name for name in self.store.rows if name.startswith(worker)]:
            await super().withdraw(name, instance)


class MissesWhatItNeverHad(MemoryRegistry):
    async def withdraw(self, worker: str, instance: str) -> None:
        if not self.published:
            raise KeyError(worker)
        await super().withdraw(worker, instance)


class MissesWhatItHad(MemoryRegistry):
    async def withdraw(self, worker: str, instance: str) -> None:
        if self.published and worker not in self.store.rows:
            raise KeyError(worker)
        await super().withdraw(worker, instance)


class SeesTheFuture(MemoryRegistry):
    def age(self, row: Row) -> float | None:
        return self.store.now - row.at - 1.0


class SaysNotANumber(MemoryRegistry):
    def age(self, row: Row) -> float | None:
        return float("nan") if not self.published else super().age(row)


class CountsFromItsOwnStart(MemoryRegistry):
    async def start(self, ctx: RegistryContext) -> None:
        await super().start(ctx)
        self.started_at = self.store.now

    def age(self, row: Row) -> float | None:
        return self.store.now - max(row.at, self.started_at)


class NeverKnowsAges(MemoryRegistry):
    def age(self, row: Row) -> float | None:
        return None


class ComparesTwoClocks(MemoryRegistry):
    def age(self, row: Row) -> float | None:
        return self.store.now - row.at + 3600


class StandsStill(MemoryRegistry):
    def age(self, row: Row) -> float | None:
        return 0.0 if self.published else None


class AgesBetweenPublishesOnly(MemoryRegistry):
    """Counts from its own last publish, as if all had published then."""

    def write(self, worker: str, data: bytes) -> None:
        super().write(worker, data)
        self.wrote_at = self.store.now

    def age(self, row: Row) -> float | None:
        return self.store.now - self.wrote_at if self.published else None


class CountsFromTheFirstPublish(MemoryRegistry):
    def age(self, row: Row) -> float | None:
        return self.store.now - row.first_at if self.published else None


class SkipsAnUnchangedCard(MemoryRegistry):
    def write(self, worker: str, data: bytes) -> None:
        old = self.store.rows.get(worker)
        if old is None or old.data != data:
            super().write(worker, data)


class NeverPrunes(MemoryRegistry):
    def prune(self) -> None:
        pass


class PrunesEveryOtherTime(MemoryRegistry):
    """Hides an old card from one listing and shows it in the next."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.turn = 0

    def prune(self) -> None:
        pass

    async def list(self) -> PeerCardList:
        self.turn += 1
        rows = [row for row in self.store.rows.values() if self.turn % 2 or not self.is_old(row)]
        return [PeerCard(self.decode(row.data), self.age(row)) for row in rows]


class HidesOldCards(MemoryRegistry):
    def prune(self) -> None:
        pass

    async def list(self) -> PeerCardList:
        listing = await super().list()
        return [row for row in listing if (row.age_seconds or 0.0) <= self.prune_after_seconds]


class PrunesByTheFirstPublish(MemoryRegistry):
    def is_old(self, row: Row) -> bool:
        return self.store.now - row.first_at > self.prune_after_seconds


class PrunesTooSoon(MemoryRegistry):
    def is_old(self, row: Row) -> bool:
        return self.store.now - row.at > 0.5 * self.prune_after_seconds


class BuriesThePruned(MemoryRegistry):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.buried: set[str] = set()

    def prune(self) -> None:
        self.buried |= {worker for worker, row in self.store.rows.items() if self.is_old(row)}
        for worker in self.buried:
            self.store.rows.pop(worker, None)


class SeesOnlyItself(MemoryRegistry):
    def __init__(self, store: Store) -> None:
        super().__init__(copy.deepcopy(store))


class LeavesItselfOut(MemoryRegistry):
    async def start(self, ctx: RegistryContext) -> None:
        await super().start(ctx)
        self.worker = ctx.worker

    async def list(self) -> PeerCardList:
        return [row for row in await super().list() if row.card["worker"] != self.worker]


class RemembersTheFirstFailure(MemoryRegistry):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.failed = False

    async def list(self) -> PeerCardList:
        self.failed = self.failed or not self.published
        if self.failed:
            raise OSError("no such folder")
        return await super().list()


class ListsOnePage(MemoryRegistry):
    async def list(self) -> PeerCardList:
        return (await super().list())[:100]


class ListsPagesTwice(MemoryRegistry):
    async def list(self) -> PeerCardList:
        listing = await super().list()
        return listing + (listing[-1:] if len(listing) > 100 else [])


class WritesOneDocument(MemoryRegistry):
    """Reads all cards, changes one and writes all back."""

    async def publish(self, card: dict[str, Any]) -> None:
        data = self.encode(card)
        document = dict(self.store.rows)
        await asyncio.sleep(0)
        document[card["worker"]] = Row(data, self.store.now, self.store.now)
        self.store.rows = document
        self.published = True


class DeletesFirst(MemoryRegistry):
    async def publish(self, card: dict[str, Any]) -> None:
        data = self.encode(card)
        self.store.rows.pop(card["worker"], None)
        await asyncio.sleep(0)
        self.write(card["worker"], data)
        self.published = True


class WritesInTwoParts(MemoryRegistry):
    async def publish(self, card: dict[str, Any]) -> None:
        self.write(card["worker"], self.encode(card | {"state": "half"}))
        await super().publish(card)


class KeepsItsLock(MemoryRegistry):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.lock = asyncio.Lock()

    async def publish(self, card: dict[str, Any]) -> None:
        await self.lock.acquire()
        await super().publish(card)
        self.lock.release()


class WritesLater(MemoryRegistry):
    """Leaves a write behind that nobody waits for once it was cancelled."""

    async def publish(self, card: dict[str, Any]) -> None:
        try:
            await super().publish(card)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(0.01, self.write, card["worker"], self.encode(card))
            raise


class IgnoresCancelling(MemoryRegistry):
    async def publish(self, card: dict[str, Any]) -> None:
        try:
            await super().publish(card)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)


class LeavesTheAnswerBehind(MemoryRegistry):
    """One connection: a cancelled call leaves its answer there, and the next call takes it for its own."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.answers: list[PeerCardList] = []

    async def list(self) -> PeerCardList:
        self.answers.append(await super().list())
        await asyncio.sleep(0)
        return self.answers.pop(0)


class NeedsAStart(MemoryRegistry):
    async def start(self, ctx: RegistryContext) -> None:
        await super().start(ctx)
        self.connection = contextlib.ExitStack()

    async def stop(self) -> None:
        self.connection.close()
