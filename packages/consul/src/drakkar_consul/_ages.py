"""How old cards are, by what was seen of them: arithmetic only.

Consul keeps no times. But the index of a key's last change comes from one log of all changes, so a key whose
index is above that of a whole listing was changed after that listing. A card never seen to change is of
unknown age. No age is told younger than it is, save by what an answer of the agent needs to reach us.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

UNSURE_SECONDS: Final = 15.0
"""An age that is not known more closely than this is unknown; of many cards, a fiftieth of a second for
each."""

STILL_SECONDS: Final = 900.0
"""A card that has stood still for longer cannot be of an online worker: it is as old as that at least."""


_MARKS: Final = 16


@dataclass(frozen=True, slots=True)
class _Mark:
    """A change that this process made itself, so that it knows when: all with a lower index came before."""

    index: int
    sent_at: float
    answered_at: float


@dataclass(slots=True)
class _Sight:
    index: int
    changed_at: float | None
    """Not after the change; None: nobody saw it."""

    seen_at: float
    """Not before the change."""


class Ages:
    """What is known of every key. Times are readings of the caller's clock."""

    def __init__(self, still_seconds: float = STILL_SECONDS) -> None:
        self._still_seconds = still_seconds
        self._sights: dict[str, _Sight] = {}
        self._index: int | None = None
        self._marks: deque[_Mark] = deque(maxlen=_MARKS)

    def observe(self, index: int, indexes: Mapping[str, int], now: float, unsure_seconds: float) -> None:
        """Take in a listing: what the keys were changed by, and the index of the whole.

        `unsure_seconds` ago all was as it had been seen before. An index that goes down means that the
        servers lost data, or forgot a deletion; what is different then may be an old state that came back,
        and is unknown.
        """
        last = self._index
        if last is not None and index < last:
            last = None
            self._marks.clear()
        sights = {}
        for key, changed in indexes.items():
            sight = self._sights.get(key)
            if sight is None or sight.index != changed:
                after = [mark.sent_at for mark in self._marks if mark.index < changed]
                if last is not None and changed > last:
                    after.append(now - unsure_seconds)
                seen_at = min((mark.answered_at for mark in self._marks if mark.index > changed), default=now)
                changed_at = max(after, default=float("-inf"))
                close = seen_at - changed_at <= max(UNSURE_SECONDS, len(indexes) / 50)
                sight = _Sight(changed, changed_at if close else None, seen_at)
            sights[key] = sight
        self._sights = sights
        self._index = index

    def published(self, key: str, changed: int, sent_at: float, now: float) -> None:
        """This process itself made the change, by a request that was sent at `sent_at`."""
        self._sights[key] = _Sight(changed, sent_at, now)
        self._marks.append(_Mark(changed, sent_at, now))

    def age(self, key: str, now: float) -> float | None:
        """The age of what `key` held in the last listing; None when it is unknown."""
        sight = self._sights.get(key)
        if sight is None:
            return None
        if sight.changed_at is not None:
            return max(0.0, now - sight.changed_at)
        least = now - sight.seen_at
        return least if least > self._still_seconds else None

    def least_age(self, key: str, now: float) -> float:
        """How old it is at least."""
        sight = self._sights.get(key)
        return 0.0 if sight is None else max(0.0, now - sight.seen_at)
