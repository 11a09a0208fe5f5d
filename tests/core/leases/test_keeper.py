"""The keeper against callers, stores and moments at their worst."""

import asyncio
import gc
from datetime import UTC, datetime
from typing import Any

import pytest
from drakkar.calls import CallError
from drakkar.leases.backend import MAX_NAME_CHARS, Held, Lease, LeaseContext
from drakkar.leases.calls import WAIT_SLACK_SECONDS, LeaseCalls
from drakkar.leases.candidates import CONCURRENT_ACQUIRES
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.givebacks import CONCURRENT_GIVEBACKS
from drakkar.leases.handle import LeaseHandle, LeaseState
from drakkar.leases.holding import Holding
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.leases.wakeups import WAIT_SECONDS
from drakkar.telemetry.metrics import LeaseMetrics
from drakkar.telemetry.outages import LOG_EVERY_SECONDS
from prometheus_client import CollectorRegistry
from support.clock import FakeClock, settle
from support.lease_bench import (
    DEADLINE,
    TIMING,
    TTL,
    Bench,
    ScriptedLeases,
    arrives,
    benches,
    ended,
    fails,
    hangs,
)
from support.log import RecordingLogger

PERIOD = TIMING.period_seconds
CALL = TIMING.call_seconds


class Starved(BaseException):
    """Not one that a loop may take for a failure of its own."""


class CountingClock:
    """Moves by a microsecond each time that it is looked at, and ends whoever looks without ever waiting."""

    def __init__(self) -> None:
        self.looks = self.waits = 0
        self.waited_often = asyncio.Event()

    def elapsed(self) -> float:
        self.looks += 1
        if self.looks > 10_000:
            raise Starved
        return self.looks * 1e-6

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        self.waits += 1
        if self.waits == 10:
            self.waited_often.set()
        await asyncio.sleep(0)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        await self.sleep(seconds)
        return event.is_set()


async def test_the_renewal_loop_leaves_time_to_the_rest_however_short_its_period_is() -> None:
    clock, log = CountingClock(), RecordingLogger()
    metrics = LeaseMetrics(CollectorRegistry())
    timing = LeaseTiming(renew_seconds=1e-9)
    calls = LeaseCalls(
        MemoryLeases(), LeaseContext("worker-1", "1", "", log), 1.0, clock=clock, logger=log, metrics=metrics
    )
    holding = Holding(calls, timing, clock=clock, logger=log, metrics=metrics)

    renewing = asyncio.create_task(holding.renew_forever())
    often = asyncio.create_task(clock.waited_often.wait())
    await asyncio.wait({renewing, often}, return_when=asyncio.FIRST_COMPLETED)
    often.cancel()
    renewing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await renewing


# Acquiring.


async def test_it_leads_at_once_when_nobody_else_does() -> None:
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        assert (handle.name, handle.token, handle.state) == ("gc-leader", 1, LeaseState.HELD)
        assert bench.log.named("lease_acquired") == [{"name": "gc-leader", "token": 1}]
        assert bench.value("drakkar_lease_held", name="gc-leader") == 1
        await bench.keeper.release(handle)
        assert bench.value("drakkar_lease_held", name="gc-leader") is None


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_CHARS + 1), "\ud800"])
async def test_a_name_that_cannot_be_one_is_refused_before_the_store_is_asked(name: str) -> None:
    async with benches("worker-1") as [bench]:
        with pytest.raises(ValueError, match=r"a lease name has 1 to 200 characters|surrogates not allowed"):
            await bench.keeper.acquire(name)
        assert bench.backend.asked("acquire") == []
        await bench.acquire("x" * MAX_NAME_CHARS)


async def test_two_that_want_one_lease_in_one_process_have_it_one_after_the_other() -> None:
    async with benches("worker-1") as [bench]:
        tasks = [bench.acquiring() for _ in range(3)]
        tokens = []
        for _ in range(3):
            await settle()
            [task] = [task for task in tasks if task.done()]
            tasks.remove(task)
            handle = task.result()
            tokens.append(handle.token)
            await bench.clock.advance(TTL)
            assert not any(task.done() for task in tasks)
            await bench.keeper.release(handle)
        assert tokens == sorted(set(tokens))


