"""What the checks are written with: contexts, cards, started providers and expectations about a listing."""

import asyncio
import inspect
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from drakkar.fleet.card import Card, encode_card
from drakkar.fleet.provider import EventLogger, PeerCard, PeerCardList, RegistryContext, RegistryProvider

TOLERANCE_SECONDS: Final = 2.0
"""How far an age may be off, and how long a store may take to tell of a change of age."""

CHECK_LIMIT_SECONDS: Final = 60.0
STOP_LIMIT_SECONDS: Final = 5.0
INSTANCE: Final = "0123456789abcdef"
OTHER_INSTANCE: Final = "fedcba9876543210"

MakeProvider = Callable[[], RegistryProvider]
Advance = Callable[[float], object]
"""Moves the providers' clock; what it returns is awaited if it can be."""

PublishingCheck = Callable[[MakeProvider, Advance, float], Coroutine[Any, Any, None]]


class SilentLogger:
    """Takes every event and drops it."""

    def debug(self, event: str, **fields: Any) -> None: ...
    def info(self, event: str, **fields: Any) -> None: ...
    def warning(self, event: str, **fields: Any) -> None: ...
    def error(self, event: str, **fields: Any) -> None: ...


def make_context(
    worker: str,
    instance: str = INSTANCE,
    *,
    cluster: str = "",
    logger: EventLogger | None = None,
    options: Mapping[str, Any] | None = None,
    prune_after_seconds: float = 86400.0,
    timeout_seconds: float = 5.0,
) -> RegistryContext:
    """A context for `RegistryProvider.start`; without a logger, events are dropped."""
    return RegistryContext(
        worker=worker,
        instance=instance,
        cluster=cluster,
        logger=SilentLogger() if logger is None else logger,
        options={} if options is None else options,
        prune_after_seconds=prune_after_seconds,
        timeout_seconds=timeout_seconds,
    )


def make_card(worker: str, instance: str = INSTANCE, **fields: Any) -> Card:
    """A card as a running worker publishes it; `fields` replace those it has and add others."""
    card: Card = {
        "backend": "python",
        "cluster": "",
        "heartbeat_at": "2026-01-02T03:05:05.000006Z",
        "instance": instance,
        "schema": 1,
        "started_at": "2026-01-02T03:04:05.000006Z",
        "state": "running",
        "url": "http://192.0.2.1:8080/",
        "version": "0.1.0",
        "worker": worker,
    }
    return card | fields


@dataclass(frozen=True)
class Peer:
    """A started provider and the process it stands for. What its calls raise is a broken promise."""

    provider: RegistryProvider
    worker: str
    instance: str

    async def publish(self, **fields: Any) -> Card:
        """Publish this process's card with `fields`, and return it."""
        card = make_card(self.worker, self.instance) | fields
        await self.publish_card(card)
        return card

    async def publish_card(self, card: Card) -> None:
        with _failure_of("publish"):
            await self.provider.publish(card)

    async def withdraw(self) -> None:
        with _failure_of("withdraw"):
            await self.provider.withdraw(self.worker, self.instance)

    async def list(self) -> PeerCardList:
        with _failure_of("list"):
            return await self.provider.list()

    async def find(self, worker: str) -> PeerCard | None:
        """The listed card of `worker`; None when there is none, an error when there are two."""
        found = [peer for peer in await self.list() if peer.card.get("worker") == worker]
        expect(len(found) < 2, f"expected one card of {worker} at most, the listing has {len(found)}")
        return found[0] if found else None

    async def expect_card(self, card: Card, when: str) -> None:
        """The next listing has exactly `card` for its worker."""
        found = await self.find(card["worker"])
        if found is None:
            raise AssertionError(f"{when}: expected the card of {card['worker']}, the listing has none")
        came, expected = encode_card(found.card), encode_card(card)
        expect(came == expected, f"{when}: expected the card {_cut(expected)}, got {_cut(came)}")

    async def expect_no_card(self, worker: str, when: str) -> None:
        """The next listing has no card of `worker`."""
        found = await self.find(worker)
        expect(found is None, f"{when}: expected no card of {worker}, the listing has {found}")

    async def expect_age(self, worker: str, seconds: float, since: float, when: str) -> None:
        """Within `TOLERANCE_SECONDS`, a listing tells that the card of `worker` is about `seconds` old, plus
        what has passed since `since` on `time.monotonic`."""
        give_up_at = time.monotonic() + TOLERANCE_SECONDS
        while True:
            found = await self.find(worker)
            now = time.monotonic()
            age = None if found is None else found.age_seconds
            if age is not None and -TOLERANCE_SECONDS <= age - seconds <= now - since + TOLERANCE_SECONDS:
                return
            if now >= give_up_at:
                came = "no such card" if found is None else f"an age of {age}"
                wanted = f"an age of {seconds:g} s, give or take {TOLERANCE_SECONDS:g} s"
                raise AssertionError(f"{when}: expected {wanted}, got {came}")
            await asyncio.sleep(0.02)


class Stage:
    """One run of one check: its providers, their clock, and worker names that no other run has."""

    def __init__(self, make_provider: MakeProvider, advance: Advance, prune_after_seconds: float) -> None:
        self.prune_after_seconds = prune_after_seconds
        self._make_provider = make_provider
        self._advance = advance
        self._suffix = secrets.token_hex(4)

    def worker(self, name: str) -> str:
        return f"{name}-{self._suffix}"

    @asynccontextmanager
    async def peer(self, name: str, instance: str = INSTANCE) -> AsyncIterator[Peer]:
        """A provider of its own for worker `name`, started, and stopped whatever happens."""
        worker = self.worker(name)
        provider = self._make_provider()
        try:
            await provider.start(make_context(worker, instance, prune_after_seconds=self.prune_after_seconds))
            yield Peer(provider, worker, instance)
        finally:
            await _stop(provider)

    def unstarted(self) -> RegistryProvider:
        return self._make_provider()

    async def advance(self, seconds: float) -> None:
        moved = self._advance(seconds)
        if inspect.isawaitable(moved):
            await moved


def publishing_check(check: Callable[[Stage], Awaitable[None]]) -> PublishingCheck:
    """Give `check` the signature of the kit and a time limit: to hang is to fail."""

    async def run(make_provider: MakeProvider, advance: Advance, prune_after_seconds: float) -> None:
        limit = asyncio.timeout(CHECK_LIMIT_SECONDS)
        try:
            async with limit:
                await check(Stage(make_provider, advance, prune_after_seconds))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AssertionError(f"expected an end within {CHECK_LIMIT_SECONDS:g} s, got none") from error

    name: str = getattr(check, "__name__", "check")
    run.__name__ = run.__qualname__ = name
    run.__doc__ = check.__doc__
    return run


def expect(holds: bool, message: str) -> None:
    """Raise `AssertionError` with `message` unless `holds`; unlike `assert`, also under `python -O`."""
    if not holds:
        raise AssertionError(message)


async def _stop(provider: RegistryProvider) -> None:
    limit = asyncio.timeout(STOP_LIMIT_SECONDS)
    try:
        async with limit:
            await provider.stop()
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AssertionError(f"expected stop to return within {STOP_LIMIT_SECONDS:g} s") from error


def _cut(data: bytes) -> str:
    text = data.decode(errors="replace")
    return repr(text) if len(text) <= 400 else f"{text[:400]!r} and so on, {len(data)} bytes"


@contextmanager
def _failure_of(call: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"expected {call} to work, it raised {error!r}") from error
