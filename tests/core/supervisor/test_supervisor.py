"""All background workers of one process, together."""

import asyncio
from typing import Any

import pytest
from drakkar.errors import ConfigError
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.keyed import KeyedFanOut
from drakkar.supervisor.worker import RunContext
from support.supervised import STOP_TIMEOUT, Job, Process, forever, memory, stubborn
from support.virtual_time import hold_up, virtual_time


async def crashes(_ctx: RunContext) -> None:
    raise SystemExit


@virtual_time
async def test_what_one_worker_does_concerns_no_other() -> None:
    good, bad = Job(), Job(crashes)
    async with Process([good.worker("good"), bad.worker("bad")], memory()) as process:
        await asyncio.sleep(100)
        assert len(good.starts) == 1
        assert len(bad.starts) == 4
        assert process.supervisor.features()["leader_for"] == ["good"]
        assert list(process.supervisor.reports()) == ["bad", "good"]


@virtual_time
async def test_a_stop_takes_as_long_as_the_slowest_and_names_all_that_would_not_end() -> None:
    async def slow(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(8)

    jobs = [
        Job(stubborn(150)).worker("a"),
        Job(slow).worker("b"),
        Job(stubborn(150)).worker("c"),
        Job().worker("d"),
    ]
    process = Process(jobs, memory())
    process.start()
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    assert await process.stop() == ["a", "c"]
    assert asyncio.get_running_loop().time() - began <= STOP_TIMEOUT + 3
    await asyncio.sleep(200)


@virtual_time
async def test_a_stop_that_is_cancelled_goes_on_and_may_be_asked_for_again() -> None:
    async def slow(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(5)

    job = Job(slow)
    process = Process([job.worker()], memory())
    process.start()
    await asyncio.sleep(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await process.supervisor.stop()
    assert await process.stop() == []
    assert job.running == 0


@virtual_time
async def test_the_leader_events_end_when_all_runs_have_ended_and_not_before() -> None:
    async def slow(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(5)

    process, seen = Process([Job(slow).worker()], memory()), []

    async def read() -> None:
        async for event in process.supervisor.leader_events():
            seen.extend([event.event])

    reading = asyncio.create_task(read())
    async with process:
        pass
    await reading
    assert seen == ["acquired", "released"]


@virtual_time
async def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two background workers 'gc'"):
        Process([Job().worker(), FanOut("gc", 2, Job().build_shard)], memory())


@virtual_time
async def test_a_keyed_fan_out_without_its_gate_is_refused() -> None:
    async def keys() -> list[str]:
        return []

    keyed: Any = KeyedFanOut("lifecycle", keys, lambda _deps, _key: Job(), FanOut("gc", 2, Job().build_shard))
    with pytest.raises(ConfigError, match="choose gc as well"):
        Process([keyed], memory())


@virtual_time
async def test_held_shards_of_what_is_no_fan_out_here_are_none() -> None:
    async with Process([Job().worker()], memory()) as process:
        assert process.supervisor.held_shards("gc") == frozenset()
        assert process.supervisor.held_shards("nobody") == frozenset()


@virtual_time
async def test_a_loop_that_is_held_up_is_told_with_its_length_at_most_once_a_minute() -> None:
    """The job starves its own renewal: the loop lag shows in the log."""

    async def blocks(_ctx: RunContext) -> None:
        while True:
            await asyncio.sleep(5)
            hold_up(4)

    async with Process([Job(blocks).worker()], memory()) as process:
        await asyncio.sleep(58)
        (line,) = process.log.named("event_loop_held_up")
        assert 3 <= line["seconds"] <= 4
        assert line["leading"] == ["gc"]
        assert "into a thread" in line["hint"]
        await asyncio.sleep(60)
        assert len(process.log.named("event_loop_held_up")) == 2
        assert process.log.named("event_loop_held_up")[1]["times"] > 3


@virtual_time
async def test_a_loop_that_is_not_is_not() -> None:
    async with Process([Job().worker()], memory()) as process:
        await asyncio.sleep(600)
        assert process.log.named("event_loop_held_up") == []
