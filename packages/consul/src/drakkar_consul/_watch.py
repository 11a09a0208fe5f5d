"""Watching the cards: when each of them changes, as long as this process runs."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from drakkar_consul._ages import Ages
from drakkar_consul._client import ConsulClient, ConsulError
from drakkar_consul._keys import Listing
from drakkar_consul._session import elapsed_seconds

WAIT_SECONDS: Final = 30
PAUSE_SECONDS: Final = 1.0
CARDS_PER_SECOND: Final = 100
"""Every answer carries every card: a fleet that changes all the time must not be read all the time."""

_LOOK_SECONDS: Final = 1.0
_MAX_DELAY_SECONDS: Final = 30.0


class Watch:
    """Tells `ages` of every listing: of those that the blocking query brings, and of those that others read.

    How long ago all was still as it had been seen is counted here, by the time of the host and not by the
    clock of the ages, which tests move. While a query is waiting, nothing has changed; so it is looked every
    second whether it still waits, for a process that was frozen learns late of what happened meanwhile. It is
    not taken to be waiting while other calls to the agent fail.
    """

    def __init__(
        self, client: ConsulClient, prefix: str, ages: Ages, clock: Callable[[], float], wait_seconds: int
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._ages = ages
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._task: asyncio.Task[None] | None = None
        self._as_seen_at = float("-inf")
        self._observed_at = float("-inf")
        self._index: int | None = None
        self.agent_answers = True
        """Whether the last call to the agent, of any kind, was answered."""

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="drakkar consul cards")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def observe(self, listing: Listing, asked_at: float) -> None:
        """Take in a listing that was asked for at `asked_at`, by `elapsed_seconds`."""
        if self._index is not None and listing.index < self._index and asked_at <= self._observed_at:
            return  # it was overtaken by a newer one on its way
        now = elapsed_seconds()
        indexes = {key: entry.index for key, entry in listing.entries.items()}
        self._ages.observe(listing.index, indexes, self._clock(), now - self._as_seen_at)
        self._index = listing.index
        self._observed_at = now
        self._as_seen_at = max(self._as_seen_at, asked_at)

    async def _run(self) -> None:
        failures = 0
        index: int | None = None
        while True:
            try:
                listing = await self._next(index)
            except ConsulError:
                failures, index = failures + 1, None
                delay = min(_MAX_DELAY_SECONDS, 0.5 * 2.0 ** min(failures, 10))
                await asyncio.sleep(delay * (0.5 + 0.5 * random.random()))  # noqa: S311  no secret
                continue
            failures = 0
            # Servers that lost their data count anew, and would be waited for until they come by again.
            index = listing.index if index is None or listing.index >= index else None
            await asyncio.sleep(max(PAUSE_SECONDS, len(listing.entries) / CARDS_PER_SECOND))

    async def _next(self, index: int | None) -> Listing:
        asked_at = elapsed_seconds()
        if index is None or index <= 0:
            listing = await self._client.tree(self._prefix)
        else:
            query = asyncio.create_task(self._client.tree_after(self._prefix, index, self._wait_seconds))
            try:
                while not (await asyncio.wait({query}, timeout=_LOOK_SECONDS))[0]:
                    if self.agent_answers:
                        self._as_seen_at = elapsed_seconds()
            finally:
                query.cancel()
                await asyncio.wait({query})
                if not query.cancelled():
                    query.exception()  # nobody may be left to look at it, and the event loop would complain
            listing = query.result()
        self.observe(listing, asked_at)
        return listing
