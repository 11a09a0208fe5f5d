"""Noticing that the event loop was held up: by a job that blocks it, most of the time."""

from collections.abc import Callable, Sequence
from typing import Final

from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger

LOOK_SECONDS: Final = 0.5
LATE_SECONDS: Final = 1.0
"""From here on it is told: leases are renewed late then, and may be lost."""

TELL_EVERY_SECONDS: Final = 60.0

NAMED: Final = 10
HINT: Final = "a job blocks, or the host was suspended; move what blocks into a thread"


async def watch_lag(clock: Clock, logger: EventLogger, leading: Callable[[], Sequence[str]]) -> None:
    """Look at the clock twice a second, for ever; `event_loop_held_up` says by how many seconds that came too
    late at worst, at most once a minute, and what was `leading` then. A host that was suspended looks like
    it."""
    quiet_until = -TELL_EVERY_SECONDS
    worst, times = 0.0, 0
    suspects: set[str] = set()
    while True:
        led = leading()
        due = clock.elapsed() + LOOK_SECONDS
        await clock.sleep(LOOK_SECONDS)
        now = clock.elapsed()
        if now - due >= LATE_SECONDS:
            worst, times = max(worst, now - due), times + 1
            suspects.update(led, leading())
        if times and now >= quiet_until:
            names = sorted(suspects)[:NAMED]
            logger.warning(
                "event_loop_held_up", seconds=round(worst, 3), times=times, leading=names, hint=HINT
            )
            suspects.clear()
            quiet_until, worst, times = now + TELL_EVERY_SECONDS, 0.0, 0
