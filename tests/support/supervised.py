"""Supervisors over leases in memory, as processes of a fleet, with jobs that a test looks into."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from drakkar.clock import Clock
from drakkar.leases.backend import LeaseBackend, LeaseContext
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.keeper import LeaseKeeper
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.supervisor.chosen import Supervised
from drakkar.supervisor.supervisor import Supervisor
from drakkar.supervisor.surroundings import LaneReport, Surroundings
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext, Runner
from drakkar.telemetry.metrics import LeaseMetrics, SupervisorMetrics
from prometheus_client import CollectorRegistry
from support.log import RecordingLogger
from support.virtual_time import VirtualClock

STOP_TIMEOUT = 10.0
REFRESH = 15.0
TIMING = LeaseTiming(ttl_seconds=30, renew_seconds=10, retry_seconds=5, timeout_seconds=3)

_starts = itertools.count(1)

Body = Callable[[RunContext], Coroutine[Any, Any, None]]


async def forever(_ctx: RunContext) -> None:
    """A healthy job."""
    await asyncio.Event().wait()


async def ignoring_its_cancellation(seconds: float) -> None:
    """Return after `seconds` and not before."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (left := end - loop.time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(left)


def stubborn(seconds: float) -> Body:
    """A job that returns after `seconds` and not before, cancelled or not."""

    async def body(_ctx: RunContext) -> None:
        await ignoring_its_cancellation(seconds)

    return body


@dataclass
class Job:
    """A runner whose runs are what `body` does, and all of whose runs are remembered."""

    body: Body = forever
    starts: list[float] = field(default_factory=list)
    contexts: list[RunContext] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0

    def build(self, _deps: Dependencies) -> Runner:
        return self

    def build_shard(self, _deps: Dependencies, _shard: int) -> Runner:
        return self

    async def run(self, ctx: RunContext) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        self.contexts.append(ctx)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await self.body(ctx)
        finally:
            self.running -= 1

    def waits(self) -> list[float]:
        """From one start to the next, to a tenth of a second."""
        return [round(b - a, 1) for a, b in zip(self.starts, self.starts[1:], strict=False)]

    def worker(self, name: str = "gc", *, skip_lease: bool = False) -> BackgroundWorker:
        return BackgroundWorker(name, self.build, skip_lease)


class Process:
    """One process of the fleet: a keeper and a supervisor, as a worker puts them together."""

    def __init__(
        self,
        workers: Iterable[Supervised],
        store: MemoryStore,
        name: str = "worker-1",
        *,
        backend: LeaseBackend | None = None,
        clock: Clock | None = None,
        timing: LeaseTiming = TIMING,
        peers: Callable[[], Sequence[Any]] = tuple,
        stop_timeout_seconds: float = STOP_TIMEOUT,
        refresh_seconds: float = REFRESH,
    ) -> None:
        self.name = name
        self.clock = clock or VirtualClock()
        self.log = RecordingLogger()
        self.metrics = CollectorRegistry()
        self.changes = 0
        ctx = LeaseContext(
            name,
            f"{name}-{next(_starts)}",
            "",
            self.log,
            ttl_seconds=timing.ttl_seconds,
            timeout_seconds=timing.timeout_seconds,
        )
        self.keeper = LeaseKeeper(
            backend or MemoryLeases(store),
            ctx,
            timing,
            clock=self.clock,
            logger=self.log,
            metrics=LeaseMetrics(self.metrics),
        )
        around = Surroundings(
            self.keeper,
            self.clock,
            self.log,
            SupervisorMetrics(self.metrics),
            stop_timeout_seconds,
            refresh_seconds,
        )
        deps = Dependencies(self.log, None, self.keeper, peers)

        def changed() -> None:
            self.on_change()  # looked up then: a test may have put another one there

        self.supervisor = Supervisor(workers, deps, around, on_change=changed)

    def on_change(self) -> None:
        self.changes += 1

    def start(self) -> None:
        self.keeper.start()
        self.supervisor.start()

    async def stop(self) -> Sequence[str]:
        """As a worker stops: no new acquires, the runs, the leases."""
        self.keeper.drain()
        names = await self.supervisor.stop()
        await self.keeper.stop()
        return names

    async def __aenter__(self) -> Self:
        self.start()
        await asyncio.sleep(0.1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def report(self, name: str = "gc", lane: int = 0) -> LaneReport:
        return self.supervisor.reports()[name][lane]

    def count(self, metric: str, **labels: str) -> float:
        return self.metrics.get_sample_value(f"drakkar_{metric}_total", labels) or 0.0


def memory() -> MemoryStore:
    return MemoryStore(VirtualClock())


def holders(store: MemoryStore) -> dict[str, str]:
    """Who has each lease that has not run out."""
    now = store.clock.elapsed()
    return {
        name: record.holder.partition("/")[0]
        for name, record in store.records.items()
        if now < record.expires_at
    }