async def test_one_that_gives_up_waiting_its_turn_leaves_it_to_the_next() -> None:
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        second, third = bench.acquiring(), bench.acquiring()
        await settle()
        second.cancel()
        await settle()
        await bench.keeper.release(handle)
        await settle()
        assert third.done()


async def test_what_must_come_before_an_attempt_comes_before_each() -> None:
    async with benches("worker-1") as [bench]:
        seen: list[int] = []

        async def before_attempt() -> None:
            seen.append(len(bench.backend.asked("acquire")))
            await bench.clock.sleep(1)

        bench.backend.before.update(acquire=lambda: Held(None, 5.0), wait=hangs)
        task = asyncio.create_task(bench.keeper.acquire("gc-leader", before_attempt), name="acquiring")
        await bench.clock.advance(15)
        assert seen == [0, 1, 2]
        task.cancel()
        await asyncio.wait({task})


async def test_what_comes_before_an_attempt_may_raise() -> None:
    """Then the call raises it, nothing is asked for, and the name is free for another one."""
    async with benches("worker-1") as [bench]:

        async def before_attempt() -> None:
            raise LookupError("no such shard")

        with pytest.raises(LookupError, match="no such shard"):
            await bench.keeper.acquire("gc-leader", before_attempt)
        assert bench.backend.asked("acquire") == []
        await bench.acquire()


async def test_a_thousand_names_that_wait_for_a_store_do_not_hold_each_other_up_when_it_is_back() -> None:
    async with benches("worker-1") as [bench]:
        bench.backend.before["acquire"] = hangs
        tasks = [bench.acquiring(f"gc-leader-{number}") for number in range(1000)]
        await bench.clock.advance(60)
        calls = len(bench.backend.asked("acquire"))
        assert calls <= CONCURRENT_ACQUIRES * (60 / CALL + 1), "and the store is not stormed meanwhile"
        del bench.backend.before["acquire"]
        await bench.clock.advance(35)
        assert all(task.done() for task in tasks)


async def test_a_store_that_hangs_for_candidates_does_not_hold_up_releases_and_renewals() -> None:
    async with benches("worker-1") as [bench]:
        handles = [await bench.acquire(f"gc-leader-{number}") for number in range(40)]
        bench.backend.before["acquire"] = hangs
        for number in range(100):
            bench.acquiring(f"lifecycle-leader-{number}")
        await bench.clock.advance(PERIOD + 0.5)
        assert all(handle.deadline > bench.clock.elapsed() + 20 for handle in handles)
        for handle in handles:
            await bench.keeper.release(handle)
        assert len(bench.backend.asked("release")) == 40


async def test_releases_are_not_sent_all_at_once() -> None:
    async with benches("worker-1") as [bench]:
        handles = [await bench.acquire(f"gc-leader-{number}") for number in range(100)]
        bench.backend.before["release"] = lambda: bench.clock.sleep(0.1)
        tasks = [asyncio.create_task(bench.keeper.release(handle)) for handle in handles]
        await bench.clock.advance(0.05)
        assert len(bench.backend.asked("release")) == CONCURRENT_GIVEBACKS
        await bench.clock.advance(1)
        assert all(task.done() for task in tasks)
        assert bench.store.records == {}


async def test_a_store_whose_tokens_went_back_is_not_led_on_and_told_of() -> None:
    """Trial: the fencing token forgets. Never a lower number silently."""
    async with benches("worker-1") as [bench]:
        bench.store.last_token = 100
        first = await bench.acquire()
        await bench.keeper.release(first)
        bench.store.last_token = 49
        waiting = bench.acquiring()
        await bench.clock.advance(20)
        assert not waiting.done()
        assert bench.log.level_of("lease_token_went_back") == "error"
        told = bench.log.named("lease_token_went_back")
        assert told[0] == {"name": "gc-leader", "token": 50, "last_token": 101}
        assert len(told) < 10
        assert not bench.held()
        bench.store.last_token = 200
        await ended(bench.clock, waiting, within_seconds=31)


