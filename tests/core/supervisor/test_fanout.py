"""A fan-out in one process: its lanes, its chip, its name in the metrics."""

import asyncio
from typing import Any

import pytest
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.worker import Dependencies, RunContext, Runner
from support.sharing import Fleet, settles
from support.supervised import STOP_TIMEOUT, Job, Process, forever, holders, memory, stubborn
from support.virtual_time import virtual_time


def fan_out(job: Job, shards: int = 4) -> FanOut:
    return FanOut("gc", shards, job.build_shard)


@pytest.mark.parametrize("shards", [0, -1, 1025, True, 2.0, "4", None])
def test_a_number_of_shards_that_cannot_be_is_refused(shards: Any) -> None:
    with pytest.raises(ValueError, match="gc: "):
        FanOut("gc", shards, Job().build_shard)


@pytest.mark.parametrize("shards", [1, 1024])
def test_one_to_1024_shards_are_possible(shards: int) -> None:
    assert FanOut("gc", shards, Job().build_shard).shards == shards


@virtual_time
async def test_each_shard_has_a_lease_and_a_run_of_its_own() -> None:
    store, job, built = memory(), Job(), []

    def build(_deps: Dependencies, shard: int) -> Runner:
        built.append(shard)
        return job

    async with Process([FanOut("gc", 4, build)], store) as process:
        assert sorted(built) == [0, 1, 2, 3]
        assert sorted(holders(store)) == [f"gc-leader-{shard}" for shard in range(4)]
        assert process.supervisor.held_shards("gc") == {0, 1, 2, 3}
        assert [report.shard for report in process.supervisor.reports()["gc"]] == ["0", "1", "2", "3"]
        assert {report.status for report in process.supervisor.reports()["gc"]} == {"leading"}
    assert holders(store) == {}
    assert process.supervisor.held_shards("gc") == frozenset()
    assert job.running == 0


@virtual_time
async def test_a_shard_that_crashes_waits_on_its_own_and_is_counted_by_its_number() -> None:
    async def crashes(_ctx: RunContext) -> None:
        raise ValueError

    good, bad = Job(), Job(crashes)
    process = Process([FanOut("gc", 3, lambda _deps, shard: bad if shard == 1 else good)], memory())
    async with process:
        await asyncio.sleep(7)
        assert process.supervisor.held_shards("gc") == {0, 2}
        assert len(good.starts) == 2
        assert len(bad.starts) == 3
        assert process.count("worker_panic", worker="gc", shard="1") == 3
        assert process.count("worker_panic", worker="gc", shard="0") == 0
        assert process.report("gc", 1).status == "backing_off"


@virtual_time
async def test_there_is_one_acquired_and_one_released_event_however_many_shards() -> None:
    process = Process([fan_out(Job(), 50)], memory())
    events = process.supervisor.leader_events()
    async with process:
        await asyncio.sleep(10)
    assert [(event.worker, event.event) async for event in events] == [("gc", "acquired"), ("gc", "released")]
    assert process.count("leader_events", worker="gc", event="acquired") == 1


@virtual_time
async def test_it_goes_on_leading_while_one_shard_is_left() -> None:
    process = Process([fan_out(Job())], memory())
    async with process:
        for shard in range(3):
            process.supervisor.step_down(f"gc-leader-{shard}", 60)
        await asyncio.sleep(STOP_TIMEOUT + 1)
        assert process.supervisor.held_shards("gc") == {3}
        assert process.supervisor.features()["leader_for"] == ["gc"]
        assert process.count("leader_events", worker="gc", event="released") == 0


@virtual_time
async def test_the_card_says_how_many_shards_are_held_and_changes_at_once() -> None:
    process = Process([fan_out(Job())], memory())
    assert process.supervisor.features() == {"leader_for": [], "workers": ["gc"], "fanouts": {}}
    async with process:
        assert process.supervisor.features() == {
            "leader_for": ["gc"],
            "workers": ["gc"],
            "fanouts": {"gc": {"shards": 4, "held": 4, "ready": True}},
        }
        changes = process.changes
        process.supervisor.step_down("gc-leader-2", 60)
        await asyncio.sleep(STOP_TIMEOUT + 0.1)
        assert process.changes > changes
        assert process.supervisor.features()["fanouts"]["gc"]["held"] == 3


@virtual_time
async def test_it_is_not_ready_while_it_crashes_on_what_it_takes_and_tells_both_changes() -> None:
    sick = [True]

    async def body(ctx: RunContext) -> None:
        if sick[0]:
            raise ValueError
        await forever(ctx)

    async with Process([fan_out(Job(body))], memory()) as process:
        assert process.supervisor.features()["fanouts"]["gc"] == {"shards": 4, "held": 0, "ready": False}
        changes, sick[0] = process.changes, False
        await asyncio.sleep(2)
        assert process.supervisor.features()["fanouts"]["gc"] == {"shards": 4, "held": 4, "ready": True}
        assert process.changes > changes


