"""The registry service of one worker: publishes its card and keeps the last listing of its peers.

Nothing waits for it: state changes are queued, peers are answered from memory, and a store that is slow,
hung or gone costs time-outs in tasks of this service alone. The last snapshot stays through failures and
its ages go on growing.
"""

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from drakkar.calls import CallError, bounded
from drakkar.clock import Clock
from drakkar.errors import ConfigError
from drakkar.fleet.calls import ProviderCalls
from drakkar.fleet.card import Card
from drakkar.fleet.features import fit_features
from drakkar.fleet.identity import WorkerIdentity, WorkerState
from drakkar.fleet.intake import Intake, ListedCard
from drakkar.fleet.liveness import Liveness, age_now, liveness
from drakkar.fleet.none import NoRegistry
from drakkar.fleet.provider import EventLogger, ProviderConfigError, RegistryContext, RegistryProvider
from drakkar.telemetry.metrics import RegistryMetrics

AFTER_FAILURE_SECONDS: Final = 1.0
"""Time limit of each last call at a stop while the store fails to answer: it will hardly do so now."""


@dataclass(frozen=True, slots=True)
class RegistryTiming:
    """The periods and limits of `fleet.registry`; what they mean stands there."""

    heartbeat_seconds: float = 10.0
    refresh_seconds: float = 15.0
    offline_after_seconds: float = 30.0
    timeout_seconds: float = 5.0
    refresh_jitter: float = 0.0
    """The part of `refresh_seconds`, at random, by which each refresh comes earlier. In step with its own
    heartbeat a worker always reads right after it wrote, and never sees the card of a second process of its
    name, which writes in between."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer at one moment."""

    card: Card
    age_seconds: float | None
    liveness: Liveness


@dataclass(frozen=True, slots=True)
class RegistryHealth:
    """Whether the registry works, for people who ask why a list is empty or old."""

    provider: str
    snapshot_age_seconds: float
    failing: dict[str, float]
    """Seconds since the first failure of each operation that now fails; empty when all is well. `start` is
    among them when the configured provider could not start."""

    errors: dict[str, str]
    """The last error of each of these, in the words of the provider: it may name what is secret."""