async def test_tokens_need_not_rise_where_leases_are_assigned() -> None:
    """`fenced = False`: the same token again is no reason to wait."""
    backend = ScriptedLeases(MemoryStore(FakeClock()))
    backend.fenced = False
    bench = await Bench(backend=backend).begin()
    backend.after["acquire"] = lambda name: Lease(name, bench.ctx.holder, 1, TTL)

    tokens = []
    for _ in range(3):
        handle = await bench.acquire()
        tokens.append(handle.token)
        await bench.keeper.release(handle)
    await _stop(bench)

    assert tokens == [1, 1, 1]
    assert bench.log.named("lease_token_went_back") == []


# Cancelling.


@pytest.mark.parametrize("turns", range(0, 40, 2))
async def test_a_cancelled_acquire_strands_no_grant_whenever_that_is(turns: int) -> None:
    """Trial: cancelling the release strands the lock; the same for acquire. Cancelled at every turn of the
    loop, before, while and after the store has granted."""
    async with benches("worker-1") as [bench]:
        bench.backend.after["acquire"] = lambda: asyncio.sleep(0)
        task = bench.acquiring()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            await bench.keeper.release(task.result())
        await bench.clock.advance(5)
        assert not bench.held()
        assert (await bench.acquire()).lost is False


@pytest.mark.parametrize("turns", range(24))
async def test_a_failure_that_nobody_waits_for_any_more_is_no_complaint(turns: int) -> None:
    """Cancelled at every turn of the loop, the one in which the call has failed among them."""
    async with benches("worker-1") as [bench]:
        bench.backend.before["acquire"] = fails()
        task = bench.acquiring()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await settle()
        del task
        gc.collect()  # then the event loop complains of errors that nobody has seen


async def test_a_grant_whose_answer_is_on_its_way_is_given_back_with_its_token() -> None:
    """So that a release that is late cannot hit a later grant."""
    async with benches("worker-1", "worker-2") as [first, second]:
        first.backend.after["acquire"] = hangs
        task = first.acquiring()
        await settle()
        assert first.held()
        task.cancel()
        del first.backend.after["acquire"]
        await settle()
        assert first.backend.asked("release") == [("gc-leader", 1)]
        await second.acquire()


async def test_a_grant_in_doubt_is_given_back_also_when_nobody_waits_for_the_answer_any_more() -> None:
    """The try that got it failed, and the candidate gives up between two tries."""
    async with benches("worker-1") as [bench]:
        bench.backend.after["acquire"] = fails()
        task = bench.acquiring()
        await settle()
        assert bench.held()
        task.cancel()
        del bench.backend.after["acquire"]
        await settle()
        assert not bench.held()


async def test_a_refusal_ends_the_doubt() -> None:
    """No release is sent for what is somebody else's."""
    async with benches("worker-1", "worker-2") as [first, second]:
        await first.acquire()
        second.backend.before["acquire"] = fails()
        task = second.acquiring()
        await settle()
        del second.backend.before["acquire"]
        await first.clock.advance(1)
        task.cancel()
        await first.clock.advance(1)
        assert second.backend.asked("release") == []


async def test_a_new_candidate_waits_until_the_doubt_of_the_last_one_is_settled() -> None:
    """Else the settling could release what the new one was just granted."""
    async with benches("worker-1") as [bench]:
        bench.backend.after["acquire"] = hangs
        task = bench.acquiring()
        await settle()
        task.cancel()
        await settle()
        waiting = bench.acquiring()
        await bench.clock.advance(CALL - 0.1)
        assert len(bench.backend.asked("acquire")) == 2, "of which one is the settling"
        del bench.backend.after["acquire"]
        await ended(bench.clock, waiting, within_seconds=2)
        assert bench.held()
        await bench.clock.advance(TTL)
        assert not (await waiting).lost


