"""The rules that make leases safe, as far as the keeper keeps them: one by one, by their numbers.

Rule 10 (a crash gives the lease away before the backoff) is the supervisor's, rule 12 (a shared session is
renewed before a grant) the backend's and its kit's; what core owes to them is here.
"""

import asyncio
import itertools

import pytest
from drakkar.errors import LeaseLost
from drakkar.leases.backend import Held, Lease, Renewal
from drakkar.leases.calls import WAIT_SLACK_SECONDS
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.handle import LeaseState
from drakkar.leases.keeper import LeaseKeeper
from drakkar.leases.wakeups import WAIT_SECONDS
from support.clock import settle
from support.lease_bench import DEADLINE, TIMING, TTL, Bench, arrives, benches, ended, fails, hangs

PERIOD = TIMING.period_seconds
CALL = TIMING.call_seconds


# Rule 1.


async def test_a_grant_counts_from_before_it_was_asked_for() -> None:
    """Rule 1: `sent_at` is read before the request that succeeded was sent."""
    async with benches("worker-1") as [bench]:
        sent_at = bench.clock.elapsed()
        bench.backend.after["acquire"] = lambda: bench.clock.sleep(2)
        acquiring = bench.acquiring()
        await bench.clock.advance(2)
        assert (await acquiring).deadline == sent_at + DEADLINE


async def test_a_renewal_counts_from_before_it_was_sent() -> None:
    """Rule 1: a reply that takes its time is not time gained."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.after["renew"] = lambda: bench.clock.sleep(2)
        sent_at = bench.clock.elapsed() + PERIOD
        await bench.clock.advance(PERIOD + 1.9)
        assert handle.deadline == sent_at - PERIOD + DEADLINE
        await bench.clock.advance(0.2)
        assert handle.deadline == sent_at + DEADLINE


async def test_past_its_deadline_a_lease_is_lost_whatever_the_store_says() -> None:
    """Rule 1: the store still has it for the margin; that does not count."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["renew"] = fails()
        await bench.clock.advance(DEADLINE - 0.001)
        assert not handle.lost
        await bench.clock.advance(0.001)
        assert handle.state is LeaseState.LOST
        assert bench.held()


async def test_an_answer_handled_after_the_old_deadline_is_ignored() -> None:
    """Rule 1: even if the timer has not fired yet."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        answer = asyncio.Event()
        bench.backend.after["renew"] = arrives(answer)
        await bench.clock.advance(PERIOD)
        bench.clock.jump(DEADLINE - PERIOD)
        answer.set()
        await settle()
        assert handle.lost
        assert handle.state is LeaseState.LOST


async def test_the_deadline_is_looked_at_once_a_second() -> None:
    """Rule 1: timers of the event loop stand still in suspend."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["renew"] = hangs
        told = asyncio.create_task(handle.wait_lost())
        await bench.clock.advance(5)
        bench.clock.suspend(100)
        await settle()
        assert not told.done()
        await ended(bench.clock, told, within_seconds=1)  # the timer of the deadline has 22 s left


async def test_a_renewal_is_not_late_by_a_short_suspend() -> None:
    """Rule 1: nor does the renewal sleep through what is left after one."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        await bench.clock.advance(5)
        bench.clock.suspend(DEADLINE - 5 - 2)
        await bench.clock.advance(1.1)
        assert handle.deadline > bench.clock.elapsed() + 20


async def test_a_grant_that_took_longer_than_it_lasts_is_given_back() -> None:
    """Rule 1: nobody leads on it, and nobody waits for it to run out."""
    async with benches("worker-1") as [bench]:
        answer = asyncio.Event()
        bench.backend.after["acquire"] = arrives(answer)
        acquiring = bench.acquiring()
        await settle()
        bench.clock.jump(DEADLINE)
        del bench.backend.after["acquire"]
        answer.set()
        await settle()
        handle = await acquiring
        assert bench.backend.asked("release") == [("gc-leader", 1)]
        assert handle.token == 2


# Rule 2.


async def test_a_renewal_that_fails_is_tried_again_before_the_deadline() -> None:
    """Rule 2: the lease is kept until then."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["renew"] = fails()
        await bench.clock.advance(DEADLINE - 1)
        assert len(bench.backend.asked("renew")) >= 5
        assert not handle.lost


