"""A clock that stands still until it is moved."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class FakeClock:
    """Satisfies `drakkar.clock.Clock`. `advance` wakes the sleepers in order, letting each run its course."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._wall = datetime(2026, 10, 13, 9, 40, 11, 210, tzinfo=UTC)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def elapsed(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return self._wall

    def step_wall(self, seconds: float) -> None:
        """What an operator or a time server does to the wall clock; elapsed time does not notice."""
        self._wall += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        await future

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        timer = asyncio.ensure_future(self.sleep(seconds))
        waiter = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({timer, waiter}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            waiter.cancel()
        return event.is_set()

    async def advance(self, seconds: float) -> None:
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, future = heapq.heappop(self._sleepers)
            self._move(max(at, self._now))
            if not future.done():
                future.set_result(None)
            await settle()
        self._move(end)

    def jump(self, seconds: float) -> None:
        """Let time pass without anybody noticing: what a blocked event loop is. Who is overdue wakes with the
        next `advance`."""
        self._move(self._now + seconds)

    def suspend(self, seconds: float) -> None:
        """Let time pass while the host is suspended: timers stand still, and are that much late."""
        self._move(self._now + seconds)
        self._sleepers = [(at + seconds, count, future) for at, count, future in self._sleepers]

    def _move(self, to: float) -> None:
        self._wall += timedelta(seconds=to - self._now)
        self._now = to


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(50):
        await asyncio.sleep(0)
