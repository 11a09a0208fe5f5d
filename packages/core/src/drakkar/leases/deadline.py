"""When a lease has run out for its holder, and when to ask for it: arithmetic only.

All times are readings of one clock that counts suspend (`drakkar.clock`), in seconds.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Self

MARGIN: Final = 0.1
"""The part of every ttl that a holder does not use: for clocks that run at different speeds, and for the
time between noticing the end and having stopped."""

MAX_TTL_SECONDS: Final = 86400.0
"""A lease that lasts longer would leave the work of a dead process undone for days; stores refuse it, too."""

MAX_DELAY_SECONDS: Final = 30.0
FIRST_DELAY_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The settings `supervisor.leases.*` in seconds; `problems` tells what does not fit.

    Period and time limit follow from the ttl in effect, so that a renewal which takes as long as it may is
    always followed by another that ends before the deadline: `period_seconds` + 2 x `call_seconds` is at
    most five sixths of the ttl, and the deadline is at nine tenths.
    """

    ttl_seconds: float = 30.0
    renew_seconds: float = 10.0
    retry_seconds: float = 5.0
    timeout_seconds: float = 3.0

    @property
    def period_seconds(self) -> float:
        """Between two renewals."""
        return min(self.renew_seconds, self.ttl_seconds / 3)

    @property
    def call_seconds(self) -> float:
        """Time limit of one call: never so long that a single one could use up the lease."""
        return min(self.timeout_seconds, self.ttl_seconds / 4)

    def within(self, ttl_seconds: float) -> Self:
        """The timing for leases of which one was granted for `ttl_seconds` only."""
        return replace(self, ttl_seconds=min(self.ttl_seconds, ttl_seconds))

    def problems(self, min_ttl_seconds: float) -> list[str]:
        """One line for each rule that does not hold; empty when all do."""
        found = []
        for name in ("ttl_seconds", "renew_seconds", "retry_seconds", "timeout_seconds"):
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                found.append(f"supervisor.leases.{name} ({value:g}) must be a number above 0")
        if not found and self.ttl_seconds < min_ttl_seconds:
            found.append(
                f"supervisor.leases.ttl_seconds ({self.ttl_seconds:g}) is less than this lease backend"
                f" can keep ({min_ttl_seconds:g}); raise it"
            )
        if not found and self.ttl_seconds > MAX_TTL_SECONDS:
            found.append(
                f"supervisor.leases.ttl_seconds ({self.ttl_seconds:g}) is more than a lease may last"
                f" ({MAX_TTL_SECONDS:g}); lower it"
            )
        return found


def deadline(sent_at: float, ttl_seconds: float) -> float:
    """The moment from which a holder must not act on a lease whose last good request was sent at
    `sent_at`."""
    return sent_at + ttl_seconds * (1 - MARGIN)


def free_at(sent_at: float, ttl_seconds: float) -> float:
    """The moment from which giving a lease back cannot be early for a run that goes on after its end."""
    return sent_at + ttl_seconds


def retry_delay(
    retry_after_seconds: float | None, retry_seconds: float, chance: float, longest_seconds: float = math.inf
) -> float:
    """How long a refused candidate sleeps, unless it is woken; `chance` is a random number from 0 to 1.

    What the store said, `longest_seconds` at most, and up to a tenth of `retry_seconds` on top, so that
    candidates spread out.
    """
    wanted = retry_seconds if retry_after_seconds is None else max(0.0, retry_after_seconds)
    return min(wanted, longest_seconds) + 0.1 * retry_seconds * chance


def failure_delay(failures: int, chance: float) -> float:
    """How long to leave a store alone after `failures` failed calls in a row, at least one.

    Doubles up to `MAX_DELAY_SECONDS`; the lower half is certain and the upper half random, so that a fleet
    does not come back as one.
    """
    longest = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 20))
    return longest * (0.5 + 0.5 * chance)