async def test_a_renewal_that_took_all_its_time_for_nothing_is_made_up_for() -> None:
    """Rule 2: there is always time for another one."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["renew"] = hangs
        await bench.clock.advance(PERIOD + CALL)
        del bench.backend.before["renew"]
        await bench.clock.advance(2)
        assert handle.deadline > bench.clock.elapsed() + 20


async def test_a_lease_that_a_renewal_leaves_out_is_kept_and_asked_about_soon() -> None:
    """Rule 2: neither kept nor lost is unknown."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["renew"] = lambda _leases: Renewal()
        await bench.clock.advance(PERIOD)
        assert not handle.lost
        del bench.backend.before["renew"]
        await bench.clock.advance(1)
        assert handle.deadline > bench.clock.elapsed() + 20


async def test_one_unknown_among_many_does_not_hold_up_the_others() -> None:
    """Rule 2: each lease has its own fate."""
    async with benches("worker-1") as [bench]:
        known, unknown = await bench.acquire("gc-leader"), await bench.acquire("lifecycle-leader")
        bench.backend.before["renew"] = lambda leases: Renewal(kept=leases[:1])
        await bench.clock.advance(DEADLINE)
        assert unknown.state is LeaseState.LOST
        assert not known.lost


async def test_a_lease_that_the_store_calls_lost_is_lost_at_once() -> None:
    """Rule 2: not at its deadline."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        told = asyncio.create_task(handle.wait_lost())
        bench.store.records.clear()
        await bench.clock.advance(PERIOD)
        assert told.done()
        assert handle.state is LeaseState.LOST
        assert bench.log.named("lease_lost") == [
            {"name": "gc-leader", "token": 1, "reason": "the store says that it is not ours any more"}
        ]


@pytest.mark.parametrize("verdict", ["kept", "lost"])
async def test_an_answer_about_a_lease_that_was_replaced_is_ignored(verdict: str) -> None:
    """Rule 2: results for leases released or replaced meanwhile are ignored."""
    async with benches("worker-1") as [bench]:
        old = await bench.acquire()
        answer: asyncio.Event = asyncio.Event()

        async def late(leases: list[Lease]) -> Renewal:
            await answer.wait()
            return Renewal(**{verdict: leases})

        bench.backend.before["renew"] = late
        await bench.clock.advance(PERIOD)
        await bench.keeper.release(old)
        new = await bench.acquire()
        deadline = new.deadline
        answer.set()
        await settle()
        assert (new.state, new.deadline) == (LeaseState.HELD, deadline)
        assert old.state is LeaseState.RELEASED
        assert bench.log.named("lease_lost") == []
        del bench.backend.before["renew"]


# Rule 3.


async def test_whoever_works_under_a_lost_lease_is_told_at_once() -> None:
    """Rule 3: on loss the runner is cancelled at once; the keeper's part is to tell."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        told = asyncio.create_task(handle.wait_lost())
        bench.backend.before["renew"] = fails()
        await bench.clock.advance(DEADLINE - 0.001)
        assert not told.done()
        await bench.clock.advance(0.001)
        assert told.done()


async def test_a_lease_is_renewed_until_it_is_released() -> None:
    """Rule 3: also during the clean-up after a cancellation, however long that is, and never released by
    itself."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        waiting = second.acquiring()
        await first.clock.advance(10 * TTL)
        assert not handle.lost
        assert not waiting.done()
        assert first.backend.asked("release") == []


async def test_a_lost_lease_is_given_back_only_when_its_run_has_ended() -> None:
    """Rule 3: loss is no release. Where siblings keep a shared lease alive, the name stays ours till then."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["renew"] = fails()
        await bench.clock.advance(DEADLINE + 100)
        assert handle.state is LeaseState.LOST
        assert bench.backend.asked("release") == []
        await bench.keeper.release(handle)
        assert bench.backend.asked("release") == [("gc-leader", handle.token)]


async def test_an_abandoned_lease_is_not_renewed() -> None:
    """Rule 3: and `wait_lost` and `check` tell of it."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.keeper.abandon(handle)
        await bench.clock.advance(3 * PERIOD)
        assert bench.backend.asked("renew") == []
        assert handle.lost
        await handle.wait_lost()


async def test_an_abandoned_lease_is_given_back_a_ttl_after_its_last_renewal() -> None:
    """Rule 3: no earlier, and with its token."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        await bench.clock.advance(PERIOD + 1)
        bench.keeper.abandon(handle)
        await bench.clock.advance(TTL - 1 - 0.001)
        assert bench.backend.asked("release") == []
        await bench.clock.advance(0.001)
        assert bench.backend.asked("release") == [("gc-leader", handle.token)]


