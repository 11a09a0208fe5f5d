"""What this process saw of the leases of others, and for how long each has stood still.

The only judge of when a lease has run out is a contender that saw it itself: twice the very same content,
and between the end of the first look and the beginning of the last at least the *holder's* ttl, on the
contender's own clock. No time of the file server or of another host goes into that.
"""

import threading
from dataclasses import dataclass
from typing import Final

from drakkar_filesystem._generations import Sight, Stamp
from drakkar_filesystem._lease_record import Record


@dataclass(frozen=True, slots=True)
class Watch:
    """A generation that is, or may be, somebody's."""

    number: int
    stamp: Stamp
    record: Record | None
    ttl_seconds: float
    since: float
    """When it had been seen like this for the first time."""

    looked_at: float

    def remaining(self, now: float) -> float:
        """Seconds until it has stood still for long enough at a look that begins at `now`."""
        return min(self.ttl_seconds, self.since + self.ttl_seconds - now)


class Watches:
    """By the name of the lease. Used by both threads; an outdated look can only make a watch begin later."""

    def __init__(self, ttl_seconds: float) -> None:
        self._ttl_seconds: Final = ttl_seconds
        self._lock = threading.Lock()
        self._watches: dict[str, Watch] = {}

    def get(self, name: str) -> Watch | None:
        return self._watches.get(name)

    def forget(self, name: str) -> None:
        with self._lock:
            self._watches.pop(name, None)

    def saw(self, name: str, sight: Sight, began: float, ended: float) -> float:
        """Note what a look that took from `began` to `ended` found; return the seconds that are left.

        None left, or less: the generation has run out, and did so before that look began.
        """
        content = sight.content
        if content is None:
            raise ValueError("there is nothing to watch")
        with self._lock:
            last = self._watches.get(name)
            ttl = self._ttl_seconds if content.record is None else content.record.ttl_seconds
            since = ended
            if last is not None and last.number == sight.number:
                if last.stamp == content.stamp:
                    ttl, since = last.ttl_seconds, last.since
                elif content.record is None:  # its holder may not have noticed yet that it was overwritten
                    ttl = max(ttl, last.ttl_seconds)
            watch = Watch(sight.number, content.stamp, content.record, ttl, since, ended)
            self._watches[name] = watch
            return watch.remaining(began)