async def test_a_new_candidate_is_not_granted_what_is_about_to_be_given_back() -> None:
    """The settling has failed once and will be tried again: what it finds then must not be led under."""
    async with benches("worker-1") as [bench]:
        bench.backend.after["acquire"] = hangs
        task = bench.acquiring()
        await settle()
        del bench.backend.after["acquire"]
        bench.backend.before["acquire"] = fails()
        task.cancel()
        await settle()
        del bench.backend.before["acquire"]
        waiting = bench.acquiring()
        await settle()
        assert not waiting.done()
        await ended(bench.clock, waiting, within_seconds=2)
        handle = await waiting
        assert (handle.token, bench.backend.asked("release")) == (2, [("gc-leader", 1)])
        await bench.clock.advance(TTL)
        assert not handle.lost


async def test_a_second_cancellation_loses_nothing() -> None:
    """While the first one is still being cleaned up after."""
    async with benches("worker-1") as [bench]:
        unwinding = asyncio.Event()

        async def unwind_slowly() -> None:
            try:
                await hangs()
            finally:
                await unwinding.wait()

        bench.backend.after["acquire"] = unwind_slowly
        task = bench.acquiring()
        await settle()
        task.cancel()
        await settle()
        task.cancel()
        await settle()
        assert task.cancelled()
        del bench.backend.after["acquire"]
        unwinding.set()
        await bench.clock.advance(5)
        assert not bench.held()


async def test_a_release_goes_on_when_whoever_waits_for_it_is_cancelled() -> None:
    """Trial: cancelling the release strands the lock."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        first.backend.before["release"] = lambda: first.clock.sleep(2)
        releasing = asyncio.create_task(first.keeper.release(handle))
        await settle()
        releasing.cancel()
        await asyncio.wait({releasing})
        assert releasing.cancelled()
        await first.clock.advance(2)
        await second.acquire()


async def test_a_release_that_fails_is_repeated_until_the_store_has_it() -> None:
    """Trial: cancelling the release strands the lock. A link that was cut is no release."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["release"] = fails()
        releasing = asyncio.create_task(bench.keeper.release(handle))
        await ended(bench.clock, releasing, within_seconds=CALL + 0.1)
        assert bench.held()
        assert handle.state is LeaseState.RELEASED
        del bench.backend.before["release"]
        await bench.clock.advance(5)
        assert not bench.held()


async def test_a_repeated_release_does_not_take_the_place_of_a_later_one() -> None:
    async with benches("worker-1") as [bench]:
        old = await bench.acquire()
        await bench.keeper.release(old)
        new = await bench.acquire()
        bench.backend.before["release"] = fails()
        releasing = [asyncio.create_task(bench.keeper.release(handle)) for handle in (new, old)]
        await bench.clock.advance(CALL)
        assert all(task.done() for task in releasing)
        del bench.backend.before["release"]
        await bench.clock.advance(10)
        assert not bench.held()


async def test_five_hundred_interrupted_runs_leave_no_lease() -> None:
    """Trial: after 500 such stops no lease is left."""
    async with benches("worker-1") as [bench]:
        for number in range(500):
            task = bench.acquiring(f"gc-leader-{number % 7}")
            for _ in range(number % 23):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                releasing = asyncio.create_task(bench.keeper.release(task.result()))
                for _ in range(1 + number % 5):
                    await asyncio.sleep(0)
                releasing.cancel()
                await asyncio.wait({releasing})
        await bench.clock.advance(1)
        assert [name for name in bench.store.records if bench.owner(name)] == []
        assert bench.keeper.held() == []


