"""What broke other people's fleets, as far as it can be tried in memory. Each test names its trial.

More of them are in `test_keeper`, where the moment matters, and in `test_model`, all at once.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from drakkar.leases.backend import Held, Lease, Renewal
from drakkar.leases.handle import LeaseHandle, LeaseState
from support.clock import FakeClock, settle
from support.lease_bench import DEADLINE, TIMING, TTL, Bench, benches, ended, fails, hangs

PERIOD = TIMING.period_seconds
CALL = TIMING.call_seconds


@dataclass
class Witness:
    """An append-only log in which each runner writes while it thinks that it leads."""

    lines: list[tuple[float, str, int]] = field(default_factory=list)

    def write(self, at: float, who: str, token: int) -> None:
        self.lines.append((at, who, token))

    def spans(self) -> list[tuple[float, float, str, int]]:
        """From when to when, who, on which token, in the order of their beginnings."""
        spans: dict[tuple[str, int], tuple[float, float]] = {}
        for at, who, token in self.lines:
            first, _ = spans.get((who, token), (at, at))
            spans[who, token] = first, at
        return sorted((first, last, who, token) for (who, token), (first, last) in spans.items())

    def expect_no_overlap(self) -> None:
        spans = self.spans()
        for (_, last, _, token), (first, _, _, next_token) in itertools.pairwise(spans):
            assert last < first, spans
            assert token < next_token, spans


class Runner:
    """Wants the lease for ever, writes to the witness while it has it, and looks before each line."""

    def __init__(self, bench: Bench, witness: Witness, clean_up_seconds: float = 0.0) -> None:
        self.bench = bench
        self.witness = witness
        self.clean_up_seconds = clean_up_seconds
        self.losses = 0
        self.paused = False
        self.handle: LeaseHandle | None = None
        self.task = asyncio.create_task(self._live(), name=f"acquiring as {bench.ctx.worker}")

    async def _live(self) -> None:
        while True:
            self.handle = handle = await self.bench.keeper.acquire("gc-leader")
            work = asyncio.create_task(self._work(handle))
            try:
                await handle.wait_lost()
                self.losses += 1
            finally:
                work.cancel()
                await asyncio.wait({work})
                self.handle = None
                await self.bench.keeper.release(handle)

    async def _work(self, handle: LeaseHandle) -> None:
        try:
            while not handle.lost:
                self.witness.write(self.bench.clock.elapsed(), self.bench.ctx.worker, handle.token)
                await self.bench.clock.sleep(0.05)
        finally:
            await self.bench.clock.sleep(self.clean_up_seconds)


@asynccontextmanager
async def a_leader_and_a_standby() -> AsyncIterator[tuple[Runner, Runner, Witness, FakeClock]]:
    witness = Witness()
    async with benches("worker-1", "worker-2") as [first, second]:
        leader = Runner(first, witness)
        await first.clock.advance(1)
        standby = Runner(second, witness)
        await first.clock.advance(1)
        assert leader.handle is not None
        assert standby.handle is None
        try:
            yield leader, standby, witness, first.clock
        finally:
            for runner in (leader, standby):
                runner.task.cancel()
                await ended(first.clock, runner.task, within_seconds=60)
            witness.expect_no_overlap()


def overwrite(bench: Bench) -> None:
    """As an operator does who writes another one's name into the record."""
    bench.store.records["gc-leader"].holder = "worker-3/1"


def delete(bench: Bench) -> None:
    del bench.store.records["gc-leader"]


def spoil(bench: Bench) -> None:
    """Garbage: held by nobody, free for nobody, until it has been there for a ttl."""
    bench.store.records["gc-leader"].holder = "\x00"
    bench.store.records["gc-leader"].token = -1


@pytest.mark.parametrize("how", [overwrite, delete, spoil])
async def test_a_leader_that_lost_its_lease_is_told(how: Callable[[Bench], None]) -> None:
    """Trial: a leader that lost its lease is never told. It stops within one renewal interval, once, and is a
    candidate again."""
    async with benches("worker-1") as [bench]:
        runner = Runner(bench, Witness())
        await bench.clock.advance(5)
        lost = runner.handle
        assert lost is not None
        how(bench)
        await bench.clock.advance(PERIOD)
        assert (lost.state, runner.losses) == (LeaseState.LOST, 1)
        await bench.clock.advance(TTL + 6)
        assert runner.losses == 1
        assert runner.handle is not None
        assert runner.handle.token > lost.token
        runner.task.cancel()


async def test_garbage_is_no_free_lease_for_two_takers() -> None:
    """Trial: a leader that lost its lease is never told; the record is garbage, and two want it."""
    async with benches("worker-1", "worker-2") as both:
        witness = Witness()
        await both[0].acquire()
        spoil(both[0])
        runners = [Runner(bench, witness) for bench in both]
        await both[0].clock.advance(3 * TTL)
        assert sum(runner.handle is not None for runner in runners) == 1
        witness.expect_no_overlap()
        for runner in runners:
            runner.task.cancel()
        await settle()


