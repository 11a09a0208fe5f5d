"""How long the event loop was held up by what ran in it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Stalls:
    """By how much the event loop was late at most, in milliseconds."""

    def __init__(self) -> None:
        self.worst_ms = 0.0

    async def _tick(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.worst_ms = max(self.worst_ms, 1000 * (time.perf_counter() - began - 0.001))

    @asynccontextmanager
    async def looked_for(self) -> AsyncIterator[None]:
        ticker = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticker.cancel()
            await asyncio.wait({ticker})
