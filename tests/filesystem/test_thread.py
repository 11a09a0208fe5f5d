"""The thread: one job at a time, nothing piles up, and nobody has to wait for it."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from drakkar_filesystem._client import Abandoned, FileThread, Proceed
from support.waiting import until


@pytest.fixture
async def thread() -> AsyncIterator[FileThread]:
    thread = FileThread("test-files")
    thread.start()
    yield thread
    thread.close()


class Stuck:
    """A job that does not end until it is let go, like a call on a folder that hangs."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.let_go = threading.Event()
        self.ended = threading.Event()
        self.went_on = False

    def __call__(self, proceed: Proceed) -> None:
        self.began.set()
        try:
            assert self.let_go.wait(60)
            proceed()
            self.went_on = True
        finally:
            self.ended.set()


@pytest.fixture
async def stuck(thread: FileThread) -> AsyncIterator[Stuck]:
    """A job that has the thread, and whose caller has gone."""
    stuck = Stuck()
    await expect_timeout(thread, stuck)
    yield stuck
    stuck.let_go.set()


async def expect_timeout(thread: FileThread, job: Callable[[Proceed], object]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await thread.run(job)


def threads() -> int:
    return sum(thread.name == "test-files" for thread in threading.enumerate())


async def test_it_returns_what_the_job_returns(thread: FileThread) -> None:
    assert await thread.run(lambda proceed: 7) == 7


async def test_it_raises_what_the_job_raises_and_goes_on(thread: FileThread) -> None:
    for error in (OSError("disk"), SystemExit(3)):
        with pytest.raises(type(error)):
            await thread.run(raising(error))

    assert await thread.run(lambda proceed: 7) == 7


def raising(error: BaseException) -> Callable[[Proceed], None]:
    def job(proceed: Proceed) -> None:
        raise error

    return job


async def test_jobs_run_on_a_daemon_thread_of_their_own(thread: FileThread) -> None:
    ran_on = await thread.run(lambda proceed: threading.current_thread())

    assert ran_on.name == "test-files"
    assert ran_on.daemon
    assert ran_on is await thread.run(lambda proceed: threading.current_thread())


async def test_jobs_run_one_at_a_time_in_the_order_of_their_calls(thread: FileThread) -> None:
    done: list[int] = []
    running = threading.Lock()

    def job(number: int) -> Callable[[Proceed], None]:
        def append(proceed: Proceed) -> None:
            assert running.acquire(blocking=False)
            done.append(number)
            running.release()

        return append

    await asyncio.gather(*(thread.run(job(number)) for number in range(50)))

    assert done == list(range(50))


async def test_a_job_keeps_the_thread_after_its_caller_has_gone(thread: FileThread, stuck: Stuck) -> None:
    ran = threading.Event()

    await expect_timeout(thread, lambda proceed: ran.set())

    assert not ran.is_set()


async def test_a_caller_that_waits_is_served_when_the_stuck_job_ends(
    thread: FileThread, stuck: Stuck
) -> None:
    waiting = asyncio.create_task(thread.run(lambda proceed: 7))
    await asyncio.sleep(0)
    assert not waiting.done()

    stuck.let_go.set()

    assert await waiting == 7


async def test_an_abandoned_job_ends_at_its_next_step(thread: FileThread, stuck: Stuck) -> None:
    stuck.let_go.set()
    await thread.run(lambda proceed: None)

    assert stuck.ended.is_set()
    assert not stuck.went_on


async def test_a_job_whose_caller_waits_may_proceed(thread: FileThread) -> None:
    job = Stuck()
    job.let_go.set()

    await thread.run(job)

    assert job.went_on


async def test_nothing_piles_up_behind_a_stuck_job(thread: FileThread, stuck: Stuck) -> None:
    ran: list[int] = []

    for _ in range(100):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await thread.run(lambda proceed: ran.append(1))
        assert thread._jobs.qsize() == 0
        assert threads() == 1
        assert len(asyncio.all_tasks()) == 1
    stuck.let_go.set()
    await thread.run(lambda proceed: None)

    assert ran == []


async def test_a_cancelled_call_ends_at_once(thread: FileThread) -> None:
    job = Stuck()
    call = asyncio.create_task(thread.run(job))
    await until(job.began.is_set)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert not job.ended.is_set()
    job.let_go.set()


async def test_an_error_after_the_caller_has_gone_is_nobodys(thread: FileThread) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    let_go = threading.Event()

    def fail(proceed: Proceed) -> None:
        assert let_go.wait(60)
        raise OSError("stale file handle")

    await expect_timeout(thread, fail)
    let_go.set()
    await thread.run(lambda proceed: None)
    gc.collect()

    assert told == []


async def test_an_error_that_meets_a_cancellation_is_nobodys(thread: FileThread) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    ended = threading.Event()

    def fail(proceed: Proceed) -> None:
        ended.set()
        raise OSError("stale file handle")

    call = asyncio.create_task(thread.run(fail))
    await asyncio.sleep(0)
    assert ended.wait(60)  # holds the loop, so that the end of the job and the cancellation come together
    call.cancel()
    with pytest.raises((OSError, asyncio.CancelledError)):
        await call
    del call
    gc.collect()

    assert told == []
    assert await thread.run(lambda proceed: 7) == 7


def test_a_job_may_end_after_the_loop_was_closed() -> None:
    job = Stuck()

    async def main() -> FileThread:
        thread = FileThread("test-files")
        thread.start()
        await expect_timeout(thread, job)
        return thread

    errors: list[object] = []
    before, threading.excepthook = threading.excepthook, errors.append
    try:
        thread = asyncio.run(main())
        job.let_go.set()
        for one in threading.enumerate():
            if one.name == "test-files":
                one.join(60)
    finally:
        threading.excepthook = before

    assert threads() == 0
    assert errors == []
    thread.close()


async def test_closing_does_not_wait_and_the_thread_ends_with_its_job() -> None:
    thread = FileThread("test-files")
    thread.start()
    job = Stuck()
    await expect_timeout(thread, job)

    thread.close()
    thread.close()

    assert threads() == 1
    job.let_go.set()
    await until(lambda: threads() == 0)


async def test_closing_ends_an_idle_thread() -> None:
    thread = FileThread("test-files")
    thread.start()

    thread.close()

    await until(lambda: threads() == 0)


async def test_it_refuses_a_job_before_the_start_and_after_the_end() -> None:
    thread = FileThread("test-files")
    with pytest.raises(RuntimeError, match="not running"):
        await thread.run(lambda proceed: None)
    thread.start()
    thread.close()
    with pytest.raises(RuntimeError, match="not running"):
        await thread.run(lambda proceed: None)


async def test_a_caller_that_waits_is_refused_when_the_thread_is_closed_meanwhile(thread: FileThread) -> None:
    job = Stuck()
    first = asyncio.create_task(thread.run(job))
    second = asyncio.create_task(thread.run(lambda proceed: None))
    third = asyncio.create_task(thread.run(lambda proceed: None))
    await until(job.began.is_set)

    thread.close()
    job.let_go.set()

    await first
    for waiting in (second, third):
        with pytest.raises(RuntimeError, match="not running"):
            await waiting


async def test_abandoned_is_what_ends_a_job(thread: FileThread) -> None:
    seen: list[BaseException] = []
    let_go = threading.Event()

    def job(proceed: Proceed) -> None:
        assert let_go.wait(60)
        try:
            proceed()
        except Abandoned as error:
            seen.append(error)
            raise

    await expect_timeout(thread, job)
    let_go.set()
    await thread.run(lambda proceed: None)

    assert len(seen) == 1