async def test_a_process_does_not_take_a_name_whose_run_has_not_ended() -> None:
    """Rule 3: not an abandoned one, not a lost one, however free it is in the store."""
    async with benches("worker-1") as [bench]:
        for end in ("abandon", "lose"):
            handle = await bench.acquire()
            if end == "abandon":
                bench.keeper.abandon(handle)
            else:
                bench.store.records.clear()
            waiting = bench.acquiring()
            await bench.clock.advance(3 * TTL)
            assert handle.lost
            assert not waiting.done()
            await bench.keeper.release(handle)
            await settle()
            again = await waiting
            assert again.token > handle.token
            await bench.keeper.release(again)


async def test_another_process_takes_an_abandoned_lease() -> None:
    """Rule 3: within a ttl, and not before."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        waiting = second.acquiring()
        await settle()
        first.keeper.abandon(handle)
        took = await ended(first.clock, waiting, within_seconds=TTL + 1)
        assert took >= TTL - 0.1


# Rule 4.


async def test_a_process_that_was_frozen_does_not_act_on_waking() -> None:
    """Rule 4: `check` raises before anything in the event loop could have run."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        first.clock.jump(TTL)
        assert handle.state is LeaseState.HELD
        with pytest.raises(LeaseLost):
            handle.check()
        assert (await second.acquire()).token > handle.token


# Rule 5.


async def test_no_run_starts_on_a_token_that_an_earlier_one_had() -> None:
    """Rule 5: core releases and acquires again."""
    async with benches("worker-1") as [bench]:
        first = await bench.acquire()
        bench.backend.before["release"] = lambda: True  # the store never hears of it
        await bench.keeper.release(first)
        assert bench.held()
        waiting = bench.acquiring()
        await settle()
        del bench.backend.before["release"]
        await ended(bench.clock, waiting, within_seconds=3)
        second = await waiting
        assert second.token > first.token
        assert len(bench.backend.asked("acquire")) >= 3


async def test_a_token_that_was_given_back_without_a_run_is_not_run_on_either() -> None:
    """Rule 5: its release may still be on its way."""
    async with benches("worker-1") as [bench]:
        bench.backend.after["acquire"] = hangs
        task = bench.acquiring()
        await settle()
        task.cancel()
        bench.backend.before["release"] = lambda: True
        del bench.backend.after["acquire"]
        await settle()
        assert bench.backend.asked("release") == [("gc-leader", 1)]
        waiting = bench.acquiring()
        await settle()
        del bench.backend.before["release"]
        await ended(bench.clock, waiting, within_seconds=3)
        assert (await waiting).token == 2


# Rule 6.


