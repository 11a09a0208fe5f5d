"""The last leader changes and crashes of this process, for people who ask what has happened."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

REMEMBERED: Final = 200
_MAX_ERROR_CHARS: Final = 1000

Happening = Literal["acquired", "released", "crashed"]


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """Something that happened to a background worker in this process."""

    number: int
    """Counts all events since the start, from 1 on, those that are forgotten as well."""

    at: datetime
    worker: str
    shard: str
    """`-` for an event of the background worker as a whole."""

    event: Happening
    error: str | None
    """Of a crash; cut when it is long."""


class History:
    """Remembers the last `REMEMBERED` events."""

    def __init__(self) -> None:
        self._events: deque[HistoryEvent] = deque(maxlen=REMEMBERED)
        self._count = 0

    def add(
        self, at: datetime, worker: str, event: Happening, *, shard: str = "-", error: str | None = None
    ) -> None:
        self._count += 1
        short = None if error is None else error[:_MAX_ERROR_CHARS]
        self._events.append(HistoryEvent(self._count, at, worker, shard, event, short))

    def events(self) -> Sequence[HistoryEvent]:
        """What is remembered, oldest first."""
        return tuple(self._events)
