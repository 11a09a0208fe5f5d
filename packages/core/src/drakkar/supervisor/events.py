"""Who leads what in this process, as a set of now and as a stream of changes."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Self

from drakkar.clock import Clock
from drakkar.supervisor.history import History
from drakkar.telemetry.metrics import SupervisorMetrics

BUFFERED_EVENTS: Final = 256
MAX_NAMES: Final = 1024
"""How many names can be led under at once; more come only from a runner that makes them up."""

MAX_NAME_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class LeaderEvent:
    """A background worker began to lead in this process, or ceased to."""

    worker: str
    event: Literal["acquired", "released"]
    at: datetime


class LeaderEvents:
    """Never waits for a reader: each has a buffer of `BUFFERED_EVENTS`, and loses the oldest when it is
    slow."""

    def __init__(
        self, clock: Clock, metrics: SupervisorMetrics, history: History, on_change: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._history = history
        self._metrics = metrics
        self._on_change = on_change
        self._leading: set[str] = set()
        self._readers: weakref.WeakSet[_Reader] = weakref.WeakSet()  # one that was dropped gets no events
        self._closed = False

    @property
    def leader_for(self) -> list[str]:
        """The background workers that lead now, sorted."""
        return sorted(self._leading)

    def emit(self, worker: str, leading: bool) -> None:
        """Note a change; saying the same thing twice changes nothing. To be called in the event loop.

        Raises `ValueError` for what cannot be a name, and for more than `MAX_NAMES` at once.
        """
        if not _is_name(worker):
            raise ValueError(f"{worker!r:.60} is not the name of a background worker")
        if (worker in self._leading) == bool(leading):
            return
        if leading and len(self._leading) >= MAX_NAMES:
            raise ValueError(f"more than {MAX_NAMES} names are led under")
        self._leading ^= {worker}
        event = LeaderEvent(worker, "acquired" if leading else "released", self._clock.wall())
        self._metrics.leader_events.labels(worker, event.event).inc()
        self._history.add(event.at, worker, event.event)
        for reader in self._readers:
            reader.put(event)
        self._on_change()

    def close(self) -> None:
        """End every stream when its reader has read what is buffered."""
        self._closed = True
        for reader in self._readers:
            reader.close()

    def stream(self) -> AsyncIterator[LeaderEvent]:
        """The changes from this call on; ends after `close`."""
        reader = _Reader()
        if self._closed:
            reader.close()
        else:
            self._readers.add(reader)
        return reader


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_NAME_CHARS


class _Reader:
    def __init__(self) -> None:
        self._buffer: deque[LeaderEvent] = deque(maxlen=BUFFERED_EVENTS)
        self._closed = False
        self._news = asyncio.Event()

    def put(self, event: LeaderEvent) -> None:
        self._buffer.append(event)
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LeaderEvent:
        while not self._buffer:
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._buffer.popleft()