async def test_a_release_hands_the_lease_over_at_once() -> None:
    """Rule 6: a clean release wakes the waiters. No time passes."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        waiting = second.acquiring()
        await first.clock.advance(1)
        releasing = asyncio.create_task(first.keeper.release(handle))
        await settle()
        assert releasing.done()
        assert waiting.done()
        assert (await waiting).token > handle.token


# Rule 7.


async def test_a_refused_candidate_asks_again_when_the_store_said() -> None:
    """Rule 7: `retry_after_seconds` plus jitter."""
    async with benches("worker-1") as [bench]:
        bench.backend.before.update(acquire=lambda: Held("worker-2/1", 12.0), wait=hangs)
        bench.acquiring()
        await bench.clock.advance(12 - 0.001)
        assert len(bench.backend.asked("acquire")) == 1
        await bench.clock.advance(0.501)
        assert len(bench.backend.asked("acquire")) == 2


async def test_a_refused_candidate_asks_again_after_the_usual_time_if_the_store_cannot_tell() -> None:
    """Rule 7: None means `retry_seconds`."""
    async with benches("worker-1") as [bench]:
        bench.backend.before.update(acquire=Held, wait=hangs)
        bench.acquiring()
        await bench.clock.advance(5 - 0.001)
        assert len(bench.backend.asked("acquire")) == 1
        await bench.clock.advance(0.501)
        assert len(bench.backend.asked("acquire")) == 2


async def test_candidates_do_not_ask_all_at_the_same_moment() -> None:
    """Rule 7: many candidates never stampede."""
    async with benches("worker-1") as [bench]:
        times: dict[str, list[float]] = {}

        def refuse(name: str) -> Held:
            times.setdefault(name, []).append(bench.clock.elapsed())
            return Held(None, 10.0)

        bench.backend.before.update(acquire=refuse, wait=hangs)
        for number in range(50):
            bench.acquiring(f"gc-leader-{number}")
        await bench.clock.advance(11)
        seconds = {asked[1] for asked in times.values()}
        assert len(seconds) == 50
        assert max(seconds) - min(seconds) > 0.3


async def test_a_store_that_is_down_is_left_alone_for_longer_and_longer() -> None:
    """Rule 7: growing jittered delays, half a minute at most."""
    async with benches("worker-1") as [bench]:
        times: list[float] = []

        def fail() -> None:
            times.append(bench.clock.elapsed())
            raise ConnectionError

        bench.backend.before["acquire"] = fail
        bench.acquiring()
        await bench.clock.advance(300)
        delays = [later - earlier for earlier, later in itertools.pairwise(times)]
        for number, delay in enumerate(delays):
            longest = min(30.0, 0.25 * 2**number)
            assert 0.5 * longest - 1e-6 <= delay <= longest + 1e-6
        assert len(delays) > 12


# Rule 8.


async def test_the_number_of_calls_does_not_grow_with_the_leases() -> None:
    """Rule 8: a fixed number of requests per process and period renews all and checks each."""
    counts = []
    for number_of_leases in (1, 200):
        async with benches("worker-1") as [bench]:
            for number in range(number_of_leases):
                await bench.acquire(f"gc-leader-{number}")
            bench.backend.calls.clear()
            await bench.clock.advance(6 * PERIOD + 0.1)
            assert {op for op, _ in bench.backend.calls} == {"renew"}
            assert all(len(leases) == number_of_leases for leases in bench.backend.asked("renew"))
            counts.append(len(bench.backend.calls))
    assert counts == [6, 6]


async def test_candidates_share_one_wait() -> None:
    """Rule 8: one `wait` per backend for all wanted names."""
    async with benches("worker-1", "worker-2") as [first, second]:
        names = [f"gc-leader-{number}" for number in range(100)]
        for name in names:
            await first.acquire(name)
            second.acquiring(name)
        await settle()
        await first.clock.advance(1)
        assert second.backend.asked("wait")[-1] == frozenset(names)
        before = len(second.backend.asked("wait"))
        assert before < 20
        await first.clock.advance(WAIT_SECONDS * 4)
        assert len(second.backend.asked("wait")) - before <= 5


# Rule 9.


async def test_three_endings_have_three_names() -> None:
    """Rule 9: lost, abandoned, released."""
    async with benches("worker-1") as [bench]:
        lost, abandoned, released = [await bench.acquire(name) for name in ("a", "b", "c")]
        del bench.store.records["a"]
        bench.keeper.abandon(abandoned)
        await bench.keeper.release(released)
        await bench.clock.advance(PERIOD)
        for handle in (lost, abandoned):  # their runs have ended by now; that is no fourth ending
            await bench.keeper.release(handle)
        states = (lost.state, abandoned.state, released.state)
        assert states == (LeaseState.LOST, LeaseState.ABANDONED, LeaseState.RELEASED)
        for event, name in (("lease_lost", "a"), ("lease_abandoned", "b"), ("lease_released", "c")):
            assert [line["name"] for line in bench.log.named(event)] == [name]
        assert bench.value("drakkar_lease_lost_total") == 1
        assert bench.value("drakkar_lease_abandoned_total") == 1


async def test_a_release_may_be_repeated() -> None:
    """Rule 9: it gives nothing back that came later, and says nothing twice."""
    async with benches("worker-1") as [bench]:
        old = await bench.acquire()
        await bench.keeper.release(old)
        await bench.keeper.release(old)
        new = await bench.acquire()
        await bench.keeper.release(old)
        assert not new.lost
        assert bench.held()
        assert len(bench.log.named("lease_released")) == 1


# Rules 10 to 13, as far as they are the keeper's.


async def test_a_lease_that_was_given_back_is_anybodys_while_this_process_does_not_ask() -> None:
    """Rule 10: a crash gives the lease away before the backoff, so that another worker does the work."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        waiting = second.acquiring()
        await settle()
        await first.keeper.release(handle)
        await settle()
        assert waiting.done()


