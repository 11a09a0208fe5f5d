"""Calls to a provider: whatever it does, the caller has an answer in bounded time."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from drakkar.calls import UNWIND_SECONDS, CallError, bounded
from drakkar.fleet.calls import Operation, ProviderCalls
from drakkar.telemetry.metrics import RegistryMetrics
from drakkar.telemetry.outages import LOG_EVERY_SECONDS
from prometheus_client import CollectorRegistry
from support.clock import FakeClock, settle
from support.log import RecordingLogger
from support.waiting import until
from support.workers import other_tasks

QUICK = 0.02
OPERATIONS: tuple[Operation, ...] = ("publish", "list", "withdraw")


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = RecordingLogger()
        self.registry = CollectorRegistry()
        self.calls = ProviderCalls(self.clock, self.log, RegistryMetrics(self.registry))

    def metric(self, name: str, op: str) -> float:
        value = self.registry.get_sample_value(f"drakkar_fleet_registry_{name}", {"op": op})
        assert value is not None
        return value

    async def fail(self, op: Operation = "publish", text: str = "gone") -> CallError:
        with pytest.raises(CallError) as caught:
            await self.calls.run(op, raises(OSError(text)), QUICK)
        return caught.value


@pytest.fixture
def bench() -> Bench:
    return Bench()


def raises(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        await asyncio.sleep(0)
        raise error

    return call


async def hangs() -> None:
    await asyncio.Event().wait()


class Stubborn:
    """A call that goes on through its cancellations until it is released."""

    def __init__(self) -> None:
        self.began = 0
        self.cancelled = 0
        self.release = asyncio.Event()

    async def __call__(self) -> None:
        self.began += 1
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    call = Stubborn()
    yield call
    call.release.set()  # else a test that fails would leave a task that never ends


# -- one call


async def test_returns_what_the_call_returns() -> None:
    async def call() -> str:
        return "answer"

    assert await bounded(call, QUICK) == "answer"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("no\n  room"), "OSError: no room"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "the call cancelled itself"),
        (BaseExceptionGroup("many", [KeyboardInterrupt()]), "BaseExceptionGroup of 1: KeyboardInterrupt"),
        (OSError("x" * 10_000), "OSError: " + "x" * 491),
        (TimeoutError(), "TimeoutError"),
        (StopAsyncIteration(), "StopAsyncIteration"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_whatever_the_call_raises_is_one_kind_of_error(error: BaseException, text: str) -> None:
    with pytest.raises(CallError) as caught:
        await bounded(raises(error), 10)
    assert str(caught.value) == text
    if not isinstance(error, asyncio.CancelledError):
        assert caught.value.cause is error


async def test_a_call_that_raises_before_it_waits_is_an_error_like_any_other() -> None:
    def call() -> Awaitable[None]:
        raise OSError("at once")

    with pytest.raises(CallError, match="OSError: at once"):
        await bounded(call, QUICK)


async def test_ends_a_call_at_its_limit() -> None:
    with pytest.raises(CallError, match=r"^no answer within 0\.02 s$") as caught:
        await bounded(hangs, QUICK)
    assert caught.value.cause is None
    assert other_tasks() == set()


async def test_waits_for_a_cancelled_call_to_clean_up() -> None:
    cleaned = False

    async def call() -> None:
        nonlocal cleaned
        try:
            await hangs()
        finally:
            await asyncio.sleep(QUICK)
            cleaned = True

    with pytest.raises(CallError, match="no answer"):
        await bounded(call, QUICK)
    assert cleaned


async def test_leaves_a_call_alone_that_does_not_end(stubborn: Stubborn) -> None:
    async with asyncio.timeout(QUICK + UNWIND_SECONDS + 5):
        with pytest.raises(CallError, match="no answer"):
            await bounded(stubborn, QUICK)
    assert stubborn.cancelled == 1
    stubborn.release.set()
    await until(lambda: other_tasks() == set())


async def test_an_answer_after_the_limit_is_no_answer() -> None:
    async def call() -> str:
        try:
            await hangs()
        except asyncio.CancelledError:
            return "too late"  # what a library does that swallows its cancellation
        return ""

    with pytest.raises(CallError, match="no answer"):
        await bounded(call, QUICK)


async def test_cancelling_it_cancels_the_call_and_passes_on() -> None:
    ended: list[str] = []

    async def call() -> None:
        try:
            await hangs()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    waiting = asyncio.create_task(bounded(call, 60))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == ["cancelled"]
    assert other_tasks() == set()


async def test_cancelling_it_is_bounded_whatever_the_call_does(stubborn: Stubborn) -> None:
    waiting = asyncio.create_task(bounded(stubborn, 60))
    await settle()
    waiting.cancel()
    async with asyncio.timeout(UNWIND_SECONDS + 5):
        await asyncio.wait({waiting})
    assert waiting.cancelled()
    stubborn.release.set()
    await until(lambda: other_tasks() == set())


async def test_a_time_limit_around_it_works_as_around_anything() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(QUICK):
            await bounded(hangs, 60)


async def test_an_error_that_nobody_waits_for_any_more_is_not_reported_to_the_loop() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    release = asyncio.Event()

    async def call() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise OSError("at last")

    with pytest.raises(CallError):
        await bounded(call, QUICK)
    release.set()
    await until(lambda: other_tasks() == set())
    gc.collect()
    await settle()
    assert reported == []


# -- counting and logging


@pytest.mark.parametrize("op", OPERATIONS)
async def test_counts_and_measures_each_operation_by_its_name(bench: Bench, op: Operation) -> None:
    async def call() -> None:
        await bench.clock.advance(2.5)

    await bench.calls.run(op, call, QUICK)
    assert bench.metric("errors_total", op) == 0
    assert bench.metric("duration_seconds_sum", op) == pytest.approx(2.5)
    await bench.fail(op)
    assert bench.metric("errors_total", op) == 1
    assert bench.metric("duration_seconds_count", op) == 2
    for other in set(OPERATIONS) - {op}:
        assert bench.metric("errors_total", other) == bench.metric("duration_seconds_count", other) == 0
    assert bench.log.named(f"fleet_registry_{op}_failed") == [{"error": "OSError: gone", "suppressed": 0}]


async def test_a_call_that_took_too_long_is_measured_and_counted(bench: Bench) -> None:
    with pytest.raises(CallError):
        await bench.calls.run("list", hangs, QUICK)
    assert bench.metric("errors_total", "list") == bench.metric("duration_seconds_count", "list") == 1


async def test_a_call_that_was_cancelled_from_outside_is_no_failure(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.calls.run("list", hangs, 60))
    await settle()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert bench.metric("errors_total", "list") == 0
    assert bench.log.lines == []
    assert bench.calls.failing_since("list") is None


async def test_logs_once_a_minute_and_says_how_many_failures_the_line_stands_for(bench: Bench) -> None:
    for _ in range(7):
        await bench.fail()
        await bench.clock.advance(LOG_EVERY_SECONDS / 4)
    lines = bench.log.named("fleet_registry_publish_failed")
    assert [line["suppressed"] for line in lines] == [0, 3]
    assert bench.metric("errors_total", "publish") == 7


async def test_another_reason_is_told_at_once_and_at_most_four_a_minute(bench: Bench) -> None:
    async def fails(reason: str) -> None:
        raise OSError(reason)

    for number in range(12):  # three rounds of the same four reasons, then one more
        with pytest.raises(CallError):
            await bench.calls.run("publish", partial(fails, f"reason {number % 4}"), QUICK)
        await bench.clock.advance(1)
    with pytest.raises(CallError):
        await bench.calls.run("publish", partial(fails, "reason 4"), QUICK)

    lines = bench.log.named("fleet_registry_publish_failed")
    assert [line["error"] for line in lines] == [f"OSError: reason {number}" for number in range(4)]

    await bench.clock.advance(LOG_EVERY_SECONDS)
    for reason in ("reason 4", "reason 4", "reason 0"):
        with pytest.raises(CallError):
            await bench.calls.run("publish", partial(fails, reason), QUICK)
    lines = bench.log.named("fleet_registry_publish_failed")[4:]
    assert [(line["error"], line["suppressed"]) for line in lines] == [
        ("OSError: reason 4", 9),
        ("OSError: reason 0", 1),
    ]


async def test_the_minute_goes_on_through_a_recovery(bench: Bench) -> None:
    async def works() -> None:
        await asyncio.sleep(0)

    for _ in range(10):  # a store that flaps
        await bench.fail()
        await bench.clock.advance(1)
        await bench.calls.run("publish", works, QUICK)
        await bench.clock.advance(1)
    assert len(bench.log.named("fleet_registry_publish_failed")) == 1
    assert len(bench.log.named("fleet_registry_recovered")) == 1
    await bench.clock.advance(LOG_EVERY_SECONDS)
    await bench.fail()
    assert bench.log.named("fleet_registry_publish_failed")[-1]["suppressed"] == 9


async def test_each_operation_has_a_minute_of_its_own(bench: Bench) -> None:
    for op in OPERATIONS:
        await bench.fail(op)
    assert [event for _, event, _ in bench.log.lines] == [
        "fleet_registry_publish_failed",
        "fleet_registry_list_failed",
        "fleet_registry_withdraw_failed",
    ]


async def test_says_since_when_an_operation_fails(bench: Bench) -> None:
    assert bench.calls.failing_since("list") is None
    await bench.fail("list")
    first = bench.clock.elapsed()
    await bench.clock.advance(10)
    await bench.fail("list")
    assert bench.calls.failing_since("list") == first
    assert bench.calls.failing_since("publish") is None


async def test_says_once_that_an_outage_is_over(bench: Bench) -> None:
    async def works() -> None:
        await asyncio.sleep(0)

    await bench.fail("list")
    await bench.clock.advance(12.5)
    await bench.fail("list")
    for _ in range(3):
        await bench.calls.run("list", works, QUICK)
    assert bench.log.named("fleet_registry_recovered") == [
        {"op": "list", "after_seconds": 12.5, "failures": 2}
    ]
    assert bench.log.level_of("fleet_registry_recovered") == "info"
    assert bench.calls.failing_since("list") is None


# -- calls that do not end


async def test_refuses_a_call_while_an_earlier_one_has_not_ended(bench: Bench, stubborn: Stubborn) -> None:
    with pytest.raises(CallError, match="no answer"):
        await bench.calls.run("list", stubborn, QUICK)
    for _ in range(3):
        with pytest.raises(CallError, match="an earlier call was cancelled and has not ended"):
            await bench.calls.run("list", stubborn, QUICK)
    assert stubborn.began == 1
    assert bench.metric("errors_total", "list") == 4
    stubborn.release.set()
    await until(lambda: other_tasks() == set())
    await bench.calls.run("list", stubborn, QUICK)
    assert stubborn.began == 2


async def test_a_call_that_does_not_end_holds_no_other_operation(bench: Bench, stubborn: Stubborn) -> None:
    with pytest.raises(CallError):
        await bench.calls.run("list", stubborn, QUICK)

    async def works() -> str:
        return "published"

    assert await bench.calls.run("publish", works, QUICK) == "published"
    stubborn.release.set()
    await until(lambda: other_tasks() == set())