async def test_a_black_hole_costs_the_lease_by_the_holders_own_clock() -> None:
    """Trial: the renewal call outlives the lease. The leader stops before the standby's first line."""
    async with a_leader_and_a_standby() as (leader, standby, witness, clock):
        for op in ("acquire", "renew", "release"):
            leader.bench.backend.before[op] = hangs
        await clock.advance(2 * TTL)
        assert leader.losses == 1
        assert standby.handle is not None
        [old, new] = witness.spans()
        assert new[0] - old[1] >= 0.9 * (TTL - DEADLINE)
        assert new[0] - old[1] <= TTL - DEADLINE + 1


@pytest.mark.parametrize("what", ["dropped", "delayed"])
async def test_a_reply_that_is_late_gains_no_time(what: str) -> None:
    """Trial: the renewal call outlives the lease; the request is delivered at once, its reply delayed by 0.8
    x ttl, then cut. The leader stops at the send time of the last renewal it knows of + ttl - margin."""
    async with a_leader_and_a_standby() as (leader, _, witness, clock):
        handle = leader.handle
        assert handle is not None
        stops_at = handle.deadline
        late = (lambda: clock.sleep(0.8 * TTL)) if what == "delayed" else hangs
        leader.bench.backend.after["renew"] = late
        await clock.advance(DEADLINE)
        assert leader.losses == 1
        last = witness.spans()[0][1]
        assert stops_at - 0.1 <= last < stops_at


async def test_a_blocked_event_loop_never_leads_twice() -> None:
    """Trial: the job starves its own renewal. A blocking call of 2.5 x ttl, with a standby: the loss is
    noticed first thing afterwards, and neither process runs a lease twice."""
    async with a_leader_and_a_standby() as (leader, standby, witness, clock):
        old = leader.handle
        assert old is not None
        leader.bench.backend.before.update(renew=hangs)  # the process does not get to send anything
        clock.jump(2.5 * TTL)
        assert old.lost
        await clock.advance(1)
        assert (leader.losses, old.state) == (1, LeaseState.LOST)
        del leader.bench.backend.before["renew"]
        await clock.advance(TTL)
        assert (leader.handle is None) != (standby.handle is None)
        assert len({token for _, _, _, token in witness.spans()}) == len(witness.spans())


async def test_a_blocked_event_loop_alone_leads_again_on_a_new_token() -> None:
    """Trial: the job starves its own renewal; without a standby."""
    async with benches("worker-1") as [bench]:
        witness = Witness()
        runner = Runner(bench, witness)
        await bench.clock.advance(1)
        bench.clock.jump(2.5 * TTL)
        await bench.clock.advance(2)
        assert runner.losses == 1
        assert runner.handle is not None
        assert [token for _, _, _, token in witness.spans()] == [1, 2]
        witness.expect_no_overlap()
        runner.task.cancel()


@pytest.mark.parametrize("step_seconds", [3600.0, -3600.0, -600.0])
async def test_the_wall_clock_decides_nothing(step_seconds: float) -> None:
    """Trial: deciding staleness with two different clocks. No theft, no eternal lease."""
    async with a_leader_and_a_standby() as (leader, standby, _, clock):
        clock.step_wall(step_seconds)
        await clock.advance(300)
        assert leader.losses == 0
        assert standby.handle is None
        for op in ("acquire", "renew", "release"):
            leader.bench.backend.before[op] = hangs
        await clock.advance(TTL + CALL)
        assert standby.handle is not None


async def test_two_processes_of_one_name_are_two_holders() -> None:
    """Trial: two candidates with the same identity both lead. Only one leads, and neither renews or releases
    the other's lease."""
    async with benches("worker-1", "worker-1") as [first, second]:
        handle = await first.acquire()
        waiting = second.acquiring()
        await first.clock.advance(3 * TTL)
        assert not waiting.done()
        waiting.cancel()
        await first.clock.advance(5)
        assert not handle.lost
        assert first.held()
        assert second.keeper.held() == []


async def test_a_polite_stop_hands_over_at_once() -> None:
    """Trial: a polite stop looks like a crash to the others. The standby starts within a wake-up."""
    async with a_leader_and_a_standby() as (leader, standby, _, clock):
        leader.bench.keeper.drain()
        leader.task.cancel()
        await clock.advance(0)
        await leader.bench.keeper.stop()
        await settle()
        assert standby.handle is not None


