"""The one source of time, so that a test can replace it.

Every age and deadline is counted on a clock that goes on while the host is suspended: on Linux
`CLOCK_BOOTTIME`, since `time.monotonic` stands still there. Elsewhere the monotonic clock is used, and a
suspended host makes cards look younger than they are until the next listing.

Wall-clock time is for people: it goes onto cards and into answers, and decides nothing.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol

SHORTEST_SECONDS: Final = 0.01
"""No period and no time limit is shorter: what repeats faster leaves nothing to the rest of the process."""

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """Elapsed time, wall-clock time and waiting."""

    def elapsed(self) -> float:
        """Seconds since some fixed point, suspended time included; never goes back."""

    def wall(self) -> datetime:
        """The time of day, aware, in UTC."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of `elapsed`; may be late by what the host was suspended."""

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Return as soon as `event` is set, or after `seconds`; tell whether it is set."""


class SystemClock:
    """The clock of this host."""

    def elapsed(self) -> float:
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        return event.is_set()
