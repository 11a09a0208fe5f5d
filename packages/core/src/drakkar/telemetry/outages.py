"""When to tell of a failure that repeats: at first, then once a minute, and when it is over; and at once when
it fails for another reason, which may be the one that somebody can do something about."""

from dataclasses import dataclass, field
from typing import Final

LOG_EVERY_SECONDS: Final = 60.0
MAX_REASONS: Final = 4
"""How many different reasons are told in that time: some hold a number that differs each time."""


@dataclass(slots=True)
class Outage:
    """What is known of the failures of one operation. Times are readings of one clock."""

    since: float | None = None
    """The first failure since the last success; None while it works."""

    failures: int = 0
    _suppressed: int = 0
    _told: bool = False
    # These outlive the outage: one that comes and goes is still told once a minute.
    _told_at: float | None = None
    _reasons: set[str] = field(default_factory=set)

    def failed(self, now: float, reason: str = "") -> int | None:
        """Count a failure. If it is to be told, how many were not since the last one that was; else None."""
        self.since = now if self.since is None else self.since
        self.failures += 1
        if self._told_at is None or now - self._told_at >= LOG_EVERY_SECONDS:
            self._told_at = now
            self._reasons.clear()
        elif reason in self._reasons or len(self._reasons) >= MAX_REASONS:
            self._suppressed += 1
            return None
        self._reasons.add(reason)
        suppressed, self._suppressed, self._told = self._suppressed, 0, True
        return suppressed

    def recovered(self, now: float) -> float | None:
        """End the outage; how long it lasted if that is to be told, None else."""
        lasted = None if self.since is None or not self._told else round(now - self.since, 3)
        self.since, self.failures, self._told = None, 0, False
        return lasted
