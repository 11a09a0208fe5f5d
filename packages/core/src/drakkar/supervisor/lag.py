"""Noticing that the event loop was held up: by a job that blocks it, most of the time."""

from typing import Final

from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger

LOOK_SECONDS: Final = 0.5
LATE_SECONDS: Final = 1.0
"""From here on it is told: leases are renewed late then, and may be lost."""

TELL_EVERY_SECONDS: Final = 60.0


async def watch_lag(clock: Clock, logger: EventLogger) -> None:
    """Look at the clock twice a second, for ever; `event_loop_held_up` says by how many seconds that came too
    late at worst, at most once a minute. A host that was suspended looks the same."""
    quiet_until = -TELL_EVERY_SECONDS
    worst, times = 0.0, 0
    while True:
        due = clock.elapsed() + LOOK_SECONDS
        await clock.sleep(LOOK_SECONDS)
        now = clock.elapsed()
        if now - due >= LATE_SECONDS:
            worst, times = max(worst, now - due), times + 1
        if times and now >= quiet_until:
            logger.warning("event_loop_held_up", seconds=round(worst, 3), times=times)
            quiet_until, worst, times = now + TELL_EVERY_SECONDS, 0.0, 0
