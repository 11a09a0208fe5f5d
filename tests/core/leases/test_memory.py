"""Leases in the memory of a process: what the kit (`test_testkit`) does not look at."""

import pytest
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
