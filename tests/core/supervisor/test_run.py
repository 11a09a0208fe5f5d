"""One run: whatever comes out of it stays inside, and it is over only when nothing of it is left."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import pytest
from drakkar.supervisor.crash import describe_crash, traceable
from drakkar.supervisor.run import Run
from drakkar.supervisor.worker import RunContext, Runner
from support.log import RecordingLogger
from support.supervised import ignoring_its_cancellation
from support.virtual_time import virtual_time

Body = Callable[[RunContext], Coroutine[Any, Any, None]]


class Does:
    """A runner that does what it was given."""

    def __init__(self, body: Body) -> None:
        self.run = body


def start(body: Body | None = None, build: Callable[[], Any] | None = None) -> Run:
    make: Callable[[], Runner] = build or (lambda: Does(body or forever))
    return Run("gc", make, None, RecordingLogger(), lambda: None)


async def forever(_ctx: RunContext) -> None:
    await asyncio.Event().wait()


async def ended(run: Run) -> BaseException | None:
    async with asyncio.timeout(1000):
        while not run.finished:  # noqa: ASYNC110  virtual time
            await asyncio.sleep(0.1)
    return run.crash


class UnspeakableError(Exception):
    """Its text ends the process."""

    def __str__(self) -> str:
        raise SystemExit(3)


def deep_group(depth: int) -> BaseExceptionGroup[BaseException]:
    """A group that holds `3 ** depth` errors, and few objects."""
    group = BaseExceptionGroup("inmost", [ValueError("one"), SystemExit(2)])
    for _ in range(depth):
        group = BaseExceptionGroup("outer", [group, group, group])
    return group


ESCAPES = [
    ValueError("no"),
    SystemExit(1),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopAsyncIteration(),
    MemoryError(),
    asyncio.CancelledError("of my own"),
    BaseExceptionGroup("several", [SystemExit(1), KeyboardInterrupt()]),
    ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    UnspeakableError(),
    deep_group(60),
]


@pytest.mark.parametrize("error", ESCAPES, ids=lambda error: type(error).__name__)
@virtual_time
async def test_whatever_run_raises_is_the_crash_of_the_run(error: BaseException) -> None:
    async def body(_ctx: RunContext) -> None:
        await asyncio.sleep(1)
        raise error

    assert await ended(start(body)) is error


@pytest.mark.parametrize("error", ESCAPES, ids=lambda error: type(error).__name__)
@virtual_time
async def test_whatever_build_raises_is_the_crash_of_the_run(error: BaseException) -> None:
    def build() -> NoReturn:
        raise error

    assert await ended(start(build=build)) is error


@pytest.mark.parametrize(
    "error", [e for e in ESCAPES if not isinstance(e, asyncio.CancelledError)], ids=lambda e: type(e).__name__
)
@virtual_time
async def test_whatever_a_task_of_the_run_raises_is_the_crash_of_the_run(error: BaseException) -> None:
    async def child() -> None:
        await asyncio.sleep(1)
        raise error

    async def body(ctx: RunContext) -> None:
        ctx.create_task(child())
        await forever(ctx)

    assert await ended(start(body)) is error


@virtual_time
async def test_endless_recursion_is_the_crash_of_the_run() -> None:
    async def body(ctx: RunContext) -> None:
        await body(ctx)

    assert isinstance(await ended(start(body)), RecursionError)


async def coroutine_function() -> Runner:
    return Does(forever)


class RunIsPlain:
    def run(self, ctx: RunContext) -> None:
        """Returns None, which cannot be awaited."""


class RunIsNoFunction:
    run = 3


class RunCannotBeRead:
    @property
    def run(self) -> Body:
        raise SystemExit


class YieldsNonsense:
    async def run(self, _ctx: RunContext) -> None:
        await self

    def __await__(self) -> Any:
        yield "nonsense"


@pytest.mark.parametrize(
    "build",
    [
        lambda: None,
        lambda: 3,
        coroutine_function,
        RunIsPlain,
        RunIsNoFunction,
        RunCannotBeRead,
        YieldsNonsense,
    ],
)
@virtual_time
async def test_nonsense_from_build_is_a_crash(build: Callable[[], Any]) -> None:
    assert await ended(start(build=build)) is not None


@virtual_time
async def test_a_clean_return_is_no_crash() -> None:
    async def body(_ctx: RunContext) -> None:
        await asyncio.sleep(1)

    assert await ended(start(body)) is None


@virtual_time
async def test_an_end_that_was_asked_for_is_no_crash() -> None:
    run = start()
    await asyncio.sleep(1)
    run.end()

    assert await ended(run) is None


@virtual_time
async def test_a_run_that_is_ended_before_its_first_step_builds_nothing() -> None:
    built = []
    run = start(build=lambda: built.append(1))
    run.end()
    await ended(run)

    assert built == []


@virtual_time
async def test_a_runner_that_cancels_its_own_task_has_crashed() -> None:
    async def body(_ctx: RunContext) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    assert isinstance(await ended(start(body)), asyncio.CancelledError)


@virtual_time
async def test_it_is_not_over_before_its_tasks_have_ended() -> None:
    seen = []

    async def child() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
            seen.append("cleaned up")

    async def body(ctx: RunContext) -> None:
        ctx.create_task(child())
        await asyncio.sleep(1)

    run = start(body)
    await asyncio.sleep(4)
    assert run.ending
    assert not run.finished
    await ended(run)
    assert seen == ["cleaned up"]


@virtual_time
async def test_a_task_that_outlives_the_run_keeps_it_from_being_over() -> None:
    async def body(ctx: RunContext) -> None:
        ctx.create_task(ignoring_its_cancellation(150))
        await asyncio.sleep(1)

    run = start(body)
    await asyncio.sleep(60)
    assert run.ending
    assert not run.finished
    assert await ended(run) is None


@virtual_time
async def test_a_crashed_task_ends_the_run_and_its_other_tasks() -> None:
    ends = []

    async def sibling() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ends.append("sibling")

    async def child() -> None:
        await asyncio.sleep(1)
        raise ValueError

    async def body(ctx: RunContext) -> None:
        ctx.create_task(sibling())
        ctx.create_task(child())
        try:
            await forever(ctx)
        finally:
            ends.append("run")

    run = start(body)
    assert isinstance(await ended(run), ValueError)
    assert sorted(ends) == ["run", "sibling"]


@virtual_time
async def test_a_run_that_awaits_a_task_that_crashes_ends_by_it() -> None:
    async def child() -> None:
        raise ValueError("of the child")

    async def body(ctx: RunContext) -> None:
        await ctx.create_task(child())

    assert str(await ended(start(body))) == "of the child"


@virtual_time
async def test_a_task_gives_its_result() -> None:
    results = []

    async def child() -> int:
        return 7

    async def body(ctx: RunContext) -> None:
        results.append(await ctx.create_task(child()))

    assert await ended(start(body)) is None
    assert results == [7]


@virtual_time
async def test_a_clean_up_is_not_cancelled_a_second_time() -> None:
    cleaned = []

    async def child() -> None:
        await asyncio.sleep(1)
        raise ValueError

    async def body(ctx: RunContext) -> None:
        ctx.create_task(child())
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(5)
            cleaned.append(True)

    run = start(body)
    await asyncio.sleep(3)
    run.end()
    await ended(run)
    assert cleaned == [True]


@virtual_time
async def test_a_task_made_while_the_run_ends_never_begins() -> None:
    began = []

    async def child() -> None:
        began.append(1)

    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            ctx.create_task(child())

    run = start(body)
    await asyncio.sleep(1)
    run.end()
    await ended(run)
    assert began == []


@pytest.mark.parametrize("work", [None, forever, asyncio.sleep])
@virtual_time
async def test_a_task_of_something_else_than_a_coroutine_is_refused(work: Any) -> None:
    async def body(ctx: RunContext) -> None:
        ctx.create_task(work)

    assert isinstance(await ended(start(body)), TypeError)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "ValueError: no"),
        (UnspeakableError(), "UnspeakableError"),
        (
            ExceptionGroup("g", [ValueError("a"), KeyError("b")]),
            "ExceptionGroup: ValueError: a; KeyError: 'b'",
        ),
        (deep_group(60), "BaseExceptionGroup: ValueError: one; SystemExit: 2; ValueError: one"),
    ],
    ids=["plain", "unspeakable", "group", "deep"],
)
def test_a_crash_is_told_in_one_line_in_bounded_time(error: BaseException, text: str) -> None:
    assert describe_crash(error) == text


def doubled(times: int) -> BaseException:
    error: BaseException = ValueError()
    for _ in range(times):
        error = BaseExceptionGroup("all attempts failed", [error, error])
    return error


def behind_one_another(count: int) -> BaseException:
    first = error = ValueError()
    for _ in range(count):
        error.__context__ = error = ValueError()
    error.__context__ = first
    return first


def caused(cause: BaseException) -> BaseException:
    error = RuntimeError()
    error.__cause__ = error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("make", "is_traceable"),
    [
        (ValueError, True),
        (lambda: doubled(5), True),
        (lambda: behind_one_another(100), True),
        (lambda: caused(doubled(5)), True),
        (lambda: doubled(60), False),
        (lambda: caused(doubled(60)), False),
        (lambda: BaseExceptionGroup("many", [ValueError()] * 20_000), False),
    ],
    ids=["one", "a few", "a circle", "a few behind it", "endless", "endless behind it", "many"],
)
def test_only_what_ends_is_traced(make: Callable[[], BaseException], is_traceable: bool) -> None:
    error = make()
    is_traced = traceable(error) is error  # not in the assert, whose message would have no end
    assert is_traced == is_traceable


class PlainRun:
    """A runner whose `run` lacks its `async`."""

    def run(self, _ctx: RunContext) -> int:
        return 42


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (42, "TypeError: build must return an object with a method run, not int"),
        (None, "TypeError: build must return an object with a method run, not NoneType"),
        (PlainRun(), "TypeError: run must be written as async def; it returned int"),
    ],
)
@virtual_time
async def test_what_is_no_runner_is_told_in_words_for_the_author_of_the_job(made: object, told: str) -> None:
    crash = await ended(start(build=lambda: made))

    assert crash is not None
    assert describe_crash(crash) == told
