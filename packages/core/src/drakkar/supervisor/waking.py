"""Waiting for a state of affairs that others bring about."""

import asyncio
import math
from collections.abc import Callable

from drakkar.clock import Clock


class Wake:
    """Whoever changes what is waited for calls `ring` afterwards. One waiter at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def until(self, holds: Callable[[], bool], limit_seconds: float = math.inf) -> None:
        """Return when `holds()`, or after `limit_seconds`.

        It is looked at after the event was cleared, so that no ring is lost between looking and waiting.
        """
        end = self._clock.elapsed() + limit_seconds
        while True:
            self._rung.clear()
            if holds():
                return
            left = end - self._clock.elapsed()
            if left <= 0:
                return
            if math.isinf(left):
                await self._rung.wait()
            else:
                await self._clock.wait(self._rung, left)
