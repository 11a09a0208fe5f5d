"""When to tell of a failure that repeats: at first, then once a minute, and when it is over."""

from dataclasses import dataclass
from typing import Final

LOG_EVERY_SECONDS: Final = 60.0


@dataclass(slots=True)
class Outage:
    """What is known of the failures of one operation. Times are readings of one clock."""

    since: float | None = None
    """The first failure since the last success; None while it works."""

    failures: int = 0
    suppressed: int = 0
    """How many failures were not told since the last one that was."""

    _told: bool = False
    _told_at: float | None = None  # outlives the outage: one that comes and goes is still told once a minute

    def failed(self, now: float) -> bool:
        """Count a failure; whether it is to be told. Who tells it calls `told`."""
        self.since = now if self.since is None else self.since
        self.failures += 1
        if self._told_at is None or now - self._told_at >= LOG_EVERY_SECONDS:
            return True
        self.suppressed += 1
        return False

    def told(self, now: float) -> None:
        self._told, self._told_at, self.suppressed = True, now, 0

    def recovered(self, now: float) -> float | None:
        """End the outage; how long it lasted if that is to be told, None else."""
        lasted = None if self.since is None or not self._told else round(now - self.since, 3)
        self.since, self.failures, self._told = None, 0, False
        return lasted
