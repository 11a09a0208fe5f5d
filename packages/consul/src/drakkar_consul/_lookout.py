"""Waiting for leases to be free: one blocking query for all of them, while somebody waits."""

import asyncio
from contextlib import suppress
from typing import Final

from drakkar_consul._client import ConsulClient, ConsulError
from drakkar_consul._keys import Listing

WAIT_SECONDS: Final = 30
LEASES_PER_SECOND: Final = 5000
"""Every answer carries every lease: thousands that change hands must not be read for each of them."""


class Lookout:
    """Reads the leases when one of them changes, in a task of its own that begins with the first `wait`."""

    def __init__(self, client: ConsulClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._refused: dict[str, tuple[int, int]] = {}
        self._listing: Listing | None = None
        self._listed = 0
        """The number of the request that brought the listing."""

        self._asked = 0
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None

    def refused(self, key: str, changed: int) -> None:
        """An acquire of `key` was refused, whose last change was `changed`; what was asked for before that,
        and shows no later change, is no news."""
        self._refused[key] = changed, self._asked

    async def wait(self, keys: frozenset[str], timeout_seconds: float) -> frozenset[str]:
        """Those of `keys` that nobody holds, as soon as there is one; none after the time.

        Raises `ConsulError` when the agent cannot be asked.
        """
        until = asyncio.get_running_loop().time() + timeout_seconds
        self._waiting += 1
        self._wanted.set()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    while not (free := self._free_among(keys)):
                        self._listen()
                        await self._changed.wait()
                    return free
        finally:
            self._waiting -= 1
        return frozenset()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # nobody was left to look at it, and the event loop would complain

    def _listen(self) -> None:
        """See to it that the task runs; raise what it ended with, once."""
        task = self._task
        if task is not None and task.done():
            self._task = None
            task.result()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="drakkar consul leases")

    def _free_among(self, keys: frozenset[str]) -> frozenset[str]:
        listing = self._listing
        if listing is None:
            return frozenset()
        return frozenset(key for key in keys if self._is_free(key, listing))

    def _is_free(self, key: str, listing: Listing) -> bool:
        changed, asked = self._refused.get(key, (0, -1))
        entry = listing.entries.get(key)
        index = listing.index if entry is None else entry.index
        return (entry is None or entry.session is None) and (index > changed or self._listed > asked)

    async def _run(self) -> None:
        try:
            while True:
                self._asked += 1
                asked, listing = self._asked, self._listing
                if listing is None or listing.index <= 0:
                    new = await self._client.tree(self._prefix)
                else:
                    new = await self._client.tree_after(self._prefix, listing.index, WAIT_SECONDS)
                self._listing, self._listed = new, asked
                self._tell()
                await asyncio.sleep(len(new.entries) / LEASES_PER_SECOND)
                if not self._waiting:
                    self._wanted.clear()
                    await self._wanted.wait()
        except ConsulError:
            self._listing = None
            raise
        finally:
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