async def test_a_stop_that_hangs_frees_the_lease_after_its_time() -> None:
    """Trial: a stop that hangs keeps the lease for ever. At the limit renewal stops; the standby starts after
    the lease has run out, not before."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        await first.clock.advance(25)
        renewed_at = handle.free_at - TTL
        waiting = second.acquiring()
        first.keeper.drain()
        first.keeper.abandon(handle)
        await ended(first.clock, waiting, within_seconds=TTL)
        assert first.clock.elapsed() >= renewed_at + TTL
        assert handle.lost


@pytest.mark.parametrize("how", ["deleted", "another value", "all gone"])
async def test_renewing_a_lease_that_is_gone_is_no_success(how: str) -> None:
    """Trial: renewing a lease that is gone counts as success. Noticed at the next renewal, stopped, candidate
    again, and no error repeated until a restart."""
    async with benches("worker-1") as [bench]:
        runner = Runner(bench, Witness())
        await bench.clock.advance(1)
        if how == "deleted":
            delete(bench)
        elif how == "another value":
            overwrite(bench)
        else:
            bench.store.records.clear()
            bench.store.changes.clear()
        await bench.clock.advance(PERIOD)
        assert runner.losses == 1
        await bench.clock.advance(2 * TTL)
        assert runner.handle is not None
        assert bench.log.named("lease_call_failed") == []
        runner.task.cancel()


async def test_the_lease_stays_until_the_work_has_stopped() -> None:
    """Trial: the lease is released before the work has stopped. Five seconds of clean-up, and no overlap;
    the lease is renewed meanwhile."""
    witness = Witness()
    async with benches("worker-1", "worker-2") as [first, second]:
        leader = Runner(first, witness, clean_up_seconds=25.0)
        await first.clock.advance(9)
        standby = Runner(second, witness)
        await first.clock.advance(0.5)
        leader.task.cancel()
        stopped = first.clock.elapsed()
        while standby.handle is None:
            assert first.clock.elapsed() < stopped + TTL
            await first.clock.advance(0.5)
        assert first.clock.elapsed() >= stopped + 25
        assert first.backend.asked("renew") != []
        standby.task.cancel()
        await settle()
        witness.expect_no_overlap()


async def test_a_release_whose_reply_is_late_is_neither_lost_nor_done_twice_to_another() -> None:
    """Trial: cancelling the release strands the lock; its reply is delayed and its caller cancelled, and
    another process has the lease by then."""
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        first.backend.after["release"] = hangs
        releasing = asyncio.create_task(first.keeper.release(handle))
        await settle()
        releasing.cancel()
        taken = await second.acquire()
        del first.backend.after["release"]
        await first.clock.advance(10)
        assert len(first.backend.asked("release")) >= 2
        assert second.held()
        assert not taken.lost


async def test_an_outage_that_ends_in_time_costs_nobody_the_lease() -> None:
    """Trial: alarms that cry too much. Workers are not restarted in a chain by a store that is away for
    less than a lease lasts."""
    async with a_leader_and_a_standby() as (leader, standby, _, clock):
        for bench in (leader.bench, standby.bench):
            for op in ("acquire", "renew", "release", "wait"):
                bench.backend.before[op] = fails()
        await clock.advance(12)
        for bench in (leader.bench, standby.bench):
            bench.backend.before.clear()
        await clock.advance(60)
        assert leader.losses == 0
        assert standby.handle is None


async def test_a_won_race_that_looks_lost_is_recognised() -> None:
    """Trial: cancelling the release strands the lock; an acquire with unknown outcome is recognised as ours
    at the next try."""
    async with benches("worker-1") as [bench]:
        bench.backend.after["acquire"] = fails()
        waiting = bench.acquiring()
        await settle()
        del bench.backend.after["acquire"]
        await ended(bench.clock, waiting, within_seconds=1)
        assert (await waiting).token == 1


async def test_the_answers_of_a_store_that_loses_its_mind_are_survived() -> None:
    """Trial: a leader that lost its lease is never told. Whatever comes back, it is no crash, and the lease
    is led again when the store is sound."""
    async with benches("worker-1") as [bench]:
        runner = Runner(bench, Witness())
        await bench.clock.advance(1)
        odd: list[object] = [Renewal(), "?", 5, Renewal(lost=[]), {"kept": []}]
        bench.backend.before["renew"] = lambda: odd[len(bench.backend.asked("renew")) % len(odd)]
        bench.backend.before["acquire"] = lambda name: (
            Held("?", -5.0)
            if len(bench.backend.asked("acquire")) % 2
            else Lease(name, "worker-3/1", 10**30, 1e300)
        )
        await bench.clock.advance(5 * TTL)
        assert (runner.losses, bench.keeper.held()) == (1, [])
        bench.backend.before.clear()
        await bench.clock.advance(2 * TTL)
        assert runner.handle is not None
        runner.task.cancel()