@virtual_time
async def test_one_shard_that_crashes_beside_others_that_work_leaves_it_ready() -> None:
    async def crashes(_ctx: RunContext) -> None:
        raise ValueError

    good, bad = Job(), Job(crashes)
    async with Process([FanOut("gc", 3, lambda _deps, s: bad if s == 1 else good)], memory()) as process:
        assert process.supervisor.features()["fanouts"]["gc"] == {"shards": 3, "held": 2, "ready": True}


@virtual_time
async def test_the_only_shard_that_crashes_makes_it_not_ready() -> None:
    async def crashes(_ctx: RunContext) -> None:
        raise ValueError

    async with Process([fan_out(Job(crashes), 1)], memory()) as process:
        assert process.supervisor.features()["fanouts"]["gc"] == {"shards": 1, "held": 0, "ready": False}


@virtual_time
async def test_stepping_down_concerns_one_shard() -> None:
    async with Process([fan_out(Job())], memory()) as process:
        assert process.supervisor.step_down("gc-leader-2", 60)
        assert not process.supervisor.step_down("gc-leader-9", 60)
        await asyncio.sleep(STOP_TIMEOUT + 1)
        assert process.supervisor.held_shards("gc") == {0, 1, 3}


@virtual_time
async def test_a_shard_that_would_not_end_is_named_by_its_number() -> None:
    good, bad = Job(), Job(stubborn(300))
    process = Process([FanOut("gc", 3, lambda _deps, shard: bad if shard == 1 else good)], memory())
    process.start()
    await asyncio.sleep(1)
    assert await process.stop() == ["gc/1"]
    await asyncio.sleep(400)


@virtual_time
async def test_a_stop_of_many_shards_takes_as_long_as_that_of_one() -> None:
    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(5)

    process = Process([fan_out(Job(body), 200)], memory())
    process.start()
    await asyncio.sleep(5)
    assert len(process.supervisor.held_shards("gc")) == 200
    began = asyncio.get_running_loop().time()
    await process.stop()
    assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.5)


# -- taking


@virtual_time
async def test_one_that_has_its_share_takes_a_free_shard_if_nobody_else_does() -> None:
    fleet = Fleet()
    first, second = fleet.join("worker-1", shards=2), fleet.join("worker-2", shards=2)
    await asyncio.sleep(120)
    assert fleet.held() == {"worker-1": 1, "worker-2": 1}
    (shard,) = second.held()
    second.supervisor.step_down(f"gc-leader-{shard}", 60)
    took = await settles(fleet, lambda: len(first.held()) == 2, 60, look_seconds=0.1)
    assert STOP_TIMEOUT + 2 <= took <= STOP_TIMEOUT + 6.2  # twice as long for one that it gave up itself
    await fleet.end()


@virtual_time
async def test_a_refusal_just_before_makes_nobody_wait_for_a_shard_that_comes_free() -> None:
    """A shard that was asked for in vain is none of its share."""
    store, job = memory(), Job()
    first = Process([fan_out(job, 1)], store)
    first.start()
    await asyncio.sleep(1)
    async with Process([fan_out(job, 1)], store, "worker-2") as second:
        await first.stop()
        await asyncio.sleep(0.1)
        assert second.supervisor.held_shards("gc") == {0}


@virtual_time
async def test_one_below_its_share_takes_a_free_shard_before_one_that_has_its_share() -> None:
    fleet = Fleet()
    for number in (1, 2, 3):
        fleet.join(f"worker-{number}", shards=6)
    await asyncio.sleep(300)
    assert fleet.held() == {"worker-1": 2, "worker-2": 2, "worker-3": 2}
    victim = fleet.members["worker-3"]
    shards = sorted(victim.held())
    victim.supervisor.step_down(f"gc-leader-{shards[0]}", 15)
    await asyncio.sleep(60)
    assert max(fleet.held().values()) <= 3
    await asyncio.sleep(120)
    assert fleet.held() == {"worker-1": 2, "worker-2": 2, "worker-3": 2}
    await fleet.end()


@virtual_time
async def test_processes_that_know_of_each_other_do_not_take_more_than_their_share_at_once() -> None:
    fleet = Fleet()
    for name in ("worker-1", "worker-2", "worker-3"):
        member = fleet.join(name)
        member.backend.cut = True  # the store is away while they learn of each other
    await asyncio.sleep(60)
    for member in fleet.members.values():
        member.backend.cut = False
    most = 0
    for _ in range(60):
        await asyncio.sleep(0.5)
        most = max(most, *fleet.held().values())
    assert len(fleet.owners()) == 12
    assert most <= 8
    await fleet.end()
