"""When to start a background worker again: arithmetic only."""

from typing import Final

SCHEDULE_SECONDS: Final = (1.0, 5.0, 30.0, 120.0)
"""The waits after the first, second, third and every further unhealthy end in a row."""

HEALTHY_SECONDS: Final = 300.0
"""A run that lasted this long was healthy."""

COURTESY_SECONDS: Final = 8.0
"""How long others have to take a lease that may be free, before one that was asked to step down does. They
are woken, or look every `retry_seconds` (5) and a little more, and one that has its share of shards waits up
to 6 s."""

_COURTESY_PART: Final = 0.05
"""More, by this part of what is left of the cool-down: of two that were asked, the first one goes first."""


def courtesy(left_seconds: float) -> float:
    """How long to leave a lease to others when `left_seconds` are left of the cool-down."""
    return min(left_seconds, COURTESY_SECONDS + _COURTESY_PART * left_seconds)


class Backoff:
    """The restarts of one background worker, or of one shard of it, in one process.

    Other processes have schedules of their own: a job that crashes wherever it runs is tried by each process
    that it comes to, at that process's pace.
    """

    def __init__(self) -> None:
        self.attempts = 0
        """Unhealthy ends in a row."""

    def lasted(self, ran_seconds: float) -> None:
        """A run was ended from outside after `ran_seconds`. That is no failure, and forgives earlier ones
        only if the run was healthy."""
        if ran_seconds >= HEALTHY_SECONDS:
            self.attempts = 0

    def ended(self, ran_seconds: float) -> float:
        """A run crashed or returned after `ran_seconds`; return how long to wait before the next.

        A healthy one is followed at once, and the next unhealthy one waits as if it were the first.
        """
        self.lasted(ran_seconds)
        if ran_seconds >= HEALTHY_SECONDS:
            return 0.0
        self.attempts += 1
        return SCHEDULE_SECONDS[min(self.attempts, len(SCHEDULE_SECONDS)) - 1]
