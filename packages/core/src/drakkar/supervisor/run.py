"""One run of one runner: built, contained, cancelled, awaited.

Whatever comes out of `build`, `run` or a task of the run stays here. A run is over only when all of its tasks
have ended.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from drakkar.fleet.provider import EventLogger
from drakkar.supervisor.worker import LeaseHandle, RunContext, Runner


class Run:
    """Starts at once. `on_change` is called when `ending` or `finished` turns true."""

    def __init__(
        self,
        name: str,
        build: Callable[[], Runner],
        lease: LeaseHandle | None,
        logger: EventLogger,
        on_change: Callable[[], None],
    ) -> None:
        self.crash: BaseException | None = None
        """What the run died of; None after a clean return, or when it ended because it was asked to."""
        self.ending = False
        """Whether the run has returned, crashed or been asked to end. All of its tasks are cancelled then."""
        self.finished = False
        """Whether the run and all of its tasks are over."""
        self.yielding = asyncio.Event()
        self._name = f"drakkar run {name}"
        self._on_change = on_change
        self._children: set[asyncio.Task[Any]] = set()
        context = RunContext(name, lease, logger, self.yielding, self._create_task)
        self._task = asyncio.create_task(self._run(build, context), name=self._name)
        self._task.add_done_callback(self._task_done)

    def end(self) -> None:
        """Cancel the run and its tasks, once. A second cancellation would break into their clean-up: one that
        waits for a thread would then look ended while the thread goes on."""
        if self.ending:
            return
        self.ending = True
        for task in (self._task, *self._children):
            if task is not asyncio.current_task():  # which is ending already
                task.cancel()
        self._on_change()

    async def _run(self, build: Callable[[], Runner], context: RunContext) -> None:
        try:
            runner = build()
            if asyncio.iscoroutine(runner):
                runner.close()
                raise TypeError("build must be a plain function, not a coroutine function")
            await _work_of(runner, context)
        except asyncio.CancelledError as error:
            if not self.ending:  # of the runner's own making
                self._crashed(error)
        except BaseException as error:  # noqa: BLE001  SystemExit would end the event loop
            self._crashed(error)
        self.end()

    def _create_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        if not asyncio.iscoroutine(work):
            raise TypeError(f"create_task takes a coroutine, not {type(work).__name__}")

        async def contained() -> Any:
            try:
                return await work
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self._crashed(error)
                self.end()
                raise asyncio.CancelledError from error  # for a run that awaits it; the crash is ours to tell

        task = asyncio.create_task(contained(), name=self._name)
        self._children.add(task)
        task.add_done_callback(self._task_done)
        task.add_done_callback(lambda _: work.close())  # cancelled before its first step, it was never begun
        if self.ending:
            task.cancel()
        return task

    def _crashed(self, error: BaseException) -> None:
        if self.crash is None:
            self.crash = error

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._children.discard(task)
        if self._task.done() and not self._children and not self.finished:
            self.ending = self.finished = True
            self._on_change()


def _work_of(runner: object, context: RunContext) -> Awaitable[None]:
    """What `run` returned. Raises `TypeError`, in words for the author of the job, for what is no runner."""
    run = getattr(runner, "run", None)
    if not callable(run):
        raise TypeError(f"build must return an object with a method run, not {type(runner).__name__}")
    work = run(context)
    if not inspect.isawaitable(work):
        raise TypeError(f"run must be written as async def; it returned {type(work).__name__}")
    return work
