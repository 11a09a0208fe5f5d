"""The one thread on which the file calls of a provider run.

A call on a network folder can hang for minutes and cannot be interrupted. So the thread is a daemon of the
provider's own: the event loop goes on, other users of threads do not wait, and the process can exit while a
call hangs, which it cannot with a `ThreadPoolExecutor`, whose threads are joined at exit.

Nothing piles up behind a call that hangs. A job is handed over only when the thread is free; until then its
caller waits on the event loop, and leaves when its time limit ends.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")

Proceed = Callable[[], None]
"""What a job calls before each step: it raises `Abandoned` once nobody waits for the job any longer."""


class Abandoned(Exception):  # noqa: N818 - not an error: its caller has gone, and nobody sees it
    """The caller of this job has left, so the job ends without further effect."""


class _Job(Generic[T]):
    def __init__(self, work: Callable[[Proceed], T], ended: asyncio.Future[None]) -> None:
        self._work = work
        self._value: T | None = None
        self._error: BaseException | None = None
        self.ended = ended
        self.abandoned = False

    def run(self) -> None:
        try:
            self._value = self._work(self._proceed)
        except BaseException as error:  # noqa: BLE001 - the thread must outlive its jobs; result() raises it
            self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def _proceed(self) -> None:
        if self.abandoned:
            raise Abandoned


class FileThread:
    """Runs one job at a time for the event loop that started it."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job[object] | None] = queue.SimpleQueue()  # never holds more than one
        self._free = asyncio.Lock()  # held by a job, not by its caller, who may leave before the job ends
        self._loop: asyncio.AbstractEventLoop | None = None
        self._name = name
        self._closed = False

    def start(self) -> None:
        """Start the thread; call it once, on the event loop."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run_jobs, args=(self._loop,), name=self._name, daemon=True).start()

    async def run(self, work: Callable[[Proceed], T]) -> T:
        """Return what `work` returns, or raise what it raises; waits while an earlier job has the thread.

        Cancelling returns at once. The job keeps the thread until its present step ends; then `Abandoned`
        ends it, and its outcome is dropped.
        """
        loop = self._running_loop()
        await self._free.acquire()
        try:
            self._running_loop()  # it may have been closed meanwhile
        except RuntimeError:
            self._free.release()
            raise
        job = _Job(work, loop.create_future())
        self._jobs.put(cast("_Job[object]", job))
        try:
            await job.ended
        finally:
            job.abandoned = True
        return job.result()

    def close(self) -> None:
        """Let the thread end when its job does; waits for nothing and may be called again."""
        self._closed = True
        self._jobs.put(None)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._closed:
            raise RuntimeError("the provider is not running: it was not started, or was stopped")
        return self._loop

    def _run_jobs(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            try:
                loop.call_soon_threadsafe(self._end, job)
            except RuntimeError:  # the loop is closed: nobody waits, and nobody will come
                return
            del job  # an idle thread keeps no listing alive

    def _end(self, job: _Job[object]) -> None:
        self._free.release()
        if not job.ended.done():  # else the caller was cancelled
            job.ended.set_result(None)
