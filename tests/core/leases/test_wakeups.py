"""Sleeping until a lease may be free."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drakkar.calls import CallError
from drakkar.leases.candidates import MAX_WAKEUP_DELAY_SECONDS, TRUSTED_WAKEUPS
from drakkar.leases.wakeups import GATHER_SECONDS, WAIT_SECONDS, WakeUps
from support.clock import FakeClock, settle
from support.lease_bench import benches, ended, fails


class Changes:
    """A `wait` as the contract has it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.asked: list[frozenset[str]] = []
        self.running = 0
        self.failing = False
        self.free: set[str] = set()
        self.changed = asyncio.Event()

    async def wait(self, names: frozenset[str], timeout_seconds: float) -> frozenset[str]:
        self.asked.append(names)
        self.running += 1
        try:
            if self.failing:
                raise CallError("cut off")
            until = self.clock.elapsed() + timeout_seconds
            while not (found := names & self.free) and (left := until - self.clock.elapsed()) > 0:
                self.changed.clear()
                await self.clock.wait(self.changed, left)
            return frozenset(found)
        finally:
            self.running -= 1

    def let_go(self, *names: str) -> None:
        self.free |= set(names)
        self.changed.set()


@asynccontextmanager
async def waking() -> AsyncIterator[tuple[FakeClock, Changes, WakeUps]]:
    clock = FakeClock()
    changes = Changes(clock)
    wakeups = WakeUps(changes.wait, clock)
    try:
        yield clock, changes, wakeups
    finally:
        await wakeups.stop()
        assert changes.running == 0


def sleeping(wakeups: WakeUps, name: str, seconds: float = 100.0) -> "asyncio.Task[bool]":
    return asyncio.create_task(wakeups.sleep(name, seconds))


async def test_a_sleeper_wakes_when_its_lease_may_be_free() -> None:
    async with waking() as (_, changes, wakeups):
        task = sleeping(wakeups, "a")
        await settle()
        changes.let_go("a")
        await settle()
        assert await task is True


async def test_a_sleeper_wakes_after_its_time_in_any_case() -> None:
    async with waking() as (clock, changes, wakeups):
        changes.failing = True
        task = sleeping(wakeups, "a", 5.0)
        await clock.advance(4.99)
        assert not task.done()
        await clock.advance(0.01)
        assert await task is False


async def test_only_whose_lease_it_is_wakes() -> None:
    async with waking() as (clock, changes, wakeups):
        first, second = sleeping(wakeups, "a"), sleeping(wakeups, "b")
        await clock.advance(1)
        changes.let_go("b")
        await settle()
        assert second.done()
        assert not first.done()
        first.cancel()


async def test_names_that_come_one_by_one_are_gathered() -> None:
    async with waking() as (clock, changes, wakeups):
        tasks = []
        for number in range(1000):
            tasks.append(sleeping(wakeups, f"a-{number}"))
            await asyncio.sleep(0)
        await clock.advance(1)
        assert len(changes.asked) <= 3
        assert len(changes.asked[-1]) == 1000
        for task in tasks:
            task.cancel()


async def test_a_sleeper_that_comes_later_is_waited_for_as_well() -> None:
    async with waking() as (clock, changes, wakeups):
        first = sleeping(wakeups, "a")
        await clock.advance(1)
        second = sleeping(wakeups, "b")
        await clock.advance(2 * GATHER_SECONDS)
        changes.let_go("b")
        await settle()
        assert second.done()
        first.cancel()


async def test_a_name_that_is_waited_for_already_costs_no_new_wait() -> None:
    async with waking() as (clock, changes, wakeups):
        other = sleeping(wakeups, "b")
        for _ in range(10):
            task = sleeping(wakeups, "a", 0.1)
            await clock.advance(0.2)
            assert task.done()
        assert len(changes.asked) <= 2
        other.cancel()


async def test_a_change_while_nobody_listens_is_not_lost() -> None:
    """The contract of `wait` has it: a change is told until the lease was asked for again."""
    async with waking() as (clock, changes, wakeups):
        first = sleeping(wakeups, "a")
        await settle()
        second = sleeping(wakeups, "b")
        changes.let_go("b")  # within the time in which further names are gathered
        await clock.advance(2 * GATHER_SECONDS)
        assert second.done()
        first.cancel()


