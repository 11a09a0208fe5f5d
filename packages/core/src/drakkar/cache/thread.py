"""The one thread of a cache: its file, and what takes long in Python, are handled here, one job at a time.

A daemon of the cache's own: a disk that hangs holds up neither the event loop nor other users of threads, and
the process can end meanwhile, which it cannot while a `ThreadPoolExecutor` works.

A thread that computes keeps the event loop waiting for the interpreter's lock, for milliseconds each time.
Jobs that go on for longer call `breathe` every so often, which lets go of it.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_BREATH_SECONDS: Final = 0.00005
"""Not 0: only who really sleeps is overtaken by who waits for the lock."""

_Job = tuple[Callable[[], Any], asyncio.Future[Any]]


def breathe() -> None:
    """Let the event loop have the interpreter. To be called about once a millisecond by long jobs."""
    time.sleep(_BREATH_SECONDS)


class CacheThread:
    """Runs jobs in the order in which they were handed over, for the event loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._last: Callable[[], object] = lambda: None
        threading.Thread(target=self._work, name="drakkar-cache", daemon=True).start()

    async def run(self, job: Callable[[], T]) -> T:
        """Return what `job` returns, or raise what it raises.

        Cancelling leaves at once; a job that had begun takes effect all the same, another is dropped.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, done))
        return await done

    def close(self, last: Callable[[], object] = lambda: None) -> None:
        """Let the thread end after the jobs that it has and `last`; waits for nothing."""
        self._last = last
        self._jobs.put(None)

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            job, done = taken
            if done.cancelled():
                continue
            outcome, failure = None, None
            try:
                outcome = job()
            except BaseException as error:  # noqa: BLE001  the thread outlives its jobs; who waits raises it
                failure = error
            try:
                self._loop.call_soon_threadsafe(_settle, done, outcome, failure)
            except RuntimeError:  # the loop is closed: nobody waits, and nobody will come
                break
            del taken, job, done, outcome, failure  # an idle thread keeps nothing alive
        self._last()


def _settle(done: asyncio.Future[Any], outcome: Any, failure: BaseException | None) -> None:
    if done.done():  # its caller was cancelled
        return
    if failure is None:
        done.set_result(outcome)
    else:
        done.set_exception(failure)
