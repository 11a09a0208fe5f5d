"""What the supervisor costs: a restart beyond its wait, many shards at rest, and a hand-over.

    python benchmarks/supervisor.py [--shards 1000] [--rounds 50] [--seconds 31] [--json FILE]

All on leases in memory, in one process, in one run. The peer of a restart is a task that starts another one;
the peer of a hand-over is an `asyncio.Lock` passed on. Idle cost is CPU time over wall time, beside an event
loop with nothing to do.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from drakkar.clock import SystemClock
from drakkar.leases.backend import LeaseContext
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.keeper import LeaseKeeper
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.supervisor import backoff
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.supervisor import Supervisor
from drakkar.supervisor.surroundings import Surroundings
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext
from drakkar.telemetry.metrics import LeaseMetrics, SupervisorMetrics
from prometheus_client import CollectorRegistry

MS = 1000.0
WAIT_SECONDS = 0.05


class Quiet:
    def info(self, event: str, **fields: Any) -> None: ...

    debug = warning = error = info


class Runner:
    def __init__(self, body: Callable[[RunContext], Any]) -> None:
        self.run = body


async def forever(_ctx: RunContext) -> None:
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def process(worker: Any, store: MemoryStore, name: str) -> AsyncIterator[Supervisor]:
    registry, clock, timing = CollectorRegistry(), SystemClock(), LeaseTiming()
    ctx = LeaseContext(name, name, "", Quiet())
    keeper = LeaseKeeper(
        MemoryLeases(store), ctx, timing, clock=clock, logger=Quiet(), metrics=LeaseMetrics(registry)
    )
    around = Surroundings(keeper, clock, Quiet(), SupervisorMetrics(registry), 10, 15)
    supervisor = Supervisor([worker], Dependencies(Quiet(), None, keeper), around, on_change=lambda: None)
    keeper.start()
    supervisor.start()
    try:
        yield supervisor
    finally:
        keeper.drain()
        await supervisor.stop()
        await keeper.stop()


async def restarts(rounds: int) -> dict[str, float]:
    """From a crash to the next start, less the wait; the schedule is a short one for that."""
    over: list[float] = []
    crashed_at = 0.0
    done = asyncio.Event()

    async def crash(_ctx: RunContext) -> None:
        nonlocal crashed_at
        now = time.perf_counter()
        if crashed_at:
            over.append(now - crashed_at - WAIT_SECONDS)
        if len(over) >= rounds:
            done.set()
            await asyncio.Event().wait()
        crashed_at = time.perf_counter()
        raise ValueError

    schedule, backoff.SCHEDULE_SECONDS = backoff.SCHEDULE_SECONDS, (WAIT_SECONDS,)  # type: ignore[misc,assignment]
    try:
        worker = BackgroundWorker("gc", lambda _deps: Runner(crash))
        async with process(worker, MemoryStore(SystemClock()), "worker-1"):
            await done.wait()
    finally:
        backoff.SCHEDULE_SECONDS = schedule  # type: ignore[misc]
    plain: list[float] = []
    for _ in range(rounds):
        ended = time.perf_counter()
        await asyncio.sleep(WAIT_SECONDS)
        plain.append(await asyncio.create_task(since(ended)) - WAIT_SECONDS)
    row = {"restart_ms": MS * statistics.median(over), "plain_restart_ms": MS * statistics.median(plain)}
    return row | {"restart_ratio": row["restart_ms"] / row["plain_restart_ms"]}


async def since(moment: float) -> float:
    return time.perf_counter() - moment


async def cpu_percent(seconds: float) -> float:
    """Of one core, over `seconds`."""
    before, began = os.times(), time.perf_counter()
    await asyncio.sleep(seconds)
    after = os.times()
    used = after.user + after.system - before.user - before.system
    return 100 * used / (time.perf_counter() - began)


async def shards(count: int, seconds: float) -> dict[str, float]:
    worker = FanOut("gc", count, lambda _deps, _shard: Runner(forever))
    store = MemoryStore(SystemClock())
    row = {"nothing_cpu_percent": await cpu_percent(seconds)}
    began = time.perf_counter()
    async with process(worker, store, "worker-1") as holding:
        while len(holding.held_shards("gc")) < count:  # noqa: ASYNC110  there is no event for the last one
            await asyncio.sleep(0.001)
        row["start_ms"] = MS * (time.perf_counter() - began)
        await asyncio.sleep(2)
        row["held_cpu_percent"] = await cpu_percent(seconds)
        async with process(worker, store, "worker-2"):
            await asyncio.sleep(5)
            both = await cpu_percent(seconds)
            row["waiting_cpu_percent"] = both - row["held_cpu_percent"]
        stopping = time.perf_counter()
    return row | {"stop_ms": MS * (time.perf_counter() - stopping), "shards": count}


async def hand_overs(rounds: int) -> dict[str, float]:
    """From the end of a run that yielded to the start of the next, in another process."""
    ended_at = 0.0
    took: list[float] = []
    started = asyncio.Event()

    async def run(ctx: RunContext) -> None:
        nonlocal ended_at
        if ended_at:
            took.append(time.perf_counter() - ended_at)
        started.set()
        await ctx.yielding.wait()
        ended_at = time.perf_counter()

    worker = BackgroundWorker("gc", lambda _deps: Runner(run))
    store = MemoryStore(SystemClock())
    async with process(worker, store, "worker-1") as one, process(worker, store, "worker-2") as other:
        for _ in range(rounds):
            await started.wait()
            started.clear()
            await asyncio.sleep(0.1)
            _ = one.step_down("gc-leader", 0.05) or other.step_down("gc-leader", 0.05)
        await started.wait()
    lock, passed = asyncio.Lock(), []
    for _ in range(rounds):
        await lock.acquire()
        waiting = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        began = time.perf_counter()
        lock.release()
        await waiting
        passed.append(time.perf_counter() - began)
        lock.release()
    took.sort()
    row = {
        "hand_over_ms": MS * statistics.median(took),
        "hand_over_p99_ms": MS * took[min(len(took) - 1, int(0.99 * len(took)))],
        "lock_ms": MS * statistics.median(passed),
    }
    return row | {"hand_over_ratio": row["hand_over_ms"] / row["lock_ms"]}


async def measure(options: argparse.Namespace) -> dict[str, float]:
    return {
        **await restarts(options.rounds),
        **await hand_overs(options.rounds),
        **await shards(options.shards, options.seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the supervisor on leases in memory.")
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=31, help="more than a ttl, or a renewal goes unseen")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    row = asyncio.run(measure(options))
    for name, value in row.items():
        print(f"{name:>24} {value:10.3f}")
    if options.json:
        options.json.write_text(json.dumps({"supervisor": [row]}, indent=2))


if __name__ == "__main__":
    main()
