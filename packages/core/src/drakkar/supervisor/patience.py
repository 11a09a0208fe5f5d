"""Whether giving shards away has been of use, and when to try again: arithmetic only.

Times are readings of the elapsed clock, in seconds.
"""

import math
from typing import Final

from drakkar.supervisor.backoff import HEALTHY_SECONDS

MAX_PAUSE_SECONDS: Final = 900.0

KEPT_SECONDS: Final = HEALTHY_SECONDS
"""A shard that was given away this long ago, and is not back, may have had a healthy run since."""


class Patience:
    """After each failure nothing is given away for twice as long as before, and then one shard, as a probe.
    Only when the peers have kept that for a while may more follow. What went well for `KEPT_SECONDS` makes
    the failures forgotten.

    So peers that crash on what they get, or whose cards lie, cost little; and so does a failure that was
    none, such as a process that left just then.
    """

    def __init__(self, refresh_seconds: float) -> None:
        self._refresh_seconds = refresh_seconds
        self._given_at = -math.inf
        self._failures = 0
        self._quiet_until = -math.inf
        self._probing = False
        self._proved = True

    def is_due(self, now: float, peers_kept_it: bool) -> bool:
        """Whether something may be given away. `peers_kept_it` tells whether those that got the last of it
        have more than before."""
        if now < self._quiet_until:
            return False
        if self._probing:
            self._probing, self._proved = False, peers_kept_it
            if not peers_kept_it:
                self._failed(now)
                return False
        if self._proved and now - self._given_at >= KEPT_SECONDS:
            self._failures = 0
        return True

    def most(self, wanted: int) -> int:
        """How many of `wanted` shards may be given away at once."""
        return wanted if self._proved else min(1, wanted)

    def gave(self, now: float) -> None:
        self._given_at = now
        if not self._proved:
            self._probing = True
            self._quiet_until = now + min(KEPT_SECONDS, 2 * self._pause())

    def took(self, now: float) -> None:
        """A shard was taken back, or another one that is too many: what was given away just before was so
        in vain."""
        if now - self._given_at < KEPT_SECONDS and (self._probing or now >= self._quiet_until):
            self._failed(now)

    def forgive(self) -> None:
        """Begin anew: there is a peer that was never given anything."""
        self._failures = 0
        self._quiet_until = -math.inf
        self._probing = False
        self._proved = True

    def _failed(self, now: float) -> None:
        self._failures += 1
        self._probing = self._proved = False
        self._quiet_until = now + self._pause()

    def _pause(self) -> float:
        return min(MAX_PAUSE_SECONDS, self._refresh_seconds * 2.0 ** min(self._failures, 20))
