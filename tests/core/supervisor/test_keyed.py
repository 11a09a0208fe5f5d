"""A fan-out over the keys of a set that changes, with and without a gate."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.keyed import KeyedFanOut
from drakkar.supervisor.keys import MAX_KEYS
from drakkar.supervisor.shares import fnv32a
from drakkar.supervisor.worker import Dependencies, RunContext, Runner
from support.supervised import (
    STOP_TIMEOUT,
    Job,
    Process,
    forever,
    holders,
    ignoring_its_cancellation,
    memory,
    stubborn,
)
from support.virtual_time import virtual_time

BUCKETS = [f"bucket-{number}" for number in range(20)]


class Items:
    """A job for each key, and the set of keys as it is now."""

    def __init__(self, *keys: str) -> None:
        self.keys: Any = set(keys)
        self.jobs: dict[str, Job] = {}
        self.asked = 0

    async def ask(self) -> Iterable[str]:
        self.asked += 1
        keys: Iterable[str] = self.keys
        return keys

    def build(self, _deps: Dependencies, key: str) -> Runner:
        return self.jobs.setdefault(key, Job())

    def running(self) -> set[str]:
        return {key for key, job in self.jobs.items() if job.running}

    def fan_out(
        self, gate: FanOut | None = None, ask: Callable[[], Awaitable[Iterable[str]]] | None = None
    ) -> KeyedFanOut:
        return KeyedFanOut("lifecycle", ask or self.ask, self.build, gate)


@virtual_time
async def test_each_key_has_a_lease_and_a_run_of_its_own() -> None:
    store, items = memory(), Items("a", "b")
    async with Process([items.fan_out()], store) as process:
        assert sorted(holders(store)) == ["lifecycle-leader-a", "lifecycle-leader-b"]
        assert items.running() == {"a", "b"}
        assert process.supervisor.features()["leader_for"] == ["lifecycle"]
        assert [report.shard for report in process.supervisor.reports()["lifecycle"]] == ["a", "b"]
    assert holders(store) == {}
    assert items.running() == set()


@virtual_time
async def test_it_follows_the_keys_every_thirty_seconds() -> None:
    store, items = memory(), Items("a", "b")
    async with Process([items.fan_out()], store):
        items.keys = {"b", "c"}
        await asyncio.sleep(31)
        assert items.running() == {"b", "c"}
        assert sorted(holders(store)) == ["lifecycle-leader-b", "lifecycle-leader-c"]
        assert len(items.jobs["b"].starts) == 1
        assert items.asked == 2


@virtual_time
async def test_two_processes_share_the_keys_and_neither_works_on_one_of_the_others() -> None:
    store, items = memory(), Items(*BUCKETS)
    async with Process([items.fan_out()], store), Process([items.fan_out()], store, "worker-2"):
        await asyncio.sleep(100)
        assert items.running() == set(BUCKETS)
        assert max(job.most_at_once for job in items.jobs.values()) == 1


@virtual_time
async def test_a_key_that_vanishes_and_comes_back_while_its_run_cleans_up_is_never_run_twice_at_once() -> (
    None
):
    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(STOP_TIMEOUT - 1)

    items = Items("a")
    items.jobs["a"] = Job(body)
    async with Process([KeyedFanOut("lifecycle", items.ask, items.build, keys_seconds=2)], memory()):
        items.keys = set()
        await asyncio.sleep(3)
        items.keys = {"a"}
        await asyncio.sleep(20)
        assert len(items.jobs["a"].starts) == 2
        assert items.jobs["a"].most_at_once == 1


@virtual_time
async def test_a_run_whose_key_comes_and_goes_while_it_would_not_end_is_named_at_the_stop() -> None:
    """A stop that hangs keeps the lease for ever: a process must not leave well with a run at work."""
    items = Items("a")
    items.jobs["a"] = Job(stubborn(600))
    async with Process(
        [KeyedFanOut("lifecycle", items.ask, items.build, keys_seconds=2)], memory()
    ) as process:
        for keys in (set[str](), {"a"}, set[str]()):
            items.keys = keys
            await asyncio.sleep(5)
        assert await process.stop() == ["lifecycle/a"]
        await asyncio.sleep(600)


@virtual_time
async def test_a_key_that_vanished_while_its_run_was_stuck_is_led_again_when_that_has_ended() -> None:
    """A stop that hangs keeps the lease for ever: the name is free again as soon as the run is over."""

    store, items = memory(), Items("a")
    items.jobs["a"] = job = Job(stubborn(120))
    async with Process([items.fan_out()], store) as process:
        items.keys = set()
        await asyncio.sleep(30 + STOP_TIMEOUT + 2)
        assert process.report("lifecycle").status == "stuck"
        items.keys = {"a"}
        await asyncio.sleep(31)
        assert [report.status for report in process.supervisor.reports()["lifecycle"]] == ["stuck"]
        job.body = forever
        await asyncio.sleep(170)
        assert len(job.starts) == 2
        assert job.most_at_once == 1
        assert holders(store) == {"lifecycle-leader-a": "worker-1"}


@virtual_time
async def test_a_stop_is_bounded_while_the_run_of_a_vanished_key_is_stuck() -> None:
    items = Items("a")
    items.jobs["a"] = Job(stubborn(500))
    process = Process([items.fan_out()], memory())
    process.start()
    await asyncio.sleep(1)
    items.keys = set()
    await asyncio.sleep(60)
    began = asyncio.get_running_loop().time()
    assert await process.stop() == ["lifecycle/a"]
    assert asyncio.get_running_loop().time() - began < 1
    await asyncio.sleep(600)


@virtual_time
async def test_a_key_that_crashes_waits_on_its_own_and_is_no_label_of_the_metrics() -> None:
    """Keys come and go for ever; a series of each would stay."""

    async def crashes(_ctx: RunContext) -> None:
        raise ValueError

    items = Items("a", "b")
    items.jobs["a"] = Job(crashes)
    async with Process([items.fan_out()], memory()) as process:
        await asyncio.sleep(2)
        assert len(items.jobs["a"].starts) == 2
        assert len(items.jobs["b"].starts) == 1
        assert process.count("worker_panic", worker="lifecycle", shard="-") == 2
        assert process.log.named("worker_crashed")[0]["shard"] == "a"


@virtual_time
async def test_there_is_one_acquired_and_one_released_event_however_many_keys() -> None:
    process = Process([Items(*BUCKETS).fan_out()], memory())
    events = process.supervisor.leader_events()
    async with process:
        await asyncio.sleep(10)
    assert [event.event async for event in events] == ["acquired", "released"]


@virtual_time
async def test_stepping_down_concerns_one_key() -> None:
    store, items = memory(), Items("a", "b")
    async with Process([items.fan_out()], store) as process:
        assert process.supervisor.step_down("lifecycle-leader-a", 60)
        assert not process.supervisor.step_down("lifecycle-leader-z", 60)
        await asyncio.sleep(STOP_TIMEOUT + 1)
        assert items.running() == {"b"}


# -- the function that gives the keys


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("no database"),
        SystemExit(1),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        ExceptionGroup("g", [ValueError()]),
    ],
    ids=lambda error: type(error).__name__,
)
@virtual_time
async def test_a_failure_leaves_the_keys_as_they_were_and_is_told_once(answer: BaseException) -> None:
    items, failing = Items("a"), [False]

    async def ask() -> Iterable[str]:
        if failing[0]:
            raise answer
        return await items.ask()

    async with Process([items.fan_out(ask=ask)], memory()) as process:
        failing[0] = True
        await asyncio.sleep(200)
        assert items.running() == {"a"}
        assert len(process.log.named("worker_keys_failed")) == 1
        failing[0] = False
        items.keys = {"b"}
        await asyncio.sleep(31)
        assert items.running() == {"b"}


def endless() -> Iterable[str]:
    number = 0
    while True:
        number += 1
        yield str(number)


@pytest.mark.parametrize(
    "nonsense",
    [None, 3, "abc", b"abc", endless(), [str(number) for number in range(MAX_KEYS + 1)]],
    ids=["none", "number", "text", "bytes", "endless", "too many"],
)
@virtual_time
async def test_nonsense_leaves_the_keys_as_they_were(nonsense: Any) -> None:
    items = Items("a")
    async with Process([items.fan_out()], memory()) as process:
        items.keys = nonsense
        await asyncio.sleep(31)
        assert items.running() == {"a"}
        assert len(process.log.named("worker_keys_failed")) == 1


@pytest.mark.parametrize(
    "function", [lambda: ["a"], lambda: None, endless], ids=["list", "none", "generator"]
)
@virtual_time
async def test_a_function_that_is_no_coroutine_function_is_told(function: Any) -> None:
    async with Process([Items().fan_out(ask=function)], memory()) as process:
        assert len(process.log.named("worker_keys_failed")) == 1


@virtual_time
async def test_keys_that_cannot_be_are_left_out_and_named_once() -> None:
    items = Items()
    items.keys = ["good", "", "x" * 190, 3, None, ["a"], "lone \ud800"]
    async with Process([items.fan_out()], memory()) as process:
        await asyncio.sleep(100)
        assert items.running() == {"good"}
        (line,) = process.log.named("worker_keys_refused")
        assert line["count"] == 6
        assert len(line["keys"]) == 5


@virtual_time
async def test_any_text_can_be_a_key() -> None:
    keys = {"a b", "a,b", "ü/..", "\n", "a-leader-b", "x" * 183}
    items = Items(*keys)
    async with Process([items.fan_out()], memory()):
        assert items.running() == keys


@virtual_time
async def test_one_that_takes_longer_than_the_period_is_waited_for() -> None:
    async def ask() -> Iterable[str]:
        await asyncio.sleep(20)
        return ["a"]

    items = Items()
    keyed = KeyedFanOut("lifecycle", ask, items.build, keys_seconds=1)
    async with Process([keyed], memory()) as process:
        await asyncio.sleep(60)
        assert items.running() == {"a"}
        assert process.log.named("worker_keys_failed") == []


@virtual_time
async def test_one_that_failed_is_asked_again_soon_however_long_the_period() -> None:
    calls = []

    async def ask() -> Iterable[str]:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError
        return ["a"]

    items = Items()
    async with Process([KeyedFanOut("lifecycle", ask, items.build, keys_seconds=3600)], memory()):
        await asyncio.sleep(31)
        assert items.running() == {"a"}
        await asyncio.sleep(600)
        assert len(calls) == 2


@virtual_time
async def test_one_that_hangs_is_cancelled_in_time_and_asked_again() -> None:
    items, calls = Items("a"), []

    async def ask() -> Iterable[str]:
        calls.append(1)
        if len(calls) == 2:
            await asyncio.Event().wait()
        return await items.ask()

    async with Process([items.fan_out(ask=ask)], memory()) as process:
        await asyncio.sleep(95)
        assert len(calls) == 3
        assert process.log.named("worker_keys_failed")[0]["error"] == "no answer within 30 s"


@virtual_time
async def test_one_that_ignores_its_cancellation_is_not_asked_twice_at_once_and_holds_up_no_stop() -> None:
    calls = []

    async def ask() -> Iterable[str]:
        calls.append(1)
        await ignoring_its_cancellation(500)
        return []

    process = Process([Items().fan_out(ask=ask)], memory())
    process.start()
    await asyncio.sleep(200)
    assert len(calls) == 1
    began = asyncio.get_running_loop().time()
    await process.stop()
    assert asyncio.get_running_loop().time() - began <= 1.1
    await asyncio.sleep(600)


@virtual_time
async def test_a_stop_while_the_function_hangs_is_quick() -> None:
    async def ask() -> Iterable[str]:
        await asyncio.Event().wait()
        return []

    process = Process([Items().fan_out(ask=ask)], memory())
    process.start()
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    await process.stop()
    assert asyncio.get_running_loop().time() - began < 0.1


# -- gates


def gate_of(job: Job, shards: int = 4) -> FanOut:
    return FanOut("gc", shards, job.build_shard)


@virtual_time
async def test_with_a_gate_a_key_is_worked_on_where_any_held_shard_of_the_gate_is_its_own() -> None:
    store, items, job = memory(), Items(*BUCKETS), Job()
    gate = gate_of(job)
    async with (
        Process([gate, items.fan_out(gate)], store) as first,
        Process([gate, items.fan_out(gate)], store, "worker-2") as second,
    ):
        first.supervisor.step_down("gc-leader-1", 3600)
        first.supervisor.step_down("gc-leader-3", 3600)
        await asyncio.sleep(STOP_TIMEOUT + 40)
        assert first.supervisor.held_shards("gc") == {0, 2}
        assert second.supervisor.held_shards("gc") == {1, 3}
        assert items.running() == set(BUCKETS)
        for key in BUCKETS:
            expected = "worker-1" if fnv32a(key) % 4 in (0, 2) else "worker-2"
            assert holders(store)[f"lifecycle-leader-{key}"] == expected
        assert max(each.most_at_once for each in items.jobs.values()) == 1


@virtual_time
async def test_when_the_shard_of_the_gate_goes_the_keys_are_cancelled_awaited_and_given_back() -> None:
    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(4)

    store, items = memory(), Items("a")
    items.jobs["a"] = Job(body)
    gate = gate_of(Job(), 1)
    async with Process([gate, items.fan_out(gate)], store) as process:
        process.supervisor.step_down("gc-leader-0", 3600)
        await asyncio.sleep(STOP_TIMEOUT + 2)
        assert "lifecycle-leader-a" in holders(store)
        await asyncio.sleep(3)
        assert holders(store) == {}
        assert items.running() == set()


@virtual_time
async def test_without_any_shard_of_the_gate_no_key_is_asked_for() -> None:
    store, items = memory(), Items(*BUCKETS)
    gate = gate_of(Job(), 1)
    async with (
        Process([gate], store),
        Process([gate, items.fan_out(gate)], store, "worker-2") as second,
    ):
        await asyncio.sleep(100)
        assert items.running() == set()
        assert second.supervisor.reports()["lifecycle"] == []


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_period_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="keys_seconds"):
        KeyedFanOut("lifecycle", Items().ask, Items().build, keys_seconds=seconds)


def test_a_gate_that_is_no_fan_out_is_refused() -> None:
    gate: Any = "gc"
    with pytest.raises(ValueError, match="must be a FanOut"):
        KeyedFanOut("lifecycle", Items().ask, Items().build, gate)
