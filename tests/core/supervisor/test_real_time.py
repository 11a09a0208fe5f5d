"""Threads and blocking jobs, on the real clock: what no virtual time can show. Short leases, no sleep that
decides a result."""

import asyncio
import threading
import time
from collections.abc import Iterable

from drakkar.clock import SystemClock
from drakkar.errors import LeaseLost
from drakkar.leases.backend import Lease, Renewal
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.supervisor.worker import RunContext
from support.supervised import Job, Process, forever
from support.waiting import until

TTL = 0.8
TIMING = LeaseTiming(ttl_seconds=TTL, renew_seconds=0.2, retry_seconds=0.1, timeout_seconds=0.15)


def process(job: Job, store: MemoryStore, name: str = "worker-1", **options: float) -> Process:
    return Process([job.worker()], store, name, clock=SystemClock(), timing=TIMING, **options)  # type: ignore[arg-type]


class StrictWitness:
    """What a store does that knows fencing: refuses a lower token than it has seen."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, float]] = []
        self.refused: list[int] = []
        self._lock = threading.Lock()

    def write(self, token: int) -> None:
        with self._lock:
            if self.accepted and token < self.accepted[-1][0]:
                self.refused.append(token)
            else:
                self.accepted.append((token, time.monotonic()))


class CutLeases(MemoryLeases):
    cut = False

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        if self.cut:
            raise OSError("no route")
        return await super().renew(leases)


async def test_a_thread_can_ask_whether_it_still_leads_and_its_late_writes_are_refused() -> None:
    """Losing the lease does not stop a thread."""
    store, witness = MemoryStore(SystemClock()), StrictWitness()
    checked: list[str] = []
    writing = threading.Event()
    end = threading.Event()

    def work(ctx: RunContext) -> None:
        """Goes on writing after the loss, as a thread that nobody stops does."""
        assert ctx.lease is not None
        while not end.wait(0.005):
            try:
                ctx.lease.check()
            except LeaseLost:
                checked.append("lost")
            witness.write(ctx.lease.token)
            writing.set()

    async def body(ctx: RunContext) -> None:
        thread = threading.Thread(target=work, args=(ctx,), daemon=True)
        thread.start()
        try:
            await forever(ctx)
        finally:
            while thread.is_alive():  # noqa: ASYNC110  a runner must not end before its thread has
                await asyncio.sleep(0.01)

    async def other(ctx: RunContext) -> None:
        while True:
            assert ctx.lease is not None
            ctx.lease.check()
            witness.write(ctx.lease.token)
            await asyncio.sleep(0.005)

    backend = CutLeases(store)
    first = Process(
        [Job(body).worker()],
        store,
        backend=backend,
        clock=SystemClock(),
        timing=TIMING,
        stop_timeout_seconds=0.2,
    )
    async with first, process(Job(other), store, "worker-2"):
        await until(writing.is_set)
        backend.cut = True
        await until(lambda: first.report().status == "stuck")
        await until(lambda: bool(witness.refused))
        assert checked
        end.set()
        await until(lambda: first.report().status != "stuck")
    tokens = [token for token, _ in witness.accepted]
    assert tokens == sorted(tokens)
    assert set(witness.refused) == {1}
    assert first.log.named("worker_stop_timeout")


async def test_a_job_that_blocks_the_loop_for_longer_than_its_lease_never_runs_twice() -> None:
    """The job starves its own renewal: a blocking sleep of 2.5 ttl, alone."""
    store, blocked = MemoryStore(SystemClock()), 0

    async def body(ctx: RunContext) -> None:
        nonlocal blocked
        await asyncio.sleep(0.05)
        time.sleep(2.5 * TTL)  # noqa: ASYNC251  the fault itself
        blocked += 1
        assert ctx.lease is not None
        assert ctx.lease.lost
        await forever(ctx)

    job = Job(body)
    async with process(job, store) as alone:
        await until(lambda: len(job.starts) == 3)
        assert job.most_at_once == 1
        assert alone.log.named("lease_lost")
        assert alone.log.named("event_loop_held_up")
        assert alone.log.named("worker_crashed") == []
        assert alone.log.named("worker_lane_failed") == []
        tokens = [ctx.lease.token for ctx in job.contexts if ctx.lease is not None]
        assert tokens == sorted(set(tokens))
        job.body = forever
        await until(lambda: blocked >= 2)


async def test_many_coroutines_that_hog_the_loop_cost_no_second_run() -> None:
    """The job starves its own renewal: 200 coroutines that each hog it for 30 ms."""
    store = MemoryStore(SystemClock())

    async def hog() -> None:
        time.sleep(0.01)  # noqa: ASYNC251  the fault itself

    async def body(ctx: RunContext) -> None:
        for _ in range(100):
            ctx.create_task(hog())
        await forever(ctx)

    job = Job(body)
    async with process(job, store):
        await until(lambda: len(job.starts) == 2)
        job.body = forever
        await asyncio.sleep(0)
        assert job.most_at_once == 1


async def test_a_busy_thread_does_not_keep_the_lease_from_being_renewed() -> None:
    """The job starves its own renewal: a CPU-bound loop in a thread."""
    store, spun, end = MemoryStore(SystemClock()), 0, threading.Event()

    def spin() -> None:
        nonlocal spun
        while not end.is_set():
            spun += 1

    async def body(ctx: RunContext) -> None:
        thread = threading.Thread(target=spin, daemon=True)
        thread.start()
        try:
            await forever(ctx)
        finally:
            end.set()
            thread.join()

    job = Job(body)
    timing = LeaseTiming(ttl_seconds=20, renew_seconds=0.2, retry_seconds=0.1, timeout_seconds=5)
    async with Process([job.worker()], store, clock=SystemClock(), timing=timing) as alone:
        await until(lambda: spun > 0)
        lasts_until = store.records["gc-leader"].expires_at
        await until(lambda: store.records["gc-leader"].expires_at > lasts_until + 0.5)
        assert alone.log.named("lease_lost") == []
        assert len(job.starts) == 1
