"""How old cards are, by what was seen of them: arithmetic only.

Consul keeps no times. But the index of a key's last change comes from one log of all changes, so a key whose
index is above that of a whole listing was changed after that listing. A card never seen to change is of
unknown age. No age is told younger than it is, save by what an answer of the agent needs to reach us.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

UNSURE_SECONDS: Final = 15.0
"""An age that is not known more closely than this is unknown; of many cards, a fiftieth of a second for
each."""

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

    def __init__(self, still_seconds: float) -> None:
        """A card of unknown age that has stood still for longer than `still_seconds`, and so cannot be of an
        online worker, is as old as that at least."""
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
        marks = sorted(self._marks, key=lambda mark: mark.index)
        marked = [mark.index for mark in marks]
        not_before = list(accumulate((mark.sent_at for mark in marks), max, initial=float("-inf")))
        not_after = list(accumulate((mark.answered_at for mark in reversed(marks)), min, initial=now))[::-1]
        limit = max(UNSURE_SECONDS, len(indexes) / 50)
        sights = {}
        for key, changed in indexes.items():
            sight = self._sights.get(key)
            if sight is None or sight.index != changed:
                changed_at = not_before[bisect_left(marked, changed)]
                if last is not None and changed > last:
                    changed_at = max(changed_at, now - unsure_seconds)
                seen_at = not_after[bisect_right(marked, changed)]
                sight = _Sight(changed, changed_at if seen_at - changed_at <= limit else None, seen_at)
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

    def older_than(self, seconds: float, now: float) -> set[str]:
        """The keys that were not changed for that long, for sure."""
        return {key for key, sight in self._sights.items() if now - sight.seen_at > seconds}
