"""One call to other people's code: bounded, and never trusted to end.

A provider, a lease backend, an application's callback may raise anything, cancel itself, hang, or ignore its
cancellation; none of that reaches the caller as more than a `CallError`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from drakkar.clock import Clock
from drakkar.errors import describe

_T = TypeVar("_T")

UNWIND_SECONDS: Final = 1.0
"""How long a call that was cancelled may take to end."""


class CallError(Exception):
    """The call raised, took too long, or was refused because an earlier one has not ended.

    `cause` is what was raised, None where nothing was.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


async def bounded(call: Callable[[], Awaitable[_T]], limit_seconds: float) -> _T:
    """Return what `call` returns within `limit_seconds`, else raise `CallError`.

    A call that took too long is cancelled and gets `UNWIND_SECONDS` to end; one that goes on all the same is
    left alone. When this function is cancelled, so is the call.
    """
    return await finish(asyncio.ensure_future(contained(call)), limit_seconds)


async def contained(call: Callable[[], Awaitable[_T]]) -> _T:
    """Return what `call` returns; what would end the event loop out of a task becomes a `CallError`."""
    try:
        return await call()
    except (SystemExit, KeyboardInterrupt) as error:
        raise CallError(describe(error), error) from error


async def finish(task: asyncio.Future[_T], limit_seconds: float) -> _T:
    """Like `bounded`, for a call that the caller has started, `contained`, and may want to look at later."""
    task.add_done_callback(_consume)
    try:
        await asyncio.wait({task}, timeout=limit_seconds)
    finally:
        in_time = task.done()
        if not in_time:
            task.cancel()
            await asyncio.wait({task}, timeout=UNWIND_SECONDS)
    if not in_time:
        raise CallError(f"no answer within {limit_seconds:g} s")
    if task.cancelled():
        raise CallError("the call cancelled itself")
    error = task.exception()
    if isinstance(error, CallError):
        raise error
    if error is not None:
        raise CallError(describe(error), error)
    return task.result()


def _consume(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # else the loop would report an error that nobody can see any more


async def wait_ended(tasks: Iterable[asyncio.Task[Any]], seconds: float, clock: Clock) -> None:
    """Return when all of `tasks` have ended, or after `seconds` of `clock`. Cancels and raises nothing."""
    left = {task: None for task in tasks if not task.done()}
    if not left:
        return
    ended = asyncio.Event()

    def end(task: asyncio.Task[Any]) -> None:
        left.pop(task, None)
        if not left:
            ended.set()

    for task in left:
        task.add_done_callback(end)
    try:
        await clock.wait(ended, seconds)
    finally:
        for task in left:
            task.remove_done_callback(end)


async def see_through(task: asyncio.Task[_T]) -> _T:
    """Return what `task` returns, or raise what it raises, when it has ended.

    A cancellation is passed on after that, never in the middle, and does not reach `task`; which has to be
    bounded, therefore. Any number may wait for one task.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result
