"""A worker with background workers in it: what these may do to it, and what they may cost it."""

import asyncio
from typing import Any

import pytest
from drakkar.server.timeline import Timeline
from drakkar.supervisor.chosen import Supervised
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.lane import Lane
from drakkar.supervisor.worker import RunContext
from drakkar.worker import Worker
from support.log import RecordingLogger
from support.supervised import Job, forever
from support.waiting import until
from support.workers import other_tasks, settings

SHARDS = 64


@pytest.fixture(autouse=True)
async def nothing_left() -> object:
    yield
    assert other_tasks() == set()


def make(*workers: Supervised, log: RecordingLogger | None = None, **overrides: str) -> Worker:
    """A worker that leads by itself."""
    alone = settings("none", worker_name="worker-1", ui__enabled="false", **overrides)
    return Worker(alone, workers=workers, environ={}, logger=log or RecordingLogger())


@pytest.mark.parametrize("through", ["the run", "a task of the run", "a bare task that the run awaits"])
async def test_a_run_that_stops_its_worker_ends_and_gives_its_lease_back(through: str) -> None:
    async def body(ctx: RunContext) -> None:
        match through:
            case "a task of the run":
                await ctx.create_task(worker.stop())
            case "a bare task that the run awaits":
                await asyncio.create_task(worker.stop())
            case _:
                await worker.stop()

    log = RecordingLogger()
    worker = make(Job(body).worker(), log=log, supervisor__stop_timeout_seconds="300")
    await worker.start()
    await until(lambda: worker.state == "draining")
    await worker.stop()
    assert worker.unstopped == []
    assert log.named("lease_released")
    assert not log.named("lease_abandoned")


async def test_a_worker_within_a_run_of_another_one_stops_in_full_all_the_same() -> None:
    """A cancellation that comes to the run is not passed on in the middle of the inner worker's stop."""
    cleaned_up = []

    async def inner_body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(0.05)
            cleaned_up.append(ctx.worker)

    async def body(ctx: RunContext) -> None:
        async with make(Job(inner_body).worker("inner")) as inner:
            await until(lambda: inner.leader_for() == ["inner"])
            begun.set()
            await forever(ctx)

    begun = asyncio.Event()
    async with make(Job(body).worker()) as outer:
        await begun.wait()
    assert cleaned_up == ["inner"]
    assert outer.unstopped == []


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """Grows by one with each call of the method."""
    calls, method = list[str](), getattr(owner, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


async def test_what_a_shard_costs_that_comes_or_goes_does_not_grow_with_shards_and_peers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop of a thousand would hold up the event loop, and with it the renewals, for many seconds."""
    reports = count_calls(monkeypatch, Lane, "report")
    looks_at_all_leaders = count_calls(monkeypatch, Timeline, "observe")
    job = Job()
    async with make(FanOut("gc", SHARDS, job.build_shard), fleet__registry__refresh_seconds="600"):
        await until(lambda: job.running == SHARDS)
    assert job.running == 0
    assert reports == []
    assert len(looks_at_all_leaders) < 5
