"""An event loop whose time passes at once: hours of sleeping in milliseconds, always the same way.

    @virtual_time
    async def test_it_waits() -> None:
        await asyncio.sleep(3600)

Nothing from outside of the loop may be waited for, threads and sockets that is. When every task waits and no
timer is left, the test would hang for ever: it fails at once instead.
"""

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from drakkar.clock import SystemClock

_P = ParamSpec("_P")
_T = TypeVar("_T")


class NothingLeftToWaitForError(Exception):
    """Every task waits for another one."""


_THE_END = 1e8
"""Past it there are only timers that were never meant to end."""


_STEP = 1e-9
"""No step of the loop takes no time at all: a timer may fire this much too early, and be set anew."""


class _Selector(selectors.SelectSelector):
    """Moves the time of its loop instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or self.now > _THE_END):
            raise NothingLeftToWaitForError
        self.now += _STEP if ready or timeout is None else max(timeout, _STEP)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def hold_up(self, seconds: float) -> None:
        self._virtual.now += seconds


class VirtualClock(SystemClock):
    """By the time of the running loop."""

    def elapsed(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> datetime:
        return datetime(2026, 10, 13, tzinfo=UTC) + timedelta(seconds=self.elapsed())


def hold_up(seconds: float) -> None:
    """What a blocking call does to the event loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.hold_up(seconds)


def run_virtual(main: Coroutine[Any, Any, _T]) -> _T:
    """Like `asyncio.run`; raises for a task that is left over."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(main)
        left = sorted(task.get_name() for task in asyncio.all_tasks(runner.get_loop()))
        assert not left, f"tasks are left over: {left}"
        return result


def virtual_time(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Make an async test a plain one that runs in virtual time."""

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    assert not inspect.iscoroutinefunction(run)
    return run