async def test_a_store_that_never_takes_a_release_does_not_keep_us_from_the_lease_for_ever() -> None:
    """Once the lease has run out, it is a new one that is asked for."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["release"] = fails()
        releasing = asyncio.create_task(bench.keeper.release(handle))
        await ended(bench.clock, releasing, within_seconds=CALL + 0.1)
        waiting = bench.acquiring()
        await ended(bench.clock, waiting, within_seconds=3 * TTL)
        assert (await waiting).token > handle.token
        del bench.backend.before["release"]
        await bench.clock.advance(40)
        assert bench.held(), "the release that got through at last was of the earlier grant"


# Draining and stopping.


async def test_nothing_is_asked_for_after_the_decision_to_stop() -> None:
    async with benches("worker-1") as [bench]:
        waiting = bench.acquiring()
        bench.keeper.drain()
        later = bench.acquiring("lifecycle-leader")
        await bench.clock.advance(60)
        assert bench.backend.asked("acquire") == []
        assert not waiting.done()
        assert not later.done()


async def test_candidates_in_line_for_their_turn_at_the_store_do_not_ask_after_the_decision() -> None:
    async with benches("worker-1") as [bench]:
        bench.backend.before["acquire"] = hangs
        for number in range(3 * CONCURRENT_ACQUIRES):
            bench.acquiring(f"gc-leader-{number}")
        await settle()
        bench.keeper.drain()
        await bench.clock.advance(2 * CALL)
        assert len(bench.backend.asked("acquire")) == CONCURRENT_ACQUIRES


async def test_what_is_granted_after_the_decision_to_stop_is_given_back() -> None:
    """Trial: a polite stop looks like a crash to the others; while an acquire is in flight."""
    async with benches("worker-1", "worker-2") as [first, second]:
        answer = asyncio.Event()
        first.backend.after["acquire"] = arrives(answer)
        waiting = first.acquiring()
        await settle()
        first.keeper.drain()
        answer.set()
        await settle()
        assert not waiting.done()
        assert first.backend.asked("release") == [("gc-leader", 1)]
        await second.acquire()


async def test_a_stop_while_an_acquire_is_in_flight_gives_back_what_it_gets() -> None:
    """Trial: a polite stop looks like a crash to the others; the reply is delayed past the stop."""
    async with benches("worker-1", "worker-2") as [first, second]:
        first.backend.after["acquire"] = hangs
        waiting = first.acquiring()
        await settle()
        assert first.held()
        first.keeper.drain()
        waiting.cancel()
        stopping = asyncio.create_task(first.keeper.stop())
        await settle()
        assert stopping.done()
        assert set(first.backend.asked("release")) == {("gc-leader", None)}
        await second.acquire()


async def test_a_stop_waits_for_releases_under_way() -> None:
    """Trial: a polite stop looks like a crash to the others."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        first.backend.before["release"] = lambda: first.clock.sleep(1)
        releasing = asyncio.create_task(first.keeper.release(handle))
        await settle()
        releasing.cancel()
        stopping = asyncio.create_task(first.keeper.stop())
        took = await ended(first.clock, stopping, within_seconds=1.1)
        assert took >= 0.9
        await second.acquire()


