"""Who leads, as a stream of changes and as the set of now."""

import asyncio
import gc

import pytest
from drakkar.supervisor.events import BUFFERED_EVENTS, MAX_NAMES, LeaderEvents
from drakkar.supervisor.history import History
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext, Runner
from drakkar.telemetry.metrics import SupervisorMetrics
from prometheus_client import CollectorRegistry
from support.supervised import Job, Process, forever, memory
from support.virtual_time import VirtualClock, virtual_time


def make(changes: list[int] | None = None) -> LeaderEvents:
    told = changes if changes is not None else []
    metrics = SupervisorMetrics(CollectorRegistry())
    return LeaderEvents(VirtualClock(), metrics, History(), lambda: told.append(1))


@virtual_time
async def test_a_reader_gets_every_change_from_the_call_on() -> None:
    events = make()
    events.emit("gc", True)
    stream = events.stream()
    events.emit("notify", True)
    events.emit("gc", False)
    events.close()
    assert [(event.worker, event.event) async for event in stream] == [
        ("notify", "acquired"),
        ("gc", "released"),
    ]
    assert events.leader_for == ["notify"]


@virtual_time
async def test_saying_the_same_twice_changes_nothing() -> None:
    changes: list[int] = []
    events = make(changes)
    for leading in (False, True, True, False, False):
        events.emit("gc", leading)
    assert len(changes) == 2


@virtual_time
async def test_a_slow_reader_loses_the_oldest_and_slows_nobody() -> None:
    events = make()
    slow = events.stream()
    for number in range(BUFFERED_EVENTS):
        events.emit("gc", number % 2 == 0)
    events.emit("notify", True)
    events.emit("reports", True)
    events.close()
    seen = [event.worker async for event in slow]
    assert len(seen) == BUFFERED_EVENTS
    assert seen[-2:] == ["notify", "reports"]


@virtual_time
async def test_every_reader_gets_its_own_copy() -> None:
    events = make()
    streams = [events.stream(), events.stream()]
    events.emit("gc", True)
    events.close()
    assert [len([event async for event in stream]) for stream in streams] == [1, 1]


@virtual_time
async def test_a_waiting_reader_is_woken_by_a_change_and_by_the_end() -> None:
    events, seen = make(), []

    async def read() -> None:
        async for event in events.stream():
            seen.extend([event.worker])

    reading = asyncio.create_task(read())
    await asyncio.sleep(1)
    events.emit("gc", True)
    await asyncio.sleep(1)
    assert seen == ["gc"]
    events.close()
    await reading


@virtual_time
async def test_a_stream_that_is_asked_for_after_the_end_ends_at_once() -> None:
    events = make()
    events.close()
    assert [event async for event in events.stream()] == []


@virtual_time
async def test_a_reader_that_was_dropped_is_forgotten() -> None:
    events = make()
    for _ in range(10):
        events.stream()
    gc.collect()
    assert len(events._readers) == 0


@pytest.mark.parametrize("name", ["", "x" * 201, "two\nlines", 3, None, "lone \ud800"])
@virtual_time
async def test_what_cannot_be_a_name_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match="not the name"):
        make().emit(name, True)  # type: ignore[arg-type]  # a runner may say anything


@virtual_time
async def test_names_without_end_are_refused() -> None:
    events = make()
    for number in range(MAX_NAMES):
        events.emit(f"made-up-{number}", True)
    with pytest.raises(ValueError, match="more than"):
        events.emit("one more", True)


@virtual_time
async def test_the_stream_of_a_supervisor_ends_when_it_has_ended() -> None:
    process = Process([Job().worker(), Job().worker("notify")], memory())
    stream = process.supervisor.leader_events()
    async with process:
        await asyncio.sleep(1)
    seen = [(event.worker, event.event) async for event in stream]
    assert sorted(seen) == [
        ("gc", "acquired"),
        ("gc", "released"),
        ("notify", "acquired"),
        ("notify", "released"),
    ]
    assert process.count("leader_events", worker="gc", event="released") == 1


# -- workers that keep leases of their own


class SkipsLease:
    """Leads under `gc` for five seconds of every ten."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    async def run(self, ctx: RunContext) -> None:
        assert ctx.lease is None
        while True:
            self._deps.emit_leader("gc", True)
            await asyncio.sleep(5)
            self._deps.emit_leader("gc", False)
            await asyncio.sleep(5)


@virtual_time
async def test_a_worker_without_lease_flips_its_chip_itself() -> None:
    process = Process([BackgroundWorker("gc", SkipsLease, skip_lease=True)], memory())
    async with process:
        assert process.report().status == "running"
        assert process.report().lease is None
        assert process.supervisor.features()["leader_for"] == ["gc"]
        await asyncio.sleep(6)
        assert process.supervisor.features()["leader_for"] == []
        await asyncio.sleep(5)
        assert process.supervisor.features()["leader_for"] == ["gc"]


@virtual_time
async def test_a_worker_without_lease_runs_in_every_process_and_leads_nothing_by_itself() -> None:
    store, job = memory(), Job()
    worker = job.worker(skip_lease=True)
    async with Process([worker], store) as process, Process([worker], store, "worker-2"):
        assert job.running == 2
        assert process.supervisor.features()["leader_for"] == []
        assert store.records == {}


@virtual_time
async def test_the_chip_of_a_worker_without_lease_goes_when_its_run_dies() -> None:
    def build(deps: Dependencies) -> Runner:
        async def body(_ctx: RunContext) -> None:
            deps.emit_leader("gc", True)
            deps.emit_leader("gc-helper", True)
            await asyncio.sleep(1)
            raise ValueError

        return Job(body)

    process = Process([BackgroundWorker("gc", build, skip_lease=True)], memory())
    async with process:
        assert process.supervisor.features()["leader_for"] == ["gc", "gc-helper"]
        await asyncio.sleep(1.5)
        assert process.report().status == "backing_off"
        assert process.supervisor.features()["leader_for"] == []
        assert process.count("worker_panic", worker="gc", shard="-") == 1


@virtual_time
async def test_nonsense_from_a_runner_that_skips_its_lease_is_its_own_crash() -> None:
    def build(deps: Dependencies) -> Runner:
        async def body(ctx: RunContext) -> None:
            deps.emit_leader(None, True)  # type: ignore[arg-type]  # as above
            await forever(ctx)

        return Job(body)

    process = Process([BackgroundWorker("gc", build, skip_lease=True)], memory())
    async with process:
        assert process.count("worker_panic", worker="gc", shard="-") == 1
