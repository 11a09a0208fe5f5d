"""Keepers on a clock that stands still, over a store in memory that does what a test tells it."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from drakkar.leases.backend import Held, Lease, LeaseBackend, LeaseContext, LeaseInfo, Renewal
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.handle import LeaseHandle
from drakkar.leases.keeper import LeaseKeeper
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.telemetry.metrics import LeaseMetrics
from prometheus_client import CollectorRegistry
from support.clock import FakeClock, settle
from support.log import RecordingLogger

TIMING: Final = LeaseTiming(ttl_seconds=30, renew_seconds=10, retry_seconds=5, timeout_seconds=3)
TTL: Final = 30.0
DEADLINE: Final = 27.0
"""From when a request was sent until its lease must not be acted under."""


class ScriptedLeases:
    """The leases of `store`, until a test tells otherwise.

    `before[op]` is called, and awaited, ahead of the store; what it raises or returns, unless that is None,
    is the answer. `after[op]` is the same when the store has done what it was asked for.
    """

    min_ttl_seconds = 1.0
    fenced = True
    local = False

    def __init__(self, store: MemoryStore) -> None:
        self.inner: LeaseBackend = MemoryLeases(store)
        self.calls: list[tuple[str, Any]] = []
        self.before: dict[str, Callable[..., Any]] = {}
        self.after: dict[str, Callable[..., Any]] = {}

    async def _play(self, op: str, what: Any, do: Callable[[], Awaitable[Any]]) -> Any:
        self.calls.append((op, what))
        if (answer := await _told(self.before.get(op), what)) is not None:
            return answer
        result = await do()
        if (answer := await _told(self.after.get(op), what)) is not None:
            return answer
        return result

    async def start(self, ctx: LeaseContext) -> None:
        await self._play("start", None, lambda: self.inner.start(ctx))

    async def acquire(self, name: str) -> Lease | Held:
        answer: Lease | Held = await self._play("acquire", name, lambda: self.inner.acquire(name))
        return answer

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        leases = list(leases)
        answer: Renewal = await self._play("renew", leases, lambda: self.inner.renew(leases))
        return answer

    async def release(self, name: str, token: int | None = None) -> None:
        await self._play("release", (name, token), lambda: self.inner.release(name, token))

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        names = frozenset(names)
        found: frozenset[str] = await self._play(
            "wait", names, lambda: self.inner.wait(names, timeout_seconds)
        )
        return found

    async def list(self) -> Sequence[LeaseInfo]:
        rows: Sequence[LeaseInfo] = await self._play("list", None, self.inner.list)
        return rows

    async def stop(self) -> None:
        await self._play("stop", None, self.inner.stop)

    def asked(self, op: str) -> Sequence[Any]:
        """What each call of `op` was for."""
        return [what for name, what in self.calls if name == op]


async def _told(script: Callable[..., Any] | None, what: Any) -> Any:
    if script is None:
        return None
    answer = script(what) if inspect.signature(script).parameters else script()
    return await answer if inspect.isawaitable(answer) else answer


class Bench:
    """A keeper with all that it stands on. Those of one store and clock compete."""

    def __init__(
        self,
        worker: str = "worker-1",
        *,
        beside: "Bench | None" = None,
        timing: LeaseTiming = TIMING,
        backend: LeaseBackend | None = None,
    ) -> None:
        self.clock: FakeClock = FakeClock() if beside is None else beside.clock
        self.store: MemoryStore = MemoryStore(self.clock) if beside is None else beside.store
        self.backend = ScriptedLeases(self.store)
        self.ctx = LeaseContext(
            worker=worker,
            instance=f"{id(self):016x}",
            cluster="",
            logger=RecordingLogger(),
            ttl_seconds=timing.ttl_seconds,
            timeout_seconds=timing.call_seconds,
        )
        self.log = RecordingLogger()
        self.registry = CollectorRegistry()
        self.metrics = LeaseMetrics(self.registry)
        self.keeper = LeaseKeeper(
            self.backend if backend is None else backend,
            self.ctx,
            timing,
            clock=self.clock,
            logger=self.log,
            metrics=self.metrics,
        )

    async def begin(self) -> "Bench":
        self.keeper.start()
        await settle()
        return self

    def acquiring(self, name: str = "gc-leader") -> asyncio.Task[LeaseHandle]:
        return asyncio.create_task(self.keeper.acquire(name), name=f"acquiring {name}")

    async def acquire(self, name: str = "gc-leader") -> LeaseHandle:
        """The lease, without any time passing."""
        task = self.acquiring(name)
        await settle()
        assert task.done(), f"{name} was not granted at once"
        return task.result()

    def owner(self, name: str = "gc-leader") -> str | None:
        """Whose the lease is in the store at this moment."""
        record = self.store.live(name)
        return None if record is None else record.holder

    def held(self, name: str = "gc-leader") -> bool:
        return self.owner(name) == self.ctx.holder

    def value(self, metric: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(metric, labels)


@asynccontextmanager
async def benches(*workers: str, timing: LeaseTiming = TIMING) -> AsyncIterator[list[Bench]]:
    """Started keepers on one store, which are stopped at the end; no task is left over then, and nothing went
    wrong that the event loop alone has seen."""
    unseen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(str(context)))
    first = Bench(workers[0], timing=timing)
    made = [first, *(Bench(worker, beside=first, timing=timing) for worker in workers[1:])]
    for bench in made:
        await bench.begin()
    try:
        yield made
    finally:
        mine = asyncio.current_task()
        for bench in made:
            for op in ("acquire", "renew", "release", "wait", "list", "stop"):
                bench.backend.before.pop(op, None)
                bench.backend.after.pop(op, None)
        stopping = [asyncio.create_task(bench.keeper.stop()) for bench in made]
        others = [task for task in asyncio.all_tasks() if task.get_name().startswith("acquiring ")]
        for task in others:
            task.cancel()
        await first.clock.advance(60)
        for task in stopping:
            task.result()
        await settle()
        left = [task.get_name() for task in asyncio.all_tasks() if task is not mine]
        assert left == [], f"tasks are left over: {left}"
        assert unseen == []


async def hangs() -> None:
    """A store that never answers."""
    await asyncio.Event().wait()


def arrives(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """What takes until `event` is set."""

    async def arrive() -> None:
        await event.wait()

    return arrive


def fails(error: BaseException | None = None) -> Callable[[], None]:
    """A store that answers with an error."""

    def fail() -> None:
        raise ConnectionError("cut off") if error is None else error

    return fail


async def ended(clock: FakeClock, task: "asyncio.Task[Any]", within_seconds: float) -> float:
    """Let time pass until `task` has ended; tell how much it took."""
    began = clock.elapsed()
    while not task.done():
        assert clock.elapsed() - began <= within_seconds, f"{task.get_name()} still runs"
        await clock.advance(0.1)
    return clock.elapsed() - began