async def test_waits_go_on_for_as_long_as_somebody_sleeps() -> None:
    async with waking() as (clock, changes, wakeups):
        task = sleeping(wakeups, "a", 1000.0)
        await clock.advance(5 * WAIT_SECONDS + 1)
        assert 5 <= len(changes.asked) <= 6
        changes.let_go("a")
        await settle()
        assert task.done()
        await clock.advance(2 * WAIT_SECONDS)
        assert changes.running == 0


async def test_a_wait_that_fails_is_tried_again_after_growing_delays() -> None:
    async with waking() as (clock, changes, wakeups):
        changes.failing = True
        task = sleeping(wakeups, "a", 1000.0)
        await clock.advance(120)
        assert 8 <= len(changes.asked) <= 20
        changes.failing = False
        changes.let_go("a")
        await clock.advance(31)
        assert task.done()


async def test_a_cancelled_sleeper_leaves_nothing() -> None:
    async with waking() as (clock, changes, wakeups):
        task = sleeping(wakeups, "a")
        await settle()
        task.cancel()
        await clock.advance(WAIT_SECONDS + 1)
        assert changes.running == 0
        assert len(changes.asked) == 1


async def test_after_a_stop_nobody_listens_and_a_sleeper_sleeps_its_time() -> None:
    clock = FakeClock()
    changes = Changes(clock)
    wakeups = WakeUps(changes.wait, clock)
    first = sleeping(wakeups, "a", 5.0)
    await settle()
    await wakeups.stop()
    assert changes.running == 0
    second = sleeping(wakeups, "b", 5.0)
    await clock.advance(5)
    assert (await first, await second) == (False, False)
    assert len(changes.asked) == 1


# Candidates and their wake-ups.


async def test_a_store_that_always_sees_a_change_is_not_asked_without_end() -> None:
    """Rule 7: many candidates never stampede."""
    async with benches("worker-1", "worker-2") as [first, second]:
        await first.acquire()
        second.backend.before["wait"] = lambda names: names
        second.acquiring()
        await first.clock.advance(20)
        assert TRUSTED_WAKEUPS < len(second.backend.asked("acquire")) < 20 / MAX_WAKEUP_DELAY_SECONDS * 2 + 8


async def test_a_few_wake_ups_for_nothing_cost_no_time() -> None:
    """A race that was lost is no reason to be slow."""
    async with benches("worker-1", "worker-2", "worker-3") as [first, *others]:
        holder, handle = first, await first.acquire()
        waiting = {bench.acquiring(): bench for bench in others}
        for _ in others:
            await first.clock.advance(1)
            await holder.keeper.release(handle)
            await settle()
            [winner] = [task for task in waiting if task.done()]
            holder, handle = waiting.pop(winner), await winner
        assert waiting == {}


async def test_wake_ups_that_fail_cost_only_time() -> None:
    async with benches("worker-1", "worker-2") as [first, second]:
        second.backend.before["wait"] = fails()
        handle = await first.acquire()
        waiting = second.acquiring()
        await first.clock.advance(1)
        await first.keeper.release(handle)
        await ended(first.clock, waiting, within_seconds=31)


async def test_a_thousand_idle_candidates_are_cheap() -> None:
    """Rule 8: they share their waits, and ask by themselves about once in the time of a lease."""
    async with benches("worker-1", "worker-2") as [first, second]:
        names = [f"gc-leader-{number}" for number in range(1000)]
        for name in names:
            await first.backend.acquire(name)
        for name in names:
            second.acquiring(name)
        await first.clock.advance(1)
        second.backend.calls.clear()
        for _ in range(3):
            for record in first.store.records.values():
                record.expires_at = first.clock.elapsed() + 30
            await first.clock.advance(20)
        asked, waited = len(second.backend.asked("acquire")), len(second.backend.asked("wait"))
        assert asked <= 4 * len(names)
        assert waited <= 10