class RegistryService:
    """Runs between `start` and `stop`, each called once. The provider belongs to the service from then on."""

    def __init__(
        self,
        name: str,
        provider: RegistryProvider,
        ctx: RegistryContext,
        identity: WorkerIdentity,
        timing: RegistryTiming,
        *,
        clock: Clock,
        logger: EventLogger,
        metrics: RegistryMetrics,
        on_refresh: Callable[[], None] = lambda: None,  # after a listing that worked; does not raise
    ) -> None:
        self._name = name
        self._provider = provider
        self._ctx = ctx
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._logger = logger
        self._on_refresh = on_refresh
        self._calls = ProviderCalls(clock, logger, metrics)
        self._intake = Intake(identity, timing.offline_after_seconds, logger, metrics)
        self._state: WorkerState = "starting"
        self._features: dict[str, Any] = {}
        self._to_publish: asyncio.Queue[WorkerState] = asyncio.Queue()
        self._published_once = asyncio.Event()
        self._peers: tuple[ListedCard, ...] = ()
        self._listed_at = self._refreshed_at = clock.elapsed()
        self._start_failed_at: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        metrics.watch(self.count, self.snapshot_age_seconds)

    async def start(self) -> None:
        """Start the provider and the loops; the card is published as `starting` right away.

        Returns within `timeout_seconds` (and a second). A provider that cannot start is logged and replaced
        by `none` until the process ends. Raises `ConfigError` when its configuration can never work. After
        a failure or a cancellation `stop` must still be called.
        """
        try:
            await bounded(partial(self._provider.start, self._ctx), self._timing.timeout_seconds)
        except CallError as error:
            if isinstance(error.cause, ProviderConfigError):
                raise ConfigError(str(error.cause)) from error.cause
            self._logger.error("fleet_registry_start_failed", provider=self._name, error=str(error))
            self._start_failed_at, self._calls.errors["start"] = self._clock.elapsed(), str(error)
            await self._stop_provider(AFTER_FAILURE_SECONDS)
            self._name, self._provider = "none", NoRegistry()
            return  # no loops: the growing age of the snapshot tells that nobody looks
        self._logger.info(
            "fleet_registry_started",
            provider=self._name,
            instance=self._identity.instance,
            url=self._identity.url,
        )
        self._to_publish.put_nowait(self._state)
        for loop in (self._publish_loop, self._heartbeat_loop, self._refresh_loop):
            self._tasks.append(asyncio.create_task(loop(), name=f"drakkar registry {loop.__name__[1:]}"))

    def set_state(self, state: WorkerState) -> None:
        """Publish `state` at once, after the states set before it; returns without waiting."""
        if state != self._state:
            self._state = state
            if self._tasks:
                self._to_publish.put_nowait(state)

    def set_features(self, features: dict[str, Any], *, at_once: bool = True) -> None:
        """Show these on the card, published at once when they changed, or else with the next heartbeat. Many
        changes while one card is on its way become one publish; what is too long for a card is cut."""
        if features != self._features:
            self._features = features
            if at_once and self._tasks and self._to_publish.empty():
                self._to_publish.put_nowait(self._state)

    async def stop(self) -> None:
        """Publish what is queued, end the loops, withdraw the card, stop the provider.

        Each of the four has `timeout_seconds`, and `AFTER_FAILURE_SECONDS` from the first failure on. May be
        called after a failed `start`.
        """
        if self._tasks:
            self._tasks[1].cancel()  # no further heartbeats: the queue would never be empty at a short period
            await self._flush(self._limit())
            await self._end_loops()
            withdraw = partial(self._provider.withdraw, self._identity.worker, self._identity.instance)
            with suppress(CallError):  # counted and logged
                await self._calls.run("withdraw", withdraw, self._limit())
        await self._stop_provider(self._limit())

    def peers(self) -> tuple[Peer, ...]:
        """The peers of the last refresh by name, with their ages and liveness of now."""
        since = self._clock.elapsed() - self._listed_at
        offline_after = self._timing.offline_after_seconds
        ages = ((peer.card, age_now(peer.age_seconds, since)) for peer in self._peers)
        return tuple(Peer(card, age, liveness(age, offline_after)) for card, age in ages)

    def listing(self) -> object:
        """Another object after every refresh that worked."""
        return self._peers

    def count(self, state: Liveness) -> int:
        """How many peers are in this state now."""
        return sum(peer.liveness == state for peer in self.peers())

    def snapshot_age_seconds(self) -> float:
        """Seconds since the last successful refresh, or since the service was made."""
        return max(0.0, self._clock.elapsed() - self._refreshed_at)

    def health(self) -> RegistryHealth:
        since = {op: self._calls.failing_since(op) for op in ("publish", "list")}
        since |= {"start": self._start_failed_at}
        failing = {op: self._clock.elapsed() - at for op, at in since.items() if at is not None}
        return RegistryHealth(self._name, self.snapshot_age_seconds(), failing, dict(self._calls.errors))

    async def _publish_loop(self) -> None:
        while True:
            state = await self._to_publish.get()
            card = fit_features(self._identity.card(state, self._clock.wall()), self._features)
            try:
                await self._calls.run(
                    "publish", partial(self._provider.publish, card), self._timing.timeout_seconds
                )
            except CallError:
                while self._to_publish.qsize() > 1:  # the store is in trouble: only the newest state counts
                    self._to_publish.get_nowait()
                    self._to_publish.task_done()
            self._to_publish.task_done()
            self._published_once.set()

    async def _heartbeat_loop(self) -> None:
        while True:
            await self._clock.sleep(self._timing.heartbeat_seconds)
            if self._to_publish.empty():
                self._to_publish.put_nowait(self._state)

    async def _refresh_loop(self) -> None:
        await self._published_once.wait()  # many providers can tell ages only after it
        while True:
            listed_at = self._clock.elapsed()  # before the call: a peer must not look younger than it is
            with suppress(CallError):  # counted and logged; the last snapshot stays
                self._peers = await self._calls.run("list", self._list, self._timing.timeout_seconds)
                self._listed_at, self._refreshed_at = listed_at, self._clock.elapsed()
                self._on_refresh()
            early = self._timing.refresh_jitter * random.random()  # noqa: S311  no secret
            await self._clock.sleep(self._timing.refresh_seconds * (1 - early))

    async def _list(self) -> tuple[ListedCard, ...]:
        return await self._intake.accept(await self._provider.list())

    def _limit(self) -> float:
        failing = any(self._calls.failing_since(op) is not None for op in ("publish", "withdraw"))
        return min(self._timing.timeout_seconds, AFTER_FAILURE_SECONDS if failing else math.inf)

    async def _flush(self, limit_seconds: float) -> None:
        """Wait until all queued states are published, or the publisher has died, or the time is over."""
        flushed = asyncio.create_task(self._to_publish.join())
        try:
            await asyncio.wait(
                {flushed, self._tasks[0]}, timeout=limit_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            flushed.cancel()

    async def _end_loops(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._logger.error("fleet_registry_loop_failed", loop=task.get_name(), error=repr(error))

    async def _stop_provider(self, limit_seconds: float) -> None:
        try:
            await bounded(self._provider.stop, limit_seconds)
        except CallError as error:
            self._logger.warning("fleet_registry_stop_failed", provider=self._name, error=str(error))
