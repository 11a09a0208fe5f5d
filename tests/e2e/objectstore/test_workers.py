"""The four background workers under supervisors: chosen by name, set up by the environment, shared out."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from drakkar.clock import SystemClock
from drakkar.errors import ConfigError, LeaseLost
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.memory import MemoryStore
from drakkar.supervisor.chosen import choose, known_names
from objectstore.count import figures
from objectstore.fill import fill
from objectstore.permit import Permit, Withdrawn
from objectstore.tree import Tree
from objectstore.verify import settle
from support.object_worlds import HeldLease
from support.supervised import Process
from support.waiting import until

NAMES = ("gc", "lifecycle", "rebalance", "inventory")
QUICK = ("GC", "LIFECYCLE", "REBALANCE", "INVENTORY")


@pytest.fixture(name="root")
def a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DK_OBJECTSTORE_DIR", str(tmp_path / "objects"))
    monkeypatch.setenv("DK_GC_SHARDS", "4")
    monkeypatch.setenv("DK_GC_GRACE", "1")
    for name in QUICK:
        monkeypatch.setenv(f"DK_{name}_INTERVAL", "0.1")
    return tmp_path / "objects"


def test_they_are_known_by_their_names() -> None:
    assert {*NAMES} <= {*known_names()}


def test_lifecycle_needs_its_gate(root: Path) -> None:
    assert [worker.name for worker in choose(NAMES)] == [*NAMES]
    with pytest.raises(ConfigError, match="choose gc as well"):
        choose(["lifecycle"])
    assert root.is_dir()


@pytest.mark.parametrize(
    ("variable", "value", "worker"),
    [
        ("DK_OBJECTSTORE_DIR", "", "inventory"),
        ("DK_GC_SHARDS", "0", "gc"),
        ("DK_GC_SHARDS", "1025", "gc"),
        ("DK_GC_SHARDS", "four", "gc"),
        ("DK_GC_INTERVAL", "0", "gc"),
        ("DK_GC_GRACE", "nan", "gc"),
        ("DK_LIFECYCLE_INTERVAL", "-1", "lifecycle"),
        ("DK_REBALANCE_SHARDS", "1.5", "rebalance"),
        ("DK_REBALANCE_INTERVAL", "inf", "rebalance"),
        ("DK_INVENTORY_INTERVAL", "soon", "inventory"),
    ],
)
def test_a_knob_that_does_not_hold_ends_the_start(
    root: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, worker: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=variable):
        choose(["gc", worker])
    assert not root.exists() or value


@asynccontextmanager
async def fleet(size: int) -> AsyncIterator[list[Process]]:
    """Supervisors that share the leases of this process."""
    clock = SystemClock()
    timing = LeaseTiming(ttl_seconds=2, renew_seconds=0.5, retry_seconds=0.2, timeout_seconds=0.5)
    store = MemoryStore(clock)
    made = [
        Process(choose(NAMES), store, f"worker-{number + 1}", clock=clock, timing=timing)
        for number in range(size)
    ]
    for process in made:
        process.start()
    try:
        yield made
    finally:
        for process in made:
            await process.stop()


async def test_they_keep_a_store_in_order_while_it_is_filled(root: Path) -> None:
    tree = Tree(root)
    async with fleet(2):
        await fill(root, asyncio.Event(), seconds=4, writers=3, seed=1, chunk_bytes=1024, pause_seconds=0.02)
        report = await asyncio.get_running_loop().run_in_executor(None, settle, tree, 30)
        done = figures(tree)
    assert (report.broken, report.left) == ([], [])
    assert min(done[what] for what in ("objects", "expired", "collected", "moved", "summaries")) > 0, done
    first, second = done["volumes"]
    assert abs(first - second) < 0.3 * (first + second)


async def test_work_goes_on_where_a_worker_stops(root: Path) -> None:
    tree = Tree(root)
    async with fleet(2) as (one, two):
        await until(lambda: {"gc", "rebalance", "inventory"} <= leads(one) | leads(two))
        await one.stop()
        await fill(root, asyncio.Event(), seconds=1, writers=2, seed=2, chunk_bytes=1024, pause_seconds=0.02)
        await until(lambda: leads(two) == {*NAMES})
        report = await asyncio.get_running_loop().run_in_executor(None, settle, tree, 30)
    assert (report.broken, report.left) == ([], [])


def leads(process: Process) -> set[str]:
    return {
        name
        for name, reports in process.supervisor.reports().items()
        if any(r.status == "leading" for r in reports)
    }


async def test_a_cancelled_run_has_ended_only_when_its_thread_has() -> None:
    permit = Permit(HeldLease("gc-leader-0", 1))
    steps, ended = [], threading.Event()

    def work() -> None:
        try:
            while True:
                permit.check()
                steps.append(time.monotonic())
                time.sleep(0.005)
        finally:
            ended.set()

    running = asyncio.create_task(permit.in_thread(work))
    await until(lambda: len(steps) > 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()
    with pytest.raises(Withdrawn):
        permit.check()


async def test_a_thread_ends_when_the_lease_is_lost() -> None:
    lease = HeldLease("gc-leader-0", 1)
    permit = Permit(lease)
    steps = 0

    def work() -> None:
        nonlocal steps
        while True:
            permit.check()
            steps += 1

    def lose() -> None:
        if steps == 100:
            raise LeaseLost("gone")

    lease.on_check = lose
    with pytest.raises(LeaseLost):
        await permit.in_thread(work)
    assert steps == 100
