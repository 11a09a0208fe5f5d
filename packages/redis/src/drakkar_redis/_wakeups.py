"""Hearing of leases that were given back: a connection that is subscribed, kept up by one task.

Nothing is safe because of it. A message may be lost with its connection; who waits looks at the store itself
when the subscription is confirmed, and again when a lease should have run out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from drakkar.fleet.provider import EventLogger

from drakkar_redis._errors import StoreError

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 10.0

Listen = Callable[[str, Callable[[], None], Callable[[bytes], None]], Awaitable[None]]


class WakeUps:
    """`listen` is the client's. Starts with the first `ready`."""

    def __init__(self, listen: Listen, channel: str, logger: EventLogger) -> None:
        self._listen = listen
        self._channel = channel
        self._logger = logger
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._waiters: dict[asyncio.Event, frozenset[bytes]] = {}
        self._hears = False
        self._stopped = False
        self._told = False
        self._failures = 0

    @property
    def hears(self) -> bool:
        """Whether the server has confirmed that it will tell."""
        return self._hears

    async def ready(self, limit_seconds: float) -> None:
        """Return when the server has confirmed or refused, or after `limit_seconds`."""
        if self._stopped:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_up(), name="drakkar redis wake-ups")
        limit = asyncio.timeout(limit_seconds)
        try:
            async with limit:
                await self._tried.wait()
        except TimeoutError:
            if not limit.expired():
                raise

    def wake_for(self, names: frozenset[bytes]) -> asyncio.Event:
        """An event that is set when one of `names` was given back, or when something may have been missed."""
        event = asyncio.Event()
        self._waiters[event] = names
        return event

    def forget(self, event: asyncio.Event) -> None:
        self._waiters.pop(event, None)

    async def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _keep_up(self) -> None:
        while True:
            try:
                await self._listen(self._channel, self._subscribed, self._heard)
            except StoreError as error:
                self._hears = False
                self._tried.set()
                if not self._told:
                    self._told = True
                    self._logger.info("lease_notices_unavailable", error=str(error))
            self._failures += 1
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 10))
            await asyncio.sleep(pause)

    def _subscribed(self) -> None:
        self._failures = 0
        self._told = False
        self._hears = True
        self._tried.set()
        for event in self._waiters:  # what was published before this moment was not heard
            event.set()

    def _heard(self, name: bytes) -> None:
        for event, names in self._waiters.items():
            if name in names:
                event.set()
