"""One background worker in one process, from the first acquire to the last release, in virtual time."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from drakkar.errors import LeaseLost
from drakkar.leases.backend import Held, Lease, Renewal
from drakkar.leases.memory import MemoryLeases
from drakkar.supervisor.backoff import COURTESY_SECONDS, courtesy
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext, Runner
from support.sharing import CutLeases
from support.supervised import STOP_TIMEOUT, Job, Process, forever, holders, memory, stubborn
from support.virtual_time import hold_up, virtual_time


async def crashes(_ctx: RunContext) -> None:
    await asyncio.sleep(0.2)
    raise ValueError("bad file")


ignores = stubborn(600)


async def yields(ctx: RunContext) -> None:
    await ctx.yielding.wait()


class SlowRelease(MemoryLeases):
    """Takes two seconds to give a lease back."""

    async def release(self, name: str, token: int | None = None) -> None:
        await asyncio.sleep(2)
        await super().release(name, token)


def take_away(store: Any, name: str = "gc-leader") -> None:
    """What an operator does who deletes the record."""
    del store.records[name]
    store.changed(name)


# -- the life of a run


@virtual_time
async def test_it_runs_under_its_lease_until_the_stop_and_gives_it_back() -> None:
    store, job = memory(), Job()
    async with Process([job.worker()], store) as process:
        assert holders(store) == {"gc-leader": "worker-1"}
        report = process.report()
        assert (report.status, report.token, report.lease) == ("leading", 1, "gc-leader")
        assert process.supervisor.features()["leader_for"] == ["gc"]
    assert holders(store) == {}
    assert job.running == 0
    assert process.report().status == "stopped"
    assert process.supervisor.features()["leader_for"] == []


@virtual_time
async def test_the_run_gets_its_name_its_lease_and_a_logger() -> None:
    job = Job()
    async with Process([job.worker()], memory()) as process:
        (ctx,) = job.contexts
        assert ctx.worker == "gc"
        assert ctx.lease is not None
        ctx.lease.check()
        assert (ctx.lease.name, ctx.lease.token, ctx.lease.lost) == ("gc-leader", 1, False)
        assert ctx.logger is process.log
        assert not ctx.yielding.is_set()


@virtual_time
async def test_one_of_two_processes_runs_it_and_the_other_goes_on_at_once_after_a_clean_stop() -> None:
    """A polite stop looks like a crash to the others."""
    store, job = memory(), Job()
    async with Process([job.worker()], store, "worker-2") as standby:
        assert holders(store) == {"gc-leader": "worker-2"}
        async with Process([job.worker()], store) as second:
            await asyncio.sleep(100)
            assert second.report().status == "waiting"
            await standby.stop()
            stopped = asyncio.get_running_loop().time()
            await asyncio.sleep(1)
            assert holders(store) == {"gc-leader": "worker-1"}
            assert job.starts[-1] - stopped < 0.1
            assert job.most_at_once == 1


@virtual_time
async def test_build_is_called_for_every_run_and_gets_the_dependencies() -> None:
    built: list[Dependencies] = []
    job = Job(crashes)

    def build(deps: Dependencies) -> Runner:
        built.append(deps)
        return job

    async with Process([BackgroundWorker("gc", build)], memory()) as process:
        await asyncio.sleep(3)
        assert len(built) == 2
        assert built[0].leases is process.keeper
        assert built[0].logger is process.log


# -- crashes


@virtual_time
async def test_a_crash_gives_the_lease_away_before_the_wait() -> None:
    """The worker died, the lease did not. Only this process crashes: another one does the work. Rule 10."""
    store, bad, good = memory(), Job(crashes), Job()
    async with Process([bad.worker()], store), Process([good.worker()], store, "worker-2"):
        await asyncio.sleep(0.3)
        assert holders(store) == {"gc-leader": "worker-2"}
        await asyncio.sleep(3600)
        assert holders(store) == {"gc-leader": "worker-2"}
        assert (len(bad.starts), len(good.starts)) == (1, 1)


@virtual_time
async def test_nothing_is_shown_as_leading_while_its_lease_is_given_back() -> None:
    store, job = memory(), Job(yields)
    async with Process([job.worker()], store, backend=SlowRelease(store)) as process:
        process.supervisor.step_down("gc-leader", 60)
        await asyncio.sleep(1)
        report = process.report()
        assert (report.status, report.token, report.restarts_in_seconds) == ("releasing", None, None)
        assert report.since_seconds == pytest.approx(1, abs=0.1)
        await asyncio.sleep(1.5)
        assert process.report().status == "waiting"


@virtual_time
async def test_it_backs_off_when_its_lease_is_given_back_and_not_before() -> None:
    store = memory()
    async with Process([Job(crashes).worker()], store, backend=SlowRelease(store)) as process:
        await asyncio.sleep(3.4)  # the second run has crashed at 2.4
        assert holders(store) == {"gc-leader": "worker-1"}
        report = process.report()
        assert (report.status, report.token) == ("releasing", None)
        assert report.restarts_in_seconds == pytest.approx(3.9, abs=0.1)
        await asyncio.sleep(2)
        assert holders(store) == {}
        assert process.report().status == "backing_off"


@virtual_time
async def test_a_lease_that_is_lost_is_not_shown_as_led_under_before_anybody_has_noticed() -> None:
    async with Process([Job().worker()], memory()) as process:
        hold_up(60)
        report = process.report()
        assert (report.status, report.token) == ("stopping", None)


@virtual_time
async def test_while_it_backs_off_it_says_so_and_is_not_shown_as_leader() -> None:
    """The worker died, the lease did not: "backing off, restarts in N s" and never "leader"."""
    async with Process([Job(crashes).worker()], memory()) as process:
        await asyncio.sleep(10)
        report = process.report()
        assert report.status == "backing_off"
        assert report.token is None
        assert report.attempts == 3
        assert report.restarts_in_seconds == pytest.approx(26.8, abs=0.3)
        assert report.last_error == "ValueError: bad file"
        assert report.last_error_at is not None
        assert process.supervisor.features()["leader_for"] == []


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), KeyboardInterrupt(), ExceptionGroup("g", [ValueError()]), RecursionError()],
    ids=lambda error: type(error).__name__,
)
@virtual_time
async def test_a_crash_of_any_kind_is_counted_logged_and_tried_again(error: BaseException) -> None:
    async def body(_ctx: RunContext) -> None:
        raise error

    job = Job(body)
    async with Process([job.worker()], memory()) as process:
        await asyncio.sleep(2)
        assert len(job.starts) == 2
        assert process.count("worker_panic", worker="gc", shard="-") == 2
        assert len(process.log.named("worker_crashed")) == 2


@virtual_time
async def test_a_crash_that_no_log_could_write_in_full_is_written_without_its_traceback() -> None:
    async def body(_ctx: RunContext) -> None:
        error: Exception = ValueError("bad file")
        for _ in range(60):
            error = ExceptionGroup("all attempts failed", [error, error])
        raise error

    async with Process([Job(body).worker()], memory()) as process:
        [line] = process.log.named("worker_crashed")
        is_traced = line["exc_info"] is not None  # not in the assert, whose message would have no end
        assert not is_traced
        assert "ValueError: bad file" in line["error"]


@virtual_time
async def test_a_crash_whose_text_ends_the_process_does_not() -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise SystemExit

    async def body(_ctx: RunContext) -> None:
        raise UnspeakableError

    async with Process([Job(body).worker()], memory()) as process:
        await asyncio.sleep(2)
        assert process.report().last_error == "UnspeakableError"


@virtual_time
async def test_a_return_is_restarted_on_the_same_schedule_and_not_counted() -> None:
    """The worker died, the lease did not: a worker that returns normally."""

    async def body(_ctx: RunContext) -> None:
        return

    job = Job(body)
    async with Process([job.worker()], memory()) as process:
        await asyncio.sleep(300)
        assert job.waits() == [1, 5, 30, 120, 120]
        assert process.count("worker_panic", worker="gc", shard="-") == 0
        assert process.report().last_error is None


@virtual_time
async def test_a_job_that_waits_for_ever_keeps_its_lease() -> None:
    """The worker died, the lease did not: one that waits for ever on a dead dependency leads, by the rule."""
    store, job = memory(), Job()
    async with Process([job.worker()], store), Process([job.worker()], store, "worker-2"):
        await asyncio.sleep(3600)
        assert len(job.starts) == 1


@virtual_time
async def test_a_child_that_crashes_while_the_run_ignores_it_does_not_leave_a_stump_in_charge() -> None:
    """The worker died, the lease did not."""

    async def child() -> None:
        raise ValueError("of the child")

    async def body(ctx: RunContext) -> None:
        ctx.create_task(child())
        await ignores(ctx)

    store, job, other = memory(), Job(body), Job()
    async with Process([job.worker()], store) as process, Process([other.worker()], store, "worker-2"):
        await asyncio.sleep(STOP_TIMEOUT + 1)
        assert process.report().status == "stuck"
        await asyncio.sleep(60)
        assert holders(store) == {"gc-leader": "worker-2"}
        assert job.running == 1
        await asyncio.sleep(600)
        assert process.report().last_error == "ValueError: of the child"
        assert process.report().status == "waiting"
        await process.stop()


@virtual_time
async def test_a_task_that_outlives_a_clean_return_is_named_and_costs_the_lease() -> None:
    async def body(ctx: RunContext) -> None:
        ctx.create_task(ignores(ctx))
        await asyncio.sleep(1)

    store, job = memory(), Job(body)
    async with Process([job.worker()], store) as process:
        await asyncio.sleep(STOP_TIMEOUT + 2)
        assert process.report().status == "stuck"
        assert process.log.named("worker_stop_timeout") == [
            {"worker": "gc", "shard": "-", "after_seconds": STOP_TIMEOUT}
        ]
        await asyncio.sleep(100)
        assert holders(store) == {}
        assert len(job.starts) == 1
        job.body = forever
        await asyncio.sleep(500)
        assert len(job.starts) == 2


# -- losing the lease


@virtual_time
async def test_a_lost_lease_cancels_the_run_and_is_wanted_again_without_wait_or_count() -> None:
    store, job = memory(), Job()
    async with Process([job.worker()], store) as process:
        take_away(store)
        await asyncio.sleep(10.5)
        assert len(job.starts) == 2
        assert job.most_at_once == 1
        assert process.report().attempts == 0
        assert process.count("worker_panic", worker="gc", shard="-") == 0
        assert process.log.named("worker_crashed") == []
        first, second = (ctx.lease for ctx in job.contexts)
        assert first is not None
        assert second is not None
        assert first.lost
        assert second.token > first.token


@virtual_time
async def test_a_run_that_notices_the_loss_by_itself_has_not_crashed() -> None:
    async def body(ctx: RunContext) -> None:
        assert ctx.lease is not None
        while True:
            await asyncio.sleep(0.01)
            ctx.lease.check()

    class Cut(MemoryLeases):
        async def renew(self, leases: Any) -> Renewal:
            raise OSError("no route")

    store, job = memory(), Job(body)
    async with Process([job.worker()], store, backend=Cut(store)) as process:
        await asyncio.sleep(28)
        assert len(job.starts) == 2
        assert process.log.named("worker_crashed") == []
        assert process.log.named("worker_cleanup_failed") == []
        assert process.report().last_error is None


@virtual_time
async def test_a_run_that_notices_the_loss_before_anybody_else_has_not_crashed() -> None:
    async def body(ctx: RunContext) -> None:
        if len(job.starts) > 1:
            await forever(ctx)
        hold_up(60)
        assert ctx.lease is not None
        ctx.lease.check()

    job = Job(body)
    async with Process([job.worker()], memory()) as process:
        await asyncio.sleep(1)
        assert len(job.starts) == 2
        assert process.count("worker_panic", worker="gc", shard="-") == 0
        assert process.log.named("worker_crashed") == []
        assert (process.report().attempts, process.report().last_error) == (0, None)


@virtual_time
async def test_a_run_that_fails_when_its_lease_is_lost_has_failed_in_its_clean_up() -> None:
    async def body(ctx: RunContext) -> None:
        if len(job.starts) > 1:
            await forever(ctx)
        hold_up(60)
        raise ValueError

    job = Job(body)
    async with Process([job.worker()], memory()) as process:
        await asyncio.sleep(0.5)
        assert len(job.starts) == 2
        assert process.count("worker_panic", worker="gc", shard="-") == 0
        assert len(process.log.named("worker_cleanup_failed")) == 1
        assert process.report().attempts == 0


@virtual_time
async def test_a_lease_of_somebody_else_that_is_lost_is_a_crash() -> None:
    async def body(_ctx: RunContext) -> None:
        raise LeaseLost("another one")

    async with Process([Job(body).worker()], memory()) as process:
        assert process.count("worker_panic", worker="gc", shard="-") == 1


@virtual_time
async def test_a_clean_up_that_fails_after_a_loss_is_told_and_not_counted() -> None:
    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            raise ValueError("in the clean-up")

    store = memory()
    async with Process([Job(body).worker()], store) as process:
        take_away(store)
        await asyncio.sleep(11)
        assert process.count("worker_panic", worker="gc", shard="-") == 0
        (line,) = process.log.named("worker_cleanup_failed")
        assert line["error"] == "ValueError: in the clean-up"
        assert process.report().attempts == 0


@virtual_time
async def test_the_chip_goes_at_the_loss_and_not_after_the_clean_up() -> None:
    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(5)

    store = memory()
    async with Process([Job(body).worker()], store) as process:
        take_away(store)
        await asyncio.sleep(10.5)
        assert process.report().status == "stopping"
        assert process.supervisor.features()["leader_for"] == []
        assert process.report().token is None


@virtual_time
async def test_no_run_starts_on_a_lease_that_was_lost_before_it_could(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, job = memory(), Job()
    process = Process([job.worker()], store)
    acquire = process.keeper.acquire

    async def held_up(*args: Any) -> Any:
        handle = await acquire(*args)
        if handle.token == 1:
            hold_up(60)
        return handle

    monkeypatch.setattr(process.keeper, "acquire", held_up)
    async with process:
        await asyncio.sleep(1)
        assert [ctx.lease and ctx.lease.token for ctx in job.contexts] == [2]


# -- never two


@virtual_time
async def test_a_second_run_never_starts_before_the_first_has_really_ended() -> None:
    """The job starves its own renewal; A stop that hangs keeps the lease for ever: within one process."""
    store, job = memory(), Job(ignores)
    async with Process([job.worker()], store) as process:
        take_away(store)
        await asyncio.sleep(500)
        assert len(job.starts) == 1
        assert process.report().status == "stuck"
        job.body = forever
        await asyncio.sleep(120)
        assert len(job.starts) == 2
        assert job.most_at_once == 1


@virtual_time
async def test_the_lease_is_kept_and_renewed_until_the_clean_up_has_ended() -> None:
    """The lease is released before the work has stopped: clean-up after cancel, SIGTERM."""

    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(9)

    store, job, other = memory(), Job(body), Job()
    async with Process([job.worker()], store) as process, Process([other.worker()], store, "worker-2"):
        await asyncio.sleep(25)
        stopping = asyncio.create_task(process.stop())
        await asyncio.sleep(8.5)
        assert process.report().status == "stopping"
        assert holders(store) == {"gc-leader": "worker-1"}
        assert await stopping == []
        await asyncio.sleep(0.1)
        assert holders(store) == {"gc-leader": "worker-2"}
        assert job.running == 0


@virtual_time
async def test_the_lease_waits_for_the_tasks_of_the_run_too() -> None:
    """The lease is released before the work has stopped."""

    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(6)

    async def body(ctx: RunContext) -> None:
        ctx.create_task(child())
        await asyncio.sleep(1)
        raise ValueError

    store, job = memory(), Job(body)
    async with Process([job.worker()], store):
        await asyncio.sleep(6.5)
        assert holders(store) == {"gc-leader": "worker-1"}
        await asyncio.sleep(1)
        assert holders(store) == {}


@virtual_time
async def test_a_loss_before_the_clean_up_has_ended_starts_nothing_beside_it() -> None:
    """The lease is released before the work has stopped: lose the lease instead of stopping."""

    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(9)

    store, job = memory(), Job(body)
    async with Process([job.worker()], store):
        take_away(store)
        await asyncio.sleep(60)
        assert len(job.starts) == 2
        assert job.most_at_once == 1


# -- runs that would not end


@virtual_time
async def test_a_run_that_would_not_end_is_named_and_its_lease_runs_out() -> None:
    """A stop that hangs keeps the lease for ever: renewal stops, and the standby starts after that."""
    store, job, other = memory(), Job(ignores), Job()
    async with Process([job.worker()], store) as process, Process([other.worker()], store, "worker-2"):
        began = asyncio.get_running_loop().time()
        assert await process.stop() == ["gc"]
        took = asyncio.get_running_loop().time() - began
        assert STOP_TIMEOUT <= took <= STOP_TIMEOUT + 3
        assert process.report().status == "stuck"
        assert other.starts == []
        await asyncio.sleep(31)
        assert len(other.starts) == 1
        assert other.starts[0] - began >= STOP_TIMEOUT
        assert process.log.level_of("lease_abandoned") == "error"
        await asyncio.sleep(600)
        assert process.report().status == "stopped"


@virtual_time
async def test_a_run_that_would_not_end_is_followed_while_its_process_goes_on() -> None:
    """A stop that hangs keeps the lease for ever: not that of a job that was asked to step down either."""
    store, job, other = memory(), Job(ignores), Job()
    async with Process([job.worker()], store) as process, Process([other.worker()], store, "worker-2"):
        assert process.supervisor.step_down("gc-leader", 60)
        await asyncio.sleep(2 * STOP_TIMEOUT + 1)
        assert process.report().status == "stuck"
        assert process.log.level_of("lease_abandoned") == "error"
        await asyncio.sleep(37)
        assert job.running == 1
        assert holders(store) == {"gc-leader": "worker-2"}
        job.body = forever
        await asyncio.sleep(600)


@virtual_time
async def test_a_stop_ends_a_stuck_run_no_slower() -> None:
    store, job = memory(), Job(ignores)
    async with Process([job.worker()], store) as process:
        take_away(store)
        await asyncio.sleep(60)
        assert process.report().status == "stuck"
        began = asyncio.get_running_loop().time()
        assert await process.stop() == ["gc"]
        assert asyncio.get_running_loop().time() - began < 0.1
        await asyncio.sleep(600)


@virtual_time
async def test_a_clean_up_is_not_cancelled_however_long_it_takes() -> None:
    """Losing the lease does not stop a thread: a clean-up that waits for one must not be broken off."""
    cleaned = []

    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(10 * STOP_TIMEOUT)
            cleaned.append(True)

    store, job = memory(), Job(body)
    async with Process([job.worker()], store) as process:
        take_away(store)
        await asyncio.sleep(10 + 9 * STOP_TIMEOUT)
        assert process.report().status == "stuck"
        job.body = forever
        await asyncio.sleep(2 * STOP_TIMEOUT)
        assert cleaned == [True]
        assert len(job.starts) == 2
        assert job.most_at_once == 1


# -- yielding


@virtual_time
async def test_a_run_that_is_asked_to_yield_returns_and_the_lease_goes_to_another() -> None:
    async def body(ctx: RunContext) -> None:
        await ctx.yielding.wait()
        await asyncio.sleep(3)

    store, job, other = memory(), Job(body), Job()
    async with Process([job.worker()], store) as process, Process([other.worker()], store, "worker-2"):
        assert process.supervisor.step_down("gc-leader", 60)
        await asyncio.sleep(4)
        assert holders(store) == {"gc-leader": "worker-2"}
        assert process.report().attempts == 0
        assert process.count("worker_panic", worker="gc", shard="-") == 0


@virtual_time
async def test_one_that_does_not_yield_is_cancelled_after_the_stop_timeout() -> None:
    store, job, other = memory(), Job(), Job()
    async with Process([job.worker()], store) as process, Process([other.worker()], store, "worker-2"):
        process.supervisor.step_down("gc-leader", 60)
        await asyncio.sleep(STOP_TIMEOUT - 1)
        assert job.running == 1
        await asyncio.sleep(2)
        assert holders(store) == {"gc-leader": "worker-2"}
        assert process.report().attempts == 0


@virtual_time
async def test_one_that_stepped_down_takes_the_lease_back_when_it_stays_free() -> None:
    job = Job(yields)
    async with Process([job.worker()], memory()) as process:
        process.supervisor.step_down("gc-leader", 60)
        await asyncio.sleep(200)
        assert job.waits() == [pytest.approx(COURTESY_SECONDS + 3, abs=0.2)]


@virtual_time
async def test_one_that_stepped_down_is_no_later_than_its_cool_down() -> None:
    job = Job(yields)
    async with Process([job.worker()], memory()) as process:
        process.supervisor.step_down("gc-leader", 3)
        await asyncio.sleep(200)
        assert job.waits() == [pytest.approx(3, abs=0.2)]


class Deaf(MemoryLeases):
    """A store that neither wakes anybody nor tells how long to wait."""

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        return Held(answer.holder) if isinstance(answer, Held) else answer

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        await asyncio.sleep(timeout_seconds)
        return frozenset()


@virtual_time
async def test_another_one_that_only_looks_now_and_then_still_gets_the_lease_first() -> None:
    for seconds in range(12):  # wherever between two looks it is
        store, job, other = memory(), Job(yields), Job()
        async with (
            Process([job.worker()], store) as process,
            Process([other.worker()], store, "worker-2", backend=Deaf(store)),
        ):
            await asyncio.sleep(seconds / 2)
            process.supervisor.step_down("gc-leader", 60)
            await asyncio.sleep(100)
            assert holders(store) == {"gc-leader": "worker-2"}
            assert len(job.starts) == 1


@virtual_time
async def test_one_that_stepped_down_follows_a_leader_that_died_without_waiting_for_its_cool_down() -> None:
    """A leader that died is replaced after what is left of its ttl, and the courtesy."""
    store, job, other = memory(), Job(yields), Job()
    dying = CutLeases(store)
    second = Process([other.worker()], store, "worker-2", backend=dying)
    async with Process([job.worker()], store) as process:
        second.start()
        await asyncio.sleep(1)
        process.supervisor.step_down("gc-leader", 3600)
        await asyncio.sleep(25)
        assert holders(store) == {"gc-leader": "worker-2"}
        dying.cut = True
        died = asyncio.get_running_loop().time()
        await second.stop()
        await asyncio.sleep(300)
        assert holders(store) == {"gc-leader": "worker-1"}
        assert job.starts[-1] - died < 30 + courtesy(3600) + 1


@virtual_time
async def test_of_two_that_stepped_down_the_first_one_is_the_next_leader() -> None:
    store, first, second = memory(), Job(yields), Job(yields)
    async with (
        Process([first.worker()], store) as one,
        Process([second.worker()], store, "worker-2") as two,
    ):
        one.supervisor.step_down("gc-leader", 60)
        await asyncio.sleep(20)
        assert holders(store) == {"gc-leader": "worker-2"}
        two.supervisor.step_down("gc-leader", 60)
        await asyncio.sleep(30)
        assert holders(store) == {"gc-leader": "worker-1"}


@virtual_time
async def test_stepping_down_is_refused_where_nothing_runs_under_that_lease() -> None:
    store = memory()
    async with Process([Job().worker()], store), Process([Job().worker()], store, "worker-2") as waiting:
        assert not waiting.supervisor.step_down("gc-leader", 60)
        assert not waiting.supervisor.step_down("nobody-leader", 60)


@virtual_time
async def test_a_crash_while_yielding_is_a_crash() -> None:
    async def body(ctx: RunContext) -> None:
        await ctx.yielding.wait()
        raise ValueError

    async with Process([Job(body).worker()], memory()) as process:
        process.supervisor.step_down("gc-leader", 0)
        await asyncio.sleep(0.5)
        assert process.count("worker_panic", worker="gc", shard="-") == 1
        assert process.report().status == "backing_off"


# -- stopping


@virtual_time
async def test_a_stop_while_it_waits_for_the_lease_is_quick_and_leaves_nothing() -> None:
    store = memory()
    async with Process([Job().worker()], store, "worker-2"):
        process = Process([Job().worker()], store)
        process.start()
        await asyncio.sleep(20)
        began = asyncio.get_running_loop().time()
        assert await process.stop() == []
        assert asyncio.get_running_loop().time() - began < 0.1
        assert holders(store) == {"gc-leader": "worker-2"}


class SlowLeases(MemoryLeases):
    """Grants at once, and says so two seconds later."""

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        await asyncio.sleep(2)
        return answer


@virtual_time
async def test_a_stop_while_an_acquire_is_under_way_gives_back_what_it_gets() -> None:
    """A polite stop looks like a crash to the others: while an acquire is in flight."""
    store, job = memory(), Job()
    process = Process([job.worker()], store, backend=SlowLeases(store))
    process.start()
    await asyncio.sleep(1)
    assert holders(store) == {"gc-leader": "worker-1"}
    assert await process.stop() == []
    assert holders(store) == {}
    assert job.starts == []


@virtual_time
async def test_a_stop_right_after_the_start_leaves_nothing() -> None:
    """A polite stop looks like a crash to the others: in the first 100 ms after start."""
    for steps in range(40):
        store, job = memory(), Job()
        process = Process([job.worker()], store)
        process.start()
        for _ in range(steps):
            await asyncio.sleep(0)
        assert await process.stop() == []
        assert holders(store) == {}
        assert job.running == 0


@virtual_time
async def test_a_stop_while_it_backs_off_is_quick() -> None:
    job = Job(crashes)
    process = Process([job.worker()], memory())
    process.start()
    await asyncio.sleep(60)
    assert process.report().status == "backing_off"
    began = asyncio.get_running_loop().time()
    assert await process.stop() == []
    assert asyncio.get_running_loop().time() - began < 0.1


@virtual_time
async def test_a_stop_during_the_cool_down_is_quick() -> None:
    process = Process([Job().worker()], memory())
    process.start()
    await asyncio.sleep(1)
    process.supervisor.step_down("gc-leader", 3600)
    await asyncio.sleep(60)
    assert process.report().status == "waiting"
    began = asyncio.get_running_loop().time()
    assert await process.stop() == []
    assert asyncio.get_running_loop().time() - began < 0.1


@virtual_time
async def test_a_stop_while_the_run_yields_cancels_it_at_once() -> None:
    job = Job()
    process = Process([job.worker()], memory())
    process.start()
    await asyncio.sleep(1)
    process.supervisor.step_down("gc-leader", 60)
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    assert await process.stop() == []
    assert asyncio.get_running_loop().time() - began < 0.1
    assert job.running == 0


@virtual_time
async def test_a_stop_after_a_loss_waits_for_the_clean_up_that_is_under_way() -> None:
    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(8)

    store, job = memory(), Job(body)
    process = Process([job.worker()], store)
    process.start()
    await asyncio.sleep(1)
    take_away(store)
    await asyncio.sleep(11)
    assert process.report().status == "stopping"
    assert await process.stop() == []
    assert job.running == 0
    assert len(job.starts) == 1


@virtual_time
async def test_a_stop_of_one_that_has_not_started_returns() -> None:
    assert await Process([Job().worker()], memory()).supervisor.stop() == []


@virtual_time
async def test_a_stop_while_the_store_hangs_is_bounded() -> None:
    class Hangs(MemoryLeases):
        async def release(self, name: str, token: int | None = None) -> None:
            await asyncio.Event().wait()

    store, job = memory(), Job()
    process = Process([job.worker()], store, backend=Hangs(store))
    process.start()
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    await process.stop()
    assert job.running == 0
    assert asyncio.get_running_loop().time() - began < 10


# -- a lane does not die in silence


@virtual_time
async def test_an_acquire_that_fails_in_a_way_nobody_thought_of_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, job = memory(), Job()
    process = Process([job.worker()], store)
    acquire = process.keeper.acquire
    failures: list[int] = []

    async def broken(*args: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise RuntimeError("a bug")
        return await acquire(*args)

    monkeypatch.setattr(process.keeper, "acquire", broken)
    async with process:
        assert process.report().status == "backing_off"
        assert process.report().last_error == "RuntimeError: a bug"
        await asyncio.sleep(7)
        assert job.running == 1


@virtual_time
async def test_a_reader_of_the_news_that_fails_costs_nobody_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    store, job = memory(), Job()

    def fails() -> None:
        raise ValueError("the card")

    process = Process([job.worker()], store)
    monkeypatch.setattr(process, "on_change", fails)
    async with process:
        assert job.running == 1
        assert process.log.named("worker_lane_failed")[0]["error"] == "ValueError: the card"
    assert holders(store) == {}


@virtual_time
async def test_a_logger_that_fails_costs_nobody_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(event: str, **fields: Any) -> None:
        raise OSError("no space left on device")

    store, job = memory(), Job(crashes)
    process = Process([job.worker()], store)
    for level in ("debug", "info", "warning", "error"):
        monkeypatch.setattr(process.log, level, full)
    async with process:
        await asyncio.sleep(2)
        assert len(job.starts) == 2


@virtual_time
async def test_a_lane_that_somebody_cancels_says_so_and_keeps_no_lease() -> None:
    store, job = memory(), Job()
    process = Process([job.worker()], store)
    process.start()
    await asyncio.sleep(1)
    for task in asyncio.all_tasks():
        if task.get_name().startswith("drakkar lane"):
            task.cancel()
    await asyncio.sleep(60)
    assert job.running == 0
    assert holders(store) == {}
    assert process.log.named("worker_lane_failed")[0]["worker"] == "gc"
    assert process.report().status == "stopped"
    assert process.supervisor.features()["leader_for"] == []
    await process.stop()


@virtual_time
async def test_a_lane_that_is_cancelled_at_the_moment_of_its_grant_keeps_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, job = memory(), Job()
    process = Process([job.worker()], store)
    acquire = process.keeper.acquire

    async def cancelling(*args: Any) -> Any:
        handle = await acquire(*args)
        (lane,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("drakkar lane")]
        lane.cancel()
        return handle

    monkeypatch.setattr(process.keeper, "acquire", cancelling)
    process.start()
    await asyncio.sleep(1)
    assert holders(store) == {"gc-leader": "worker-1"}
    await asyncio.sleep(60)
    assert job.starts == []
    assert holders(store) == {}
    await process.stop()
