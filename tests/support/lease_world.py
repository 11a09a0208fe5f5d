"""A small world of processes, one store and a bad network, on a clock that stands still until it is moved.

It runs real keepers and watches what they may never do. All processes live in one event loop; a paused one
gets neither timers nor answers, which for a process that only waits for these is the same as not running.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

from drakkar.clock import Clock
from drakkar.leases.backend import Held, Lease, LeaseBackend, LeaseContext, LeaseInfo, Renewal
from drakkar.leases.deadline import MARGIN, LeaseTiming
from drakkar.leases.handle import LeaseHandle, LeaseState
from drakkar.leases.keeper import LeaseKeeper
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.telemetry.metrics import LeaseMetrics
from prometheus_client import CollectorRegistry
from support.log import RecordingLogger
from support.session_leases import SessionLeases, SessionStore

_T = TypeVar("_T")

TIMING: Final = LeaseTiming(ttl_seconds=6, renew_seconds=2, retry_seconds=1, timeout_seconds=1.5)
STOP_TIMEOUT_SECONDS: Final = 3.0
OPERATIONS: Final = ("acquire", "renew", "release", "wait")

TTL: Final = TIMING.ttl_seconds


@dataclass(frozen=True)
class Fault:
    """What the network does to the calls of one operation of one process."""

    request_seconds: float = 0.0
    reply_seconds: float = 0.0
    refused: bool = False
    request_lost: bool = False
    reply_lost: bool = False
    reply_failed: bool = False
    """An error comes back although the store did what it was asked for."""


class Server(Protocol):
    """The kind of store that a world has."""

    def backend(self) -> LeaseBackend: ...
    def delete(self, name: str) -> None: ...

    in_order: bool
    """Whether the requests of one process happen in the order in which they were sent."""


class PlainServer:
    """A ttl for every lease."""

    in_order = False

    def __init__(self, clock: Clock) -> None:
        self.store = MemoryStore(clock)

    def backend(self) -> LeaseBackend:
        return MemoryLeases(self.store)

    def delete(self, name: str) -> None:
        if self.store.records.pop(name, None) is not None:
            self.store.changed(name)


class SessionServer:
    """One session for all leases of a process."""

    in_order = True

    def __init__(self, clock: Clock) -> None:
        self.store = SessionStore(clock)

    def backend(self) -> LeaseBackend:
        return SessionLeases(self.store)

    def delete(self, name: str) -> None:
        self.store.delete(name)


class World:
    """Time, the store, and what everybody did so far."""

    def __init__(self, make_server: Callable[[Clock], Server]) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, int, asyncio.Future[None], Process | None]] = []
        self.count = 0
        self.server = make_server(WorldClock(self, None))
        self.intruders = 0
        self.garbage: dict[str, int] = {}
        self.processes: list[Process] = []
        self.packets: set[asyncio.Task[None]] = set()
        self.tampered: set[tuple[str, int]] = set()
        """Grants whose record somebody deleted or overwrote: rule 16 lets a second holder be beside these,
        until their holder has been told."""

        self.granted: dict[str, int] = {}
        """The token that each name was granted last, as far as the store knows."""

        self.last_run: dict[str, int] = {}
        self.ambush: tuple[int, Callable[[], None]] | None = None
        self.broken: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.broken.append(f"{context.get('message')}: {context.get('exception')!r}")
        )

    def process(self, name: str) -> "Process":
        self.count += 1
        process = Process(self, name, f"{self.count:04d}")
        self.processes.append(process)
        return process

    def expect(self, holds: bool, promise: str) -> None:
        if not holds:
            self.broken.append(promise)

    def spawn(self, packet: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(packet)
        assert isinstance(task, asyncio.Task)
        self.packets.add(task)
        task.add_done_callback(self.packets.discard)
        return task

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and whatever is due meanwhile happen."""
        end = self.now + seconds
        await self.settle()
        while self.timers and self.timers[0][0] <= end:
            at, _, future, process = heapq.heappop(self.timers)
            if future.done():
                continue
            self.now = max(self.now, at)
            if process is not None and process.paused:
                process.missed.append(future)
                continue
            future.set_result(None)
            await self.settle()
        self.now = end
        await self.settle()

    async def settle(self) -> None:
        """Let every task that can run do so; look at the promises after that."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # no public way to ask
        turns = 0
        while True:
            await asyncio.sleep(0)
            turns += 1
            if self.ambush is not None and turns > self.ambush[0]:
                strike, self.ambush = self.ambush[1], None
                strike()
            elif not ready:
                break
        self.look()

    def look(self) -> None:
        """The promises that hold at every moment."""
        for name in {run.handle.name for process in self.processes for run in process.runs}:
            acting = [
                run
                for process in self.processes
                if not process.dead
                for run in process.runs
                if run.handle.name == name and run.acts
            ]
            for run in acting:
                self.expect(self.now < run.deadline, f"{name}: acts past its deadline")
                if (name, run.handle.token) in run.process.told:
                    self.expect(False, f"{name}: acts although it was told of its loss")
            sound = [run for run in acting if (name, run.handle.token) not in self.tampered]
            self.expect(len(sound) <= 1, f"{name}: {len(sound)} holders at once")
        assert not self.broken, self.broken

    async def tamper(self, name: str, how: str) -> None:
        """Delete the record of `name`, or put another one or garbage in its place."""
        if name in self.granted:
            self.tampered.add((name, self.granted[name]))
        self.garbage.pop(name, None)
        self.server.delete(name)
        if how == "garbage":
            self.count += 1
            self.garbage[name] = self.count
        if how == "overwrite":
            self.intruders += 1
            backend = self.server.backend()
            await backend.start(make_context("intruder", str(self.intruders)))
            granted = await backend.acquire(name)
            assert isinstance(granted, Lease)
            self.granted[name] = granted.token


@dataclass
class Run:
    """Work under a lease, from the grant to its end."""

    process: "Process"
    handle: LeaseHandle
    sent_at: float
    """When the last request was sent that was granted, and whose answer came while the lease was held."""

    surely_sent_at: float
    """The same, without answers that came in the very turn in which the call may have been ended."""

    ended: bool = False

    @property
    def acts(self) -> bool:
        """Whether it would go on if it looked now. Of a paused process, without having it look."""
        if self.process.paused:
            return self.handle.state is LeaseState.HELD and self.process.world.now < self.handle.deadline
        return not self.handle.lost

    @property
    def deadline(self) -> float:
        return self.sent_at + TTL * (1 - MARGIN)


@dataclass(eq=False)
class Job:
    """One that wants a lease, works under it, and takes its time to end."""

    name: str
    cleanup_seconds: float
    again: bool = False
    asking: bool = True
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        return self.task is not None and self.task.done()

    def end(self) -> None:
        self.again = False
        self.finish.set()
        self.give_up()

    def give_up(self) -> None:
        if self.asking and self.task is not None:
            self.task.cancel()


class Process:
    def __init__(self, world: World, worker: str, instance: str) -> None:
        self.world = world
        self.clock = WorldClock(world, self)
        self.ctx = make_context(worker, instance)
        self.log = RecordingLogger()
        self.wire = Wire(world, self)
        self.keeper = LeaseKeeper(
            self.wire,
            self.ctx,
            TIMING,
            clock=self.clock,
            logger=self.log,
            metrics=LeaseMetrics(CollectorRegistry()),
        )
        self.paused = False
        self.dead = False
        self.mixed = False
        self.running = asyncio.Event()
        self.running.set()
        self.missed: list[asyncio.Future[None]] = []
        self.faults: dict[str, Fault] = {}
        self.jobs: list[Job] = []
        self.runs: list[Run] = []
        self.spent: set[tuple[str, int]] = set()
        self.told: set[tuple[str, int]] = set()
        self.stopping: asyncio.Task[None] | None = None
        self.keeper.start()

    def want(self, name: str, cleanup_seconds: float = 0.0, again: bool = False) -> Job:
        job = Job(name, cleanup_seconds, again)
        job.task = asyncio.create_task(self._work(job))
        self.jobs.append(job)
        return job

    def pause(self) -> None:
        self.paused = True
        self.running.clear()

    async def resume(self, first: str) -> None:
        """Go on with the "timers" that are overdue `first`, or the "replies" that came, or with "both"."""
        self.paused, self.mixed = False, first == "both"
        missed, self.missed = self.missed, []
        if first == "replies":
            self.running.set()
            await self.world.settle()
        for future in missed:
            if not future.done():
                future.set_result(None)
        if first == "timers":
            await self.world.settle()
        self.running.set()
        await self.world.settle()
        self.mixed = False

    def kill(self) -> None:
        """As SIGKILL does: nothing of it runs ever again."""
        self.pause()
        self.dead = True

    def stop(self, patient: bool) -> None:
        """As SIGTERM does; only the `patient` wait for runs that would not end."""
        self.keeper.drain()
        for job in self.jobs:
            job.end()
        self.stopping = asyncio.create_task(self._stop(patient))

    async def _stop(self, patient: bool) -> None:
        if patient and self.jobs:
            await asyncio.wait([job.task for job in self.jobs if job.task is not None])
        await self.keeper.stop()

    async def _work(self, job: Job) -> None:
        while True:
            job.asking = True
            handle = await self.keeper.acquire(job.name)
            job.asking = False
            run = self._begin(handle)
            ends = [asyncio.ensure_future(handle.wait_lost()), asyncio.ensure_future(job.finish.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            job.finish.set()
            await self.clock.sleep(min(job.cleanup_seconds, STOP_TIMEOUT_SECONDS))
            if job.cleanup_seconds > STOP_TIMEOUT_SECONDS:
                self.keeper.abandon(handle)
                await self.clock.sleep(job.cleanup_seconds - STOP_TIMEOUT_SECONDS)
            run.ended = True
            self.runs.remove(run)
            await self.keeper.release(handle)
            if not job.again:
                return
            job.finish.clear()

    def _begin(self, handle: LeaseHandle) -> Run:
        expect, key = self.world.expect, (handle.name, handle.token)
        expect(key not in self.spent, f"{key}: a second run on one token")
        self.spent.add(key)
        expect(all(run.handle.name != handle.name for run in self.runs), f"{key}: two runs in one process")
        if key not in self.world.tampered:
            before = self.world.last_run.get(handle.name, 0)
            expect(handle.token > before, f"{key}: begins after a run on token {before}")
            self.world.last_run[handle.name] = handle.token
        granted_at = self.wire.granted_at[key]
        run = Run(self, handle, granted_at, granted_at)
        self.runs.append(run)
        return run


class Wire:
    """The lease backend of one process: the server's, at the other end of a bad network."""

    min_ttl_seconds = 0.1
    fenced = True
    local = False

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.far_end = world.server.backend()
        self.granted_at: dict[tuple[str, int], float] = {}
        self.garbage_seen: dict[str, tuple[int, float]] = {}
        self.last_arrival = 0.0

    async def start(self, ctx: LeaseContext) -> None:
        await self.far_end.start(ctx)

    async def acquire(self, name: str) -> Lease | Held:
        sent_at = self.world.now
        answer = await self._send("acquire", lambda: self._acquire_there(name))
        if isinstance(answer, Lease):
            self.granted_at[name, answer.token] = sent_at
        return answer

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        sent_at, asked = self.world.now, list(leases)
        renewal = await self._send("renew", lambda: self._renew_there(asked))
        if not self.process.mixed:
            self.process.told.update((lease.name, lease.token) for lease in renewal.lost)
        for lease in renewal.kept:
            for run in self.process.runs:
                same = (run.handle.name, run.handle.token) == (lease.name, lease.token)
                if same and run.handle.state is LeaseState.HELD and self.world.now < run.deadline:
                    run.sent_at = sent_at
                    if not self.process.mixed:
                        run.surely_sent_at = sent_at
        return renewal

    async def release(self, name: str, token: int | None = None) -> None:
        for run in self.process.runs:
            if run.handle.name == name and token in (None, run.handle.token):
                early_seconds = run.surely_sent_at + TTL - self.world.now
                self.world.expect(
                    token is not None and early_seconds <= 0,
                    f"{name}: {token} is given back {early_seconds:g} s too early for its run",
                )
        await self._send("release", lambda: self._release_there(name, token))

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        asked = frozenset(names)
        return await self._send("wait", lambda: self.far_end.wait(asked, timeout_seconds), in_order=False)

    async def list(self) -> Sequence[LeaseInfo]:
        return await self.far_end.list()

    async def stop(self) -> None:
        await self.far_end.stop()

    async def _acquire_there(self, name: str) -> Lease | Held:
        world = self.world
        if name in world.garbage:
            seen, since = self.garbage_seen.get(name, (0, 0.0))
            if seen != world.garbage[name]:
                self.garbage_seen[name] = world.garbage[name], world.now
                return Held()
            if world.now - since < TTL:
                return Held()
            del world.garbage[name]
        answer = await self.far_end.acquire(name)
        if isinstance(answer, Lease):
            world.granted[name] = answer.token
        return answer

    async def _renew_there(self, leases: Sequence[Lease]) -> Renewal:
        lost = [lease for lease in leases if lease.name in self.world.garbage]
        renewal = await self.far_end.renew([lease for lease in leases if lease not in lost])
        for lease in renewal.kept:
            newest = self.world.granted.get(lease.name)
            self.world.expect(lease.token == newest, f"{lease.name}: renewed {lease.token}, not {newest}")
        return Renewal(renewal.kept, [*renewal.lost, *lost])

    async def _release_there(self, name: str, token: int | None) -> None:
        if name not in self.world.garbage:
            await self.far_end.release(name, token)

    async def _send(self, op: str, happen: Callable[[], Awaitable[_T]], in_order: bool = True) -> _T:
        reply: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        fault = self.process.faults.get(op, Fault())
        if fault.refused:
            raise ConnectionRefusedError("refused")
        packet = self.world.spawn(self._travel(fault, happen, reply, in_order and self.world.server.in_order))
        try:
            return await reply
        finally:
            if op == "wait":
                packet.cancel()

    async def _travel(
        self, fault: Fault, happen: Callable[[], Awaitable[_T]], reply: "asyncio.Future[_T]", in_order: bool
    ) -> None:
        clock = WorldClock(self.world, None)
        if fault.request_lost:
            return
        arrival = self.world.now + fault.request_seconds
        if in_order:  # then none overtakes another
            arrival = self.last_arrival = max(arrival, self.last_arrival)
        await clock.sleep(arrival - self.world.now)
        answer = await happen()
        if fault.reply_lost:
            return
        await clock.sleep(fault.reply_seconds)
        await self.process.running.wait()
        if reply.done():
            return
        if fault.reply_failed:
            reply.set_exception(ConnectionResetError("reset"))
        else:
            reply.set_result(answer)


class WorldClock:
    """The time of a world, as one process sees it; for None, as the world does."""

    def __init__(self, world: World, process: Process | None) -> None:
        self._world = world
        self._process = process

    def elapsed(self) -> float:
        return self._world.now

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await self._timer(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        if event.is_set():
            return True
        timer, waiter = self._timer(seconds), asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((timer, waiter), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            waiter.cancel()
        return event.is_set()

    def _timer(self, seconds: float) -> asyncio.Future[None]:
        world = self._world
        world.count += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(world.timers, (world.now + max(0.0, seconds), world.count, future, self._process))
        return future


def make_context(worker: str, instance: str) -> LeaseContext:
    return LeaseContext(
        worker=worker,
        instance=instance,
        cluster="",
        logger=RecordingLogger(),
        ttl_seconds=TTL,
        timeout_seconds=TIMING.call_seconds,
    )
