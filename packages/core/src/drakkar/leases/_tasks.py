"""Waiting for tasks by the clock that everything else here goes by."""

import asyncio
from collections.abc import Iterable
from typing import Any

from drakkar.clock import Clock


async def wait_ended(tasks: Iterable[asyncio.Task[Any]], seconds: float, clock: Clock) -> None:
    """Return when all of `tasks` have ended, or after `seconds`. Cancels and raises nothing."""
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
