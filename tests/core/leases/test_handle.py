"""What a run knows of its lease, from any thread and at any moment."""

import asyncio
import threading
import timeit

import pytest
from drakkar.clock import SystemClock
from drakkar.errors import LeaseLost
from drakkar.leases.backend import Lease
from drakkar.leases.handle import LeaseHandle, LeaseState
from support.clock import FakeClock, settle
from support.forks import in_a_fork


def make_handle(clock: FakeClock, ttl_seconds: float = 30.0) -> LeaseHandle:
    return LeaseHandle(Lease("gc-leader", "worker-1/1", 7, ttl_seconds), clock.elapsed(), clock)


async def test_it_is_held_until_its_deadline_and_never_after() -> None:
    """Rule 4: `check` raises past the deadline."""
    clock = FakeClock()
    handle = make_handle(clock)
    clock.jump(26.999)
    handle.check()
    clock.jump(0.001)
    with pytest.raises(LeaseLost, match=r"lease 'gc-leader' is lost \(token 7\)"):
        handle.check()


async def test_it_is_lost_without_the_event_loop_having_noticed() -> None:
    """Trial: the job starves its own renewal. Rule 4: a process that was frozen does not act on waking."""
    clock = FakeClock()
    handle = make_handle(clock)
    clock.jump(75)
    assert handle.state is LeaseState.HELD
    assert handle.lost


async def test_it_can_be_asked_from_a_thread() -> None:
    """Trial: losing the lease does not stop a thread."""
    handle = LeaseHandle(Lease("gc-leader", "worker-1/1", 7, 30.0), SystemClock().elapsed(), SystemClock())
    seen: list[object] = []

    def work() -> None:
        seen.extend([handle.name, handle.token, handle.lost])
        handle.check()
        handle.end(LeaseState.LOST)
        try:
            handle.check()
        except LeaseLost:
            seen.append("lost")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["gc-leader", 7, False, "lost"]


async def test_a_forked_copy_does_not_hold_it() -> None:
    """It would not hear that its parent gave the lease back, and might act beside the next holder."""
    handle = LeaseHandle(Lease("gc-leader", "worker-1/1", 7, 30.0), SystemClock().elapsed(), SystemClock())

    async def look() -> None:
        assert handle.lost
        with pytest.raises(LeaseLost):
            handle.check()

    in_a_fork(look)
    handle.check()


async def test_a_renewal_moves_the_deadline_from_when_it_was_sent() -> None:
    """Rule 1: `sent_at` is read before the request."""
    clock = FakeClock()
    handle = make_handle(clock)
    sent_at = clock.elapsed() + 10
    clock.jump(20)
    assert handle.renewed(sent_at, 30.0)
    assert handle.deadline == sent_at + 27
    assert handle.free_at == sent_at + 30


async def test_a_renewal_that_is_handled_past_the_deadline_is_ignored() -> None:
    """Rule 1: even if the timer has not fired yet."""
    clock = FakeClock()
    handle = make_handle(clock)
    sent_at = clock.elapsed() + 20
    clock.jump(27)
    assert not handle.renewed(sent_at, 30.0)
    assert handle.lost


async def test_nobody_who_was_told_to_stop_is_told_to_go_on() -> None:
    """Rule 4: lost is for good, also when the clock was read a moment before an answer came."""
    clock = FakeClock()
    handle = make_handle(clock)
    clock.jump(27)
    assert handle.lost
    clock.jump(-5)  # as if the answer had been handled by another thread's older reading
    assert not handle.renewed(clock.elapsed(), 30.0)
    assert handle.lost


async def test_an_older_answer_moves_nothing_back() -> None:
    clock = FakeClock()
    handle = make_handle(clock)
    clock.jump(20)
    now = clock.elapsed()
    assert handle.renewed(now, 30.0)
    assert not handle.renewed(now - 15, 30.0)
    assert handle.deadline == now + 27


async def test_a_renewal_may_be_for_less_than_the_last() -> None:
    """Rule 1: what the store promised last is what counts."""
    clock = FakeClock()
    handle = make_handle(clock)
    clock.jump(1)
    handle.renewed(clock.elapsed(), 10.0)
    assert handle.deadline == clock.elapsed() + 9
    assert handle.free_at == clock.elapsed() + 29, "the earlier promise still stands in the store"


async def test_it_ends_once() -> None:
    """Rule 9: three endings with three names; a lost lease may be abandoned on top."""
    for first in (LeaseState.LOST, LeaseState.ABANDONED, LeaseState.RELEASED):
        for second in LeaseState:
            handle = make_handle(FakeClock())
            assert handle.end(first)
            counts = (first, second) == (LeaseState.LOST, LeaseState.ABANDONED)
            assert handle.end(second) is counts
            assert handle.state is (second if counts else first)
            assert handle.lost


async def test_every_ending_wakes_who_waits_for_it() -> None:
    for state in (LeaseState.LOST, LeaseState.ABANDONED, LeaseState.RELEASED):
        handle = make_handle(FakeClock())
        waiting = asyncio.create_task(handle.wait_lost())
        await settle()
        assert not waiting.done()
        handle.end(state)
        await settle()
        assert waiting.done()


async def test_a_check_costs_next_to_nothing() -> None:
    """Rule 4: cheap enough for every side effect. Ten microseconds leave a busy machine room."""
    handle = LeaseHandle(Lease("gc-leader", "worker-1/1", 7, 30.0), SystemClock().elapsed(), SystemClock())
    assert min(timeit.repeat(handle.check, number=1000, repeat=5)) / 1000 < 10e-6
