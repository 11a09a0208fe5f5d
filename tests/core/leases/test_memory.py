"""Leases in the memory of a process: what the kit (`test_testkit`) does not look at."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from drakkar.clock import SystemClock
from drakkar.leases.backend import Held, Lease
from drakkar.leases.memory import MemoryLeases, MemoryStore, make_lease_backend
from drakkar.leases.testkit import make_context
from support.clock import FakeClock


async def test_all_backends_of_a_process_share_its_leases() -> None:
    first, second = make_lease_backend({}), make_lease_backend({"any": "option"})
    await first.start(make_context("worker-1"))
    await second.start(make_context("worker-2"))
    assert isinstance(await first.acquire("shared-leader"), Lease)
    try:
        assert isinstance(await second.acquire("shared-leader"), Held)
    finally:
        await first.release("shared-leader")
    taken = await second.acquire("shared-leader")
    assert isinstance(taken, Lease)
    await second.release("shared-leader", taken.token)


def test_it_is_local_and_fenced_and_says_so() -> None:
    backend = MemoryLeases()
    assert (backend.local, backend.fenced, backend.min_ttl_seconds) == (True, True, 0.1)


async def test_it_is_exact_to_the_moment() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    first, second = MemoryLeases(store), MemoryLeases(store)
    await first.start(make_context("worker-1", ttl_seconds=10))
    await second.start(make_context("worker-2", ttl_seconds=10))
    await first.acquire("gc-leader")
    clock.jump(9.999)
    refusal = await second.acquire("gc-leader")
    assert isinstance(refusal, Held)
    assert refusal.retry_after_seconds == pytest.approx(0.001)
    clock.jump(0.001)
    assert isinstance(await second.acquire("gc-leader"), Lease)


async def test_it_must_be_started() -> None:
    with pytest.raises(RuntimeError, match="has not started"):
        await MemoryLeases(MemoryStore(FakeClock())).acquire("gc-leader")


async def backend_of(store: MemoryStore, worker: str) -> MemoryLeases:
    backend = MemoryLeases(store)
    await backend.start(make_context(worker))
    return backend


def test_of_two_event_loops_in_two_threads_one_gets_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    both_have_looked = threading.Barrier(2)
    live = MemoryStore.live

    def look_at_once(store: MemoryStore, name: str) -> object:
        record = live(store, name)
        with contextlib.suppress(threading.BrokenBarrierError):
            both_have_looked.wait(0.2)
        return record

    async def acquire(worker: str) -> Lease | Held:
        return await (await backend_of(store, worker)).acquire("gc-leader")

    monkeypatch.setattr(MemoryStore, "live", look_at_once)
    store = MemoryStore(SystemClock())
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda worker: asyncio.run(acquire(worker)), ["worker-1", "worker-2"]))
    assert sorted(type(answer).__name__ for answer in answers) == ["Held", "Lease"]


async def test_a_release_wakes_who_waits_in_the_event_loop_of_another_thread() -> None:
    async def wait() -> frozenset[str]:
        second = await backend_of(store, "worker-2")
        assert isinstance(await second.acquire("gc-leader"), Held)
        here.call_soon_threadsafe(refused.set)
        return await second.wait(["gc-leader"], 3600)

    here, refused, store = asyncio.get_running_loop(), asyncio.Event(), MemoryStore(SystemClock())
    first = await backend_of(store, "worker-1")
    await first.acquire("gc-leader")
    waiting = asyncio.create_task(asyncio.to_thread(asyncio.run, wait()))
    await refused.wait()
    await asyncio.sleep(0.05)  # else the change comes before the wait, for which there are other tests
    await first.release("gc-leader")
    assert await waiting == {"gc-leader"}


async def test_who_waited_in_an_event_loop_that_was_closed_costs_nobody_a_release() -> None:
    def leave_a_waiter_behind() -> None:
        loop = asyncio.new_event_loop()
        second = loop.run_until_complete(backend_of(store, "worker-2"))
        tasks.append(loop.create_task(second.wait(["gc-leader"], 3600)))
        loop.run_until_complete(second.acquire("gc-leader"))
        loop.close()

    store, tasks = MemoryStore(SystemClock()), list[asyncio.Task[frozenset[str]]]()
    first = await backend_of(store, "worker-1")
    await first.acquire("gc-leader")
    await asyncio.to_thread(leave_a_waiter_behind)
    await first.release("gc-leader")
    assert await first.list() == []