async def test_a_stop_that_is_cancelled_twice_ends_all_the_same_and_loses_no_release() -> None:
    """Trial: two signals in a row do not lose the release."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        first.backend.before["release"] = lambda: first.clock.sleep(1)
        releasing = asyncio.create_task(first.keeper.release(handle))
        stopping = asyncio.create_task(first.keeper.stop())
        for _ in range(2):
            await settle()
            stopping.cancel()
        await ended(first.clock, stopping, within_seconds=1.1)
        assert stopping.cancelled()
        assert first.backend.asked("stop") == [None]
        assert releasing.done()
        await second.acquire()


@pytest.mark.parametrize("ignoring", [False, True])
@pytest.mark.parametrize("state", ["starting", "held", "waiting", "asking", "releasing", "abandoned", "all"])
async def test_a_stop_ends_in_bounded_time_when_the_store_hangs(state: str, ignoring: bool) -> None:
    """Trial: no timeout unless you ask for one; with calls that ignore their cancellation, too."""
    stuck = asyncio.Event()

    async def hang() -> None:
        while not stuck.is_set():
            try:
                await stuck.wait()
            except asyncio.CancelledError:
                if not ignoring:
                    raise
        raise ConnectionError

    bench = Bench()
    ops = ("start", "acquire", "renew", "release", "wait", "list", "stop")
    if state == "starting":
        bench.backend.before.update(dict.fromkeys(ops, hang))
    await bench.begin()
    tasks: list[asyncio.Task[Any]] = []
    handles: list[LeaseHandle] = []
    if state in ("held", "releasing", "abandoned", "all"):
        handles = [await bench.acquire(name) for name in ("a", "b", "c")]
    other = Bench("worker-2", beside=bench)
    await other.begin()
    if state in ("waiting", "all"):
        await other.acquire("d")
    bench.backend.before.update(dict.fromkeys(ops, hang))
    if state in ("waiting", "all"):
        del bench.backend.before["acquire"]
        tasks.append(bench.acquiring("d"))
        await settle()
        bench.backend.before["acquire"] = hang
    if state in ("asking", "starting", "all"):
        tasks.append(bench.acquiring("e"))
    if state in ("releasing", "all"):
        tasks.append(asyncio.create_task(bench.keeper.release(handles[0])))
    if state in ("abandoned", "all"):
        bench.keeper.abandon(handles[1])
    await bench.clock.advance(PERIOD + 1 if state in ("held", "all") else 0)
    for task in tasks:
        task.cancel()
    stopping = asyncio.create_task(bench.keeper.stop())
    began = asyncio.get_running_loop().time()
    while not stopping.done():
        await bench.clock.advance(0.5)
        await asyncio.sleep(0.05)  # what ignores its cancellation is left alone after a second of real time
        if asyncio.get_running_loop().time() - began > 60:
            stuck.set()  # else the event loop would wait for it for ever
            pytest.fail("the stop has no end")
    stopping.result()
    assert bench.backend.asked("stop") == [None]
    await asyncio.wait(tasks) if tasks else None
    stuck.set()
    await _stop(other)
    await settle()
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []


async def test_a_stop_before_the_start_and_a_second_one_do_no_harm() -> None:
    bench = Bench()
    await _stop(bench)
    await _stop(bench)
    assert bench.backend.asked("stop") == [None]
    with pytest.raises(RuntimeError, match="started once"):
        bench.keeper.start()


async def test_a_keeper_is_started_once() -> None:
    async with benches("worker-1") as [bench]:
        with pytest.raises(RuntimeError, match="started once"):
            bench.keeper.start()


async def test_a_run_that_outlives_the_stop_is_told_and_its_lease_runs_out() -> None:
    """Its lease is not given back: it may still be at work."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        told = asyncio.create_task(handle.wait_lost())
        waiting = second.acquiring()
        await settle()
        await first.keeper.stop()
        await settle()
        assert told.done()
        assert handle.state is LeaseState.ABANDONED
        assert first.log.level_of("lease_abandoned") == "error"
        assert not waiting.done()
        took = await ended(first.clock, waiting, within_seconds=TTL + 1)
        assert took >= TTL - 0.1
        await first.keeper.release(handle)
        assert first.backend.asked("release") == []


async def test_an_error_of_the_backend_while_it_stops_is_logged_and_no_more() -> None:
    bench = Bench()
    await bench.begin()
    bench.backend.before["stop"] = fails(SystemExit(3))
    await _stop(bench)
    assert bench.log.named("lease_backend_stop_failed") == [{"error": "SystemExit: 3"}]


# The loops.


class BrokenLogger(RecordingLogger):
    """A full disk."""

    broken = True

    def info(self, event: str, **fields: Any) -> None:
        super().info(event, **fields)
        if self.broken:
            raise OSError(28, "No space left on device")

    warning = error = debug = info


async def test_a_logger_that_fails_costs_no_lease() -> None:
    bench = Bench()
    bench.log = BrokenLogger()
    bench = _with_logger(bench)
    bench.backend.before["start"] = fails()
    await bench.begin()
    del bench.backend.before["start"]
    await bench.clock.advance(1)
    handle = await bench.acquire()
    lost = await bench.acquire("lifecycle-leader")
    del bench.store.records["lifecycle-leader"]
    await bench.clock.advance(3 * TTL)
    assert not handle.lost
    assert lost.state is LeaseState.LOST
    await bench.keeper.release(handle)
    await bench.keeper.release(lost)
    assert bench.store.records == {}
    await _stop(bench)


