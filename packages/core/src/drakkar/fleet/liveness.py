"""Who is online: arithmetic only.

An age is measured by the provider at the listing and moved forward by the reader's own elapsed time, so a
peer never looks younger because a refresh is slow or fails. No two hosts' wall clocks are compared.
"""

from typing import Final, Literal

Liveness = Literal["online", "offline", "unknown"]
LIVENESS: Final[tuple[Liveness, ...]] = ("online", "offline", "unknown")


def age_now(age_seconds: float | None, since_listing_seconds: float) -> float | None:
    """The age of a card `since_listing_seconds` after it was listed; None when the age is unknown."""
    if age_seconds is None:
        return None
    return max(0.0, age_seconds) + max(0.0, since_listing_seconds)


def liveness(age_seconds: float | None, offline_after_seconds: float) -> Liveness:
    """A card of just `offline_after_seconds` is still online."""
    if age_seconds is None:
        return "unknown"
    return "online" if age_seconds <= offline_after_seconds else "offline"


def last_seen(now_ts: float, age_seconds: float | None) -> float | None:
    """The reader's own epoch seconds at the last publish, for showing; None when the age is unknown."""
    return None if age_seconds is None else now_ts - age_seconds
