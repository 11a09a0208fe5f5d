"""The schedule of restarts: as arithmetic, and as a job lives through it."""

import asyncio

import pytest
from drakkar.supervisor.backoff import Backoff
from drakkar.supervisor.worker import RunContext
from support.supervised import Job, Process, forever, ignoring_its_cancellation, memory
from support.virtual_time import virtual_time


@pytest.mark.parametrize(
    ("runs", "waits"),
    [
        ([0.2] * 6, [1, 5, 30, 120, 120, 120]),
        ([299.9] * 5, [1, 5, 30, 120, 120]),
        ([300.0, 3600.0], [0, 0]),
        ([1, 1, 300.0, 1], [1, 5, 0, 1]),
    ],
    ids=["at once", "nearly healthy", "healthy", "reset"],
)
def test_it_waits_longer_after_each_unhealthy_end_and_not_after_a_healthy_one(
    runs: list[float], waits: list[float]
) -> None:
    backoff = Backoff()

    assert [backoff.ended(ran) for ran in runs] == waits


def test_an_end_from_outside_neither_counts_nor_clears() -> None:
    backoff = Backoff()
    backoff.ended(1)
    backoff.ended(1)
    backoff.lasted(299)

    assert backoff.attempts == 2
    assert backoff.ended(1) == 30


def test_five_minutes_of_health_clear_however_they_end() -> None:
    backoff = Backoff()
    backoff.ended(1)
    backoff.lasted(300)

    assert backoff.ended(1) == 1


def dies_after(seconds: float) -> Job:
    async def body(_ctx: RunContext) -> None:
        await asyncio.sleep(seconds)
        raise ValueError

    return Job(body)


@pytest.mark.parametrize("seconds", [0.2, 2.0])
@virtual_time
async def test_one_that_dies_soon_climbs_to_two_minutes_and_stays(seconds: float) -> None:
    """Back-off that never escalates, or never resets: (a) and (b)."""
    job = dies_after(seconds)
    async with Process([job.worker()], memory()):
        await asyncio.sleep(900)
        assert [round(wait - seconds, 1) for wait in job.waits()][:8] == [1, 5, 30, 120, 120, 120, 120, 120]


@virtual_time
async def test_one_that_ran_an_hour_is_restarted_at_once_each_time() -> None:
    """Back-off that never escalates, or never resets: (c). And one that is unhealthy after that waits 1 s."""
    job = dies_after(3600)
    async with Process([job.worker()], memory()):
        await asyncio.sleep(3 * 3600)
        job.body = dies_after(0.2).body
        await asyncio.sleep(3605)
        assert job.waits() == [3600.0, 3600.0, 3600.0, 3600.0, 1.2]


@virtual_time
async def test_a_lost_lease_neither_counts_nor_clears() -> None:
    """Back-off that never escalates, or never resets: (d)."""
    store, job = memory(), dies_after(2)
    async with Process([job.worker()], store) as process:
        await asyncio.sleep(8)  # dead twice, and waiting for the third start
        assert process.report().attempts == 2
        job.body = forever
        await asyncio.sleep(30)
        for _ in range(3):
            del store.records["gc-leader"]
            await asyncio.sleep(12)
        assert len(job.starts) == 6
        assert process.report().attempts == 2
        job.body = dies_after(2).body
        del store.records["gc-leader"]
        await asyncio.sleep(20)
        assert process.report().attempts == 3
        assert process.report().restarts_in_seconds == pytest.approx(20, abs=10)


@virtual_time
async def test_a_poisonous_job_does_not_run_at_full_speed_by_hopping_between_processes() -> None:
    """Back-off that never escalates, or never resets: (e). Each process has its own schedule, so the fleet
    tries at most as often as its processes together would."""
    store, job = memory(), dies_after(0.2)
    async with Process([job.worker()], store), Process([job.worker()], store, "worker-2"):
        await asyncio.sleep(40)
        assert len(job.starts) <= 2 * 4
        climbed = len(job.starts)
        await asyncio.sleep(1200)
        assert len(job.starts) - climbed <= 2 * 1200 / 120 + 2
        assert job.most_at_once == 1


@virtual_time
async def test_the_count_is_nought_as_soon_as_the_run_is_healthy() -> None:
    job = dies_after(0.2)
    async with Process([job.worker()], memory()) as process:
        await asyncio.sleep(0.5)
        job.body = forever
        await asyncio.sleep(299)
        assert process.report().attempts == 1
        await asyncio.sleep(5)
        assert process.report().attempts == 0
        assert process.report().last_error == "ValueError"


@virtual_time
async def test_time_spent_on_ending_is_no_health() -> None:
    async def lingers(ctx: RunContext) -> None:
        async def child() -> None:
            raise ValueError

        ctx.create_task(child())
        await ignoring_its_cancellation(500)

    job = Job(lingers)
    async with Process([job.worker()], memory()) as process:
        await asyncio.sleep(500.5)
        assert process.report().status == "backing_off"
        assert process.report().attempts == 1