async def test_a_loop_goes_on_after_whatever_happened_in_it() -> None:
    """A loop that died would cost every lease, and nobody would be told."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        lost = await bench.acquire("lifecycle-leader")
        count = bench.metrics.lost.inc

        def fail() -> None:
            bench.metrics.lost.inc = count  # type: ignore[method-assign]  # as it was
            raise ZeroDivisionError

        bench.metrics.lost.inc = fail  # type: ignore[method-assign, assignment]  # something that cannot fail
        del bench.store.records["lifecycle-leader"]
        await bench.clock.advance(PERIOD)
        assert lost.state is LeaseState.LOST, "who is concerned was told before anything could fail"
        assert [line["error"] for line in bench.log.named("lease_loop_failed")] == ["ZeroDivisionError"]
        assert bench.log.level_of("lease_loop_failed") == "error"
        await bench.clock.advance(3 * TTL)
        assert not handle.lost
        bench.backend.before["renew"] = fails()
        await bench.clock.advance(DEADLINE + PERIOD)
        assert handle.state is LeaseState.LOST


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), RecursionError()]
)
@pytest.mark.parametrize("op", ["acquire", "renew", "release", "wait", "list"])
async def test_no_error_of_a_backend_is_more_than_a_call_that_failed(op: str, error: BaseException) -> None:
    async with benches("worker-1", "worker-2") as [bench, other]:
        handle = await bench.acquire()
        await other.acquire("lifecycle-leader")
        bench.backend.before[op] = fails(error)
        tasks: list[asyncio.Task[Any]] = [bench.acquiring("lifecycle-leader")]
        if op == "list":
            with pytest.raises(CallError):
                await bench.keeper.list()
        elif op == "release":
            tasks.append(asyncio.create_task(bench.keeper.release(handle)))
        await bench.clock.advance(PERIOD + 0.1)
        assert (bench.value("drakkar_lease_errors_total", op=op) or 0) >= 1
        del bench.backend.before[op]
        await bench.clock.advance(TTL)
        assert handle.lost is (op == "release")
        assert bench.log.named("lease_loop_failed") == []


async def test_the_same_call_is_not_made_again_while_an_earlier_one_ignores_its_end() -> None:
    """A late answer of the first could undo what the second did, and such calls would pile up."""
    async with benches("worker-1") as [bench]:
        stuck = asyncio.Event()
        running = 0

        async def ignore() -> None:
            nonlocal running
            running += 1
            assert running == 1
            while not stuck.is_set():
                try:
                    await stuck.wait()
                except asyncio.CancelledError:
                    continue
            running -= 1

        bench.backend.before["acquire"] = ignore
        waiting = bench.acquiring()
        await bench.clock.advance(CALL)
        await asyncio.sleep(1.1)  # how long a call may take to unwind, in real time
        await bench.clock.advance(60)
        assert running == 1
        stuck.set()
        await ended(bench.clock, waiting, within_seconds=31)


async def test_every_wait_is_ended_that_overstays() -> None:
    async with benches("worker-1", "worker-2") as [first, second]:
        await first.acquire()
        second.backend.before["wait"] = hangs
        second.acquiring()
        await first.clock.advance(WAIT_SECONDS + WAIT_SLACK_SECONDS + 2)
        assert second.value("drakkar_lease_errors_total", op="wait") == 1
        assert len(second.backend.asked("wait")) == 2


# What it tells.


async def test_an_outage_is_a_few_lines() -> None:
    """Trial: alarms that cry too much or not at all. First, then at long intervals, then back."""
    async with benches("worker-1") as [bench]:
        await bench.acquire("lifecycle-leader")
        ops = ("acquire", "renew", "wait")
        bench.backend.before.update(dict.fromkeys(ops, fails()))
        for number in range(50):
            bench.acquiring(f"gc-leader-{number}")
        await bench.clock.advance(600)
        lines = bench.log.named("lease_call_failed")
        assert 2 <= len(lines) <= 2 * (600 / LOG_EVERY_SECONDS + 1)
        assert lines[0] == {"op": "acquire", "error": "ConnectionError: cut off", "suppressed": 0}
        assert max(line["suppressed"] for line in lines) > 10
        for op in ops:
            del bench.backend.before[op]
        await bench.clock.advance(60)
        back = {line["op"]: line["after_seconds"] for line in bench.log.named("lease_call_recovered")}
        assert len(back) == len(bench.log.named("lease_call_recovered"))
        assert 600 <= back["acquire"] <= 640


async def test_a_short_outage_soon_after_a_long_one_is_counted_not_told() -> None:
    async with benches("worker-1") as [bench]:
        await bench.acquire()
        for _ in range(3):
            bench.backend.before["renew"] = fails()
            await bench.clock.advance(PERIOD + 0.2)
            del bench.backend.before["renew"]
            await bench.clock.advance(2)
        assert len(bench.log.named("lease_call_failed")) == 1
        assert len(bench.log.named("lease_call_recovered")) == 1


async def test_the_listing_is_the_stores() -> None:
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        await first.clock.advance(2)
        [row] = await second.keeper.list()
        assert (row.name, row.holder, row.token) == ("gc-leader", first.ctx.holder, handle.token)
        assert (row.age_seconds, row.remaining_seconds) == (2, 28)


async def test_an_unreachable_store_is_an_error_and_no_empty_listing() -> None:
    """Trial: "store unreachable" is reported as "no peers"."""
    async with benches("worker-1") as [bench]:
        bench.backend.before["list"] = fails()
        with pytest.raises(CallError, match="ConnectionError: cut off"):
            await bench.keeper.list()
        bench.backend.before["list"] = hangs
        listing = asyncio.create_task(bench.keeper.list())
        await ended(bench.clock, listing, within_seconds=CALL + 0.1)
        with pytest.raises(CallError, match="no answer within 3 s"):
            listing.result()


async def test_listings_at_the_same_time_are_made_one_after_the_other() -> None:
    async with benches("worker-1") as [bench]:
        bench.backend.before["list"] = lambda: bench.clock.sleep(0.9)
        tasks = [asyncio.create_task(bench.keeper.list()) for _ in range(3)]
        await bench.clock.advance(2.7)
        assert [task.result() for task in tasks] == [[], [], []]


async def test_many_that_want_the_listing_of_a_store_that_hangs_are_told_so_in_time() -> None:
    async with benches("worker-1") as [bench]:
        bench.backend.before["list"] = hangs
        tasks = [asyncio.create_task(bench.keeper.list()) for _ in range(20)]
        await bench.clock.advance(CALL + 0.1)
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert {str(each) for each in told} == {f"no answer within {CALL:g} s"}
        del bench.backend.before["list"]
        assert await bench.keeper.list() == []


async def test_before_the_backend_has_started_there_is_no_listing() -> None:
    bench = Bench()
    bench.backend.before["start"] = hangs
    await bench.begin()
    with pytest.raises(CallError, match="the lease backend has not started"):
        await bench.keeper.list()
    await _stop(bench)


async def test_what_is_held_is_told_by_the_clock() -> None:
    """Trial: a leader that lost its lease is never told; what it says of itself is true at any moment."""
    async with benches("worker-1") as [bench]:
        handles = [await bench.acquire(name) for name in ("b", "a", "c")]
        await bench.keeper.release(handles[2])
        assert [handle.name for handle in bench.keeper.held()] == ["a", "b"]
        bench.clock.jump(DEADLINE)
        assert bench.keeper.held() == []


async def test_the_metrics_of_ten_thousand_names_are_bounded() -> None:
    async with benches("worker-1") as [bench]:
        for number in range(1100):
            handle = LeaseHandle(
                Lease(f"gc-leader-{number}", bench.ctx.holder, 1, TTL), bench.clock.elapsed(), bench.clock
            )
            bench.keeper._holding.add(handle)
        series = [
            sample
            for metric in bench.registry.collect()
            for sample in metric.samples
            if "held" in sample.name
        ]
        assert len(series) == 1024
        for handle in bench.keeper.held():
            bench.keeper._holding.remove(handle)


def _with_logger(bench: Bench) -> Bench:
    from drakkar.leases.keeper import LeaseKeeper

    bench.keeper = LeaseKeeper(
        bench.backend, bench.ctx, TIMING, clock=bench.clock, logger=bench.log, metrics=bench.metrics
    )
    return bench


async def _stop(bench: Bench) -> None:
    stopping = asyncio.create_task(bench.keeper.stop())
    await ended(bench.clock, stopping, within_seconds=20)
    stopping.result()
