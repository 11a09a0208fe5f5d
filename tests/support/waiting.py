"""Waiting for a state instead of a time."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], limit_seconds: float = 20) -> None:
    """Return when `condition` holds; raises `TimeoutError` when it does not come to."""
    async with asyncio.timeout(limit_seconds):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.002)
