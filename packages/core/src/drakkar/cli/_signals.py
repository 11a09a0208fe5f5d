"""An event loop that hears of signals, and a process that ends in bounded time after it."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from drakkar.cli._entry import SIGNALS, end_without_teardown

T = TypeVar("T")

_EXIT_SECONDS: Final = 5.0
"""How long the process may take to end once its work has ended: tasks, threads and exit functions of other
people's code may hang."""


def run_until_signal(work: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    """Run `work` in a new event loop and return its result, the exit status of the process.

    `work` is given an event that is set at SIGTERM, SIGINT or SIGHUP, and is expected to end soon after
    that. It is never interrupted; more signals change nothing, neither before nor after it has ended. The
    process must end after this, since signals are ignored from then on.
    """
    return asyncio.run(_hearing(work))


async def unless(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` returns; None when `stopping` was set first and `work` has ended by cancellation.

    Work that ends in spite of that counts: it is returned, or its error raised.
    """
    working = asyncio.create_task(work)
    told = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        working.cancel()  # which does nothing when it has ended
        await asyncio.wait({working, told})
    return None if working.cancelled() else working.result()


async def _hearing(work: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    # A busy loop's wake-up socket is full after some hundred signals, and wakes it all the same.
    signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)
    status = 1
    try:
        status = await work(stopping)
    finally:
        _ignore_signals(loop)
        _end_within(_EXIT_SECONDS, status)
        end_without_teardown()
    return status


def _ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    # The loop puts the default actions back when it is closed: a signal then would kill a process that has
    # stopped well. Blocked meanwhile, since the loop does it here, too.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _end_within(seconds: float, status: int) -> None:
    def give_up() -> None:
        others = {*threading.enumerate()} - {threading.main_thread(), timer}
        left = sorted(thread.name for thread in others if not thread.daemon)
        what = f"something (threads that are left: {', '.join(left)})" if left else "something"
        print(f"drakkar: {what} did not end in time; leaving without it", file=sys.stderr)  # noqa: T201
        os._exit(status)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