@pytest.mark.parametrize("ttl_seconds", [0.0, -5.0, float("nan"), None, "30", True])
async def test_a_renewal_without_a_ttl_is_none(ttl_seconds: float) -> None:
    """Rule 11: success with a failure inside is a failure."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        deadline = handle.deadline
        bench.backend.before["renew"] = lambda leases: Renewal(
            kept=[Lease(lease.name, lease.holder, lease.token, ttl_seconds) for lease in leases]
        )
        await bench.clock.advance(PERIOD)
        assert handle.deadline <= deadline
        await bench.clock.advance(DEADLINE - PERIOD)
        assert handle.state is LeaseState.LOST


async def test_a_refusal_that_shows_ourselves_is_no_refusal() -> None:
    """Rule 11: a "no" that shows our own holder may be a "yes": it is asked again, and given back if need
    be."""
    async with benches("worker-1") as [bench]:
        bench.backend.after["acquire"] = lambda: Held(bench.ctx.holder, 25.0)
        waiting = bench.acquiring()
        await settle()
        assert bench.held()
        assert not waiting.done()
        del bench.backend.after["acquire"]
        await ended(bench.clock, waiting, within_seconds=1)
        bench.backend.after["acquire"] = lambda: Held(bench.ctx.holder, 25.0)
        other = bench.acquiring("lifecycle-leader")
        await settle()
        assert bench.held("lifecycle-leader")
        other.cancel()
        await settle()
        del bench.backend.after["acquire"]
        await bench.clock.advance(1)
        assert not bench.held("lifecycle-leader")


async def test_a_grant_may_be_for_less_than_was_asked_for() -> None:
    """Rule 12: a grant onto an old session has only what is left of it. Rule 14: period and time limit follow
    the shortest lease, at once."""
    async with benches("worker-1") as [bench]:
        await bench.acquire("a")
        bench.backend.after["acquire"] = lambda name: Lease(
            name, bench.ctx.holder, bench.store.records[name].token, 6.0
        )
        bench.backend.after["renew"] = lambda leases: Renewal(
            kept=[Lease(lease.name, lease.holder, lease.token, 6.0) for lease in leases]
        )
        handle = await bench.acquire("b")
        assert handle.deadline == bench.clock.elapsed() + 5.4
        await bench.clock.advance(60)
        assert not handle.lost
        renewals = len(bench.backend.asked("renew"))
        assert 29 <= renewals <= 31, "every two seconds"


async def test_a_grant_never_counts_for_more_than_was_asked_for() -> None:
    """Rule 12: whatever the store says; less is safe."""
    async with benches("worker-1") as [bench]:
        bench.backend.after["acquire"] = lambda name: Lease(name, bench.ctx.holder, 1, 1e6)
        handle = await bench.acquire()
        assert handle.deadline == bench.clock.elapsed() + DEADLINE


async def test_a_record_that_nobody_can_read_is_held() -> None:
    """Rule 13: garbage counts as held, for every contender."""
    async with benches("worker-1", "worker-2") as both:
        for bench in both:
            bench.backend.before.update(acquire=lambda: Held(None, None), wait=hangs)
        waiting = [bench.acquiring() for bench in both]
        await both[0].clock.advance(100)
        assert not any(task.done() for task in waiting)
        for bench in both:
            del bench.backend.before["acquire"]
        await both[0].clock.advance(6)
        assert sum(task.done() for task in waiting) == 1


# Rule 14 is arithmetic: `test_deadline`.


async def test_no_call_may_use_up_the_lease() -> None:
    """Rule 14: the time limit of a call is a quarter of the ttl at most."""
    timing = LeaseTiming(ttl_seconds=4, renew_seconds=10, retry_seconds=1, timeout_seconds=60)
    async with benches("worker-1", timing=timing) as [bench]:
        await bench.acquire()
        bench.backend.before["renew"] = hangs
        bench.backend.before["acquire"] = hangs
        bench.acquiring("lifecycle-leader")
        await bench.clock.advance(0.99)
        assert bench.value("drakkar_lease_errors_total", op="acquire") == 0
        await bench.clock.advance(0.02)
        assert bench.value("drakkar_lease_errors_total", op="acquire") == 1
        await bench.clock.advance(4 / 3 + 0.01)
        assert bench.value("drakkar_lease_errors_total", op="renew") == 1


# Rule 15.


async def test_nothing_leads_until_the_backend_has_started() -> None:
    """Rule 15: a lease backend that cannot start is retried."""
    bench = Bench()
    bench.backend.before["start"] = fails(OSError("no such folder"))
    await bench.begin()
    waiting = bench.acquiring()
    await bench.clock.advance(60)
    assert not waiting.done()
    assert bench.backend.asked("acquire") == []
    assert str(bench.keeper.problem) == "OSError: no such folder"
    tries = len(bench.backend.asked("start"))
    assert 6 <= tries <= 12
    lines = bench.log.named("lease_backend_start_failed")
    assert [line["failures"] for line in lines] == [1, 2, 4, 8][: len(lines)]
    assert bench.log.level_of("lease_backend_start_failed") == "error"
    del bench.backend.before["start"]
    await ended(bench.clock, waiting, within_seconds=30)
    assert bench.keeper.problem is None
    [line] = bench.log.named("lease_backend_started")
    assert line["failures"] >= tries
    assert 60 <= line["after_seconds"] <= 90
    assert bench.log.level_of("lease_backend_started") == "info"
    await _stop(bench.keeper, bench)


async def test_a_backend_that_starts_at_once_is_no_event() -> None:
    bench = Bench()
    await bench.begin()
    await bench.clock.advance(1)
    assert bench.log.named("lease_backend_started") == []
    await _stop(bench.keeper, bench)


async def test_another_reason_why_the_backend_cannot_start_is_told_at_once() -> None:
    bench = Bench()
    bench.backend.before["start"] = fails(OSError("cannot connect"))
    await bench.begin()
    while len(bench.backend.asked("start")) < 5:
        await bench.clock.advance(0.1)
    bench.backend.before["start"] = fails(OSError("the token is refused"))
    await bench.clock.advance(40)
    lines = bench.log.named("lease_backend_start_failed")
    assert [line["failures"] for line in lines] == [1, 2, 4, 6, 8][: len(lines)]
    assert lines[3]["error"] == "OSError: the token is refused"
    await _stop(bench.keeper, bench)


async def test_what_a_backend_refuses_is_told_in_its_own_words_alone() -> None:
    """A `ValueError` is its way to speak to whoever configured it."""
    bench = Bench()
    bench.backend.before["start"] = fails(ValueError("the user lacks +get"))
    await bench.begin()
    await bench.clock.advance(1)
    assert bench.log.named("lease_backend_start_failed")[0]["error"] == "the user lacks +get"
    assert str(bench.keeper.problem) == "the user lacks +get"
    await _stop(bench.keeper, bench)


async def test_it_says_why_no_lease_can_be_had_while_the_store_is_away() -> None:
    bench = Bench()
    await bench.begin()
    await ended(bench.clock, bench.acquiring("gc-leader"), within_seconds=5)
    seen = [bench.keeper.problem]
    bench.backend.before.update(
        dict.fromkeys(("acquire", "renew", "wait", "list"), fails(OSError("cut off")))
    )
    waiting = bench.acquiring("lifecycle-leader")
    await bench.clock.advance(15)
    seen.append(bench.keeper.problem)
    bench.backend.before.clear()
    await bench.keeper.list()  # is asked all the same
    await ended(bench.clock, waiting, within_seconds=60)
    seen.append(bench.keeper.problem)
    assert seen == [None, "acquire: OSError: cut off", None]
    await _stop(bench.keeper, bench)


async def test_it_says_that_leases_are_local() -> None:
    """Rule 15: `memory`, and what else one host sees alone."""
    for local in (True, False):
        bench = Bench()
        bench.backend.local = local
        bench.keeper = LeaseKeeper(
            bench.backend, bench.ctx, TIMING, clock=bench.clock, logger=bench.log, metrics=bench.metrics
        )
        await bench.begin()
        assert len(bench.log.named("lease_scope_local")) == local
        await _stop(bench.keeper, bench)


# Rule 16.


@pytest.mark.parametrize("how", ["deleted", "overwritten"])
async def test_a_second_holder_is_possible_until_the_next_renewal_and_not_longer(how: str) -> None:
    """Rule 16: after an operator deletes or overwrites a record. Tokens are for that."""
    async with benches("worker-1", "worker-2") as [first, second]:
        old = await first.acquire()
        await first.clock.advance(1)
        del first.store.records["gc-leader"]
        if how == "overwritten":
            await second.backend.inner.acquire("gc-leader")
        new = await second.acquire()
        old.check()
        assert new.token > old.token
        told = asyncio.create_task(old.wait_lost())
        took = await ended(first.clock, told, within_seconds=PERIOD)
        assert took <= PERIOD - 1 + 0.2
        with pytest.raises(LeaseLost):
            old.check()
        assert not new.lost


def test_a_wait_is_ended_that_overstays() -> None:
    """Rule 2 goes for every call: none may hang for ever."""
    assert WAIT_SLACK_SECONDS == 5


async def _stop(keeper: LeaseKeeper, bench: Bench) -> None:
    stopping = asyncio.create_task(keeper.stop())
    await ended(bench.clock, stopping, within_seconds=20)
    stopping.result()
