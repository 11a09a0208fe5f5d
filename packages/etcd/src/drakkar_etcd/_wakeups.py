"""Telling who waits for a lease that it was given back or has run out: one watch for all names.

Nothing that happened is lost: each refusal has the revision of the store at which it was true, each deletion
has its own, and the watch begins where the last one ended. What comes late costs time, never safety.
"""

import asyncio
import random
from collections.abc import Iterable
from contextlib import aclosing, suppress
from typing import Final

from drakkar_etcd._answers import CompactedError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._wire import Folder, number, revision_of

_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 5.0


class WakeUps:
    """Knows the names that this process asks for; of others nothing is kept."""

    def __init__(self, client: EtcdClient, folder: Folder) -> None:
        self._client = client
        self._folder = folder
        self._refused: dict[str, int] = {}
        self._freed: dict[str, int] = {}
        self._next = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def asking(self, name: str) -> None:
        """`name` is about to be asked for."""
        self._refused.setdefault(name, 0)

    def refused(self, name: str, revision: int) -> None:
        """`name` was somebody else's when the store was at `revision`."""
        self._refused[name] = revision

    def granted(self, name: str) -> None:
        """Nobody waits for `name` any more."""
        self._refused.pop(name, None)
        self._freed.pop(name, None)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        """Those of `names` that changed since they were last refused, as soon as there is one."""
        wanted = frozenset(names)
        if self._task is None:
            known = [revision for name in wanted if (revision := self._refused.get(name, 0))]
            self._next = min(known) + 1 if known else 0
            self._task = asyncio.create_task(self._listen(), name="drakkar etcd wake-ups")
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while not (free := self._free(wanted)):
                    self._changed.clear()
                    await self._changed.wait()
                return free
        return frozenset()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _free(self, wanted: frozenset[str]) -> frozenset[str]:
        return frozenset(
            name
            for name in wanted
            if name not in self._refused or self._freed.get(name, 0) > self._refused[name]
        )

    async def _listen(self) -> None:
        failures = 0
        while True:
            began = self._next
            try:
                await self._watch()
            except CompactedError:
                self._wake_all()
            except Exception:  # noqa: BLE001, S110  whatever it was, who waits must be told of what comes
                pass
            failures = 0 if self._next != began else failures + 1
            longest = min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2.0 ** min(failures, 10))
            await asyncio.sleep(longest * (0.5 + 0.5 * random.random()))  # noqa: S311  no secret

    async def _watch(self) -> None:
        # Of grants nobody needs to hear. Without a revision to begin with, the watch begins now.
        request = {**self._folder.range, "filters": ["NOPUT"], "start_revision": str(self._next)}
        async with aclosing(self._client.watch(request)) as messages:
            async for message in messages:
                if message.get("created"):
                    now = revision_of(message)
                    if now < self._next - 1:  # of a store that lost its data, and all leases with it
                        self._wake_all()
                        return
                    self._next = self._next or now + 1
                for event in message.get("events", ()):
                    revision = number(event["kv"]["mod_revision"])
                    self._next = max(self._next, revision + 1)
                    name = self._folder.name(event["kv"]["key"])
                    if name in self._refused:
                        self._freed[name] = revision
                        self._changed.set()

    def _wake_all(self) -> None:
        """Anything may have happened: let everybody ask again, and listen from then on."""
        self._next = 0
        self._refused.clear()
        self._freed.clear()
        self._changed.set()
