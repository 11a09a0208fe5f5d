"""Reading cards: a watch that tells when each was published, and one small request for each listing.

The watch is for ages, and spares reading again what it told of. That a listing is complete does not hang on
it: each listing asks for all that changed since the last change that is known, and how many cards there are.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from typing import Final

from drakkar.fleet.provider import PeerCard

from drakkar_etcd._answers import UnansweredError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._picture import Entry, Picture
from drakkar_etcd._wire import Folder, Json, decoded, encoded, number, revision_of

PAGE: Final = 500
"""How many cards are read at once: more would hold up the event loop while they are taken apart."""

TOLD_SECONDS: Final = 0.1
"""How long a listing waits for the watch to tell of what it has just read."""

_QUESTIONS: Final = 8
_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 5.0


class Reader:
    """`clock` is elapsed time; `skipped_within(seconds)` tells how much of that was only pretended."""

    def __init__(
        self,
        client: EtcdClient,
        folder: Folder,
        clock: Callable[[], float],
        skipped_within: Callable[[float], float],
    ) -> None:
        self._client = client
        self._folder = folder
        self._clock = clock
        self._skipped_within = skipped_within
        self._picture = Picture(folder)
        self._turn = asyncio.Lock()  # a reading sees the store at one moment, so nothing is changed under it
        self._told = asyncio.Event()
        self._unheard = asyncio.Event()
        self._watching = False
        self._last_told = 0
        self._missed = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to listen; the store need not be up."""
        self._tasks = [
            asyncio.create_task(self._listen(), name="drakkar etcd cards"),
            asyncio.create_task(self._ask_ages(), name="drakkar etcd ages"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def read(self) -> list[Entry]:
        """Every key as of now. Raises as `EtcdClient.call` does."""
        async with self._turn:
            news = await self._read_news() if self._watching else await self._read_all()
        if self._watching and news:
            await self._wait_until_told(news)
        if self._picture.unheard():
            self._unheard.set()
        return self._picture.entries()

    async def _read_news(self) -> list[Entry]:
        """What the watch has not told yet, which is hardly ever anything."""
        if self._missed > self._last_told:  # as of the last listing: this watch is dead
            self._client.end_streams()
        since = {"min_mod_revision": str(self._picture.revision + 1)}
        answer = await self._client.call("/kv/range", {**self._folder.range, **since})
        revision = revision_of(answer)
        news = self._picture.add(answer.get("kvs", ()), self._clock())
        if revision < self._picture.revision or len(self._picture) != number(answer.get("count")):
            return await self._read_all()  # some were deleted
        self._picture.revision = revision
        return news

    async def _read_all(self) -> list[Entry]:
        kvs: list[Json] = []
        request = {**self._folder.range, "limit": str(PAGE)}
        while True:
            answer = await self._client.call("/kv/range", request)
            revision = number(request.setdefault("revision", str(revision_of(answer))))
            page = answer.get("kvs", ())
            kvs += page
            if not answer.get("more"):
                break
            if not page:
                raise UnansweredError("etcd answered that there is more, and with nothing")
            request["key"] = encoded(decoded(page[-1]["key"]) + b"\0")
        if revision < self._picture.revision:  # another store, or one that lost its data
            self._picture.forget()
            self._client.end_streams()
        self._picture.replace(kvs, revision, self._clock())
        return []

    async def _wait_until_told(self, news: list[Entry]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                while any(self._picture.is_unheard(entry) for entry in news):
                    self._told.clear()
                    await self._told.wait()
                return
        self._missed = max(entry.mod for entry in news)

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with self._turn:
                    await self._read_all()
                    begin = self._picture.revision + 1
                self._unheard.set()
                await self._watch(begin)
                failures = 0
            except Exception:  # noqa: BLE001  whatever it was, listings go on without, and it is tried again
                failures = 0 if self._watching else failures + 1
            finally:
                self._watching = False
            longest = min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2.0 ** min(failures, 10))
            await asyncio.sleep(longest * (0.5 + 0.5 * random.random()))  # noqa: S311  no secret

    async def _watch(self, begin: int) -> None:
        self._last_told = self._missed = 0
        live_after = 0
        async with aclosing(
            self._client.watch({**self._folder.range, "start_revision": str(begin)})
        ) as messages:
            async for message in messages:
                now = self._clock()
                if message.get("created"):
                    live_after = revision_of(message)
                    if live_after < begin - 1:
                        return  # of a store that lost its data: it would tell nothing until it is there again
                    self._watching = True
                events = message.get("events", ())
                async with self._turn:
                    self._picture.hear(events, now, live_after)
                if events:
                    self._last_told = number(events[-1]["kv"]["mod_revision"])
                    self._told.set()

    async def _ask_ages(self) -> None:
        """Whenever there are cards from before we listened: ask for how long their leases still last."""
        while True:
            await self._unheard.wait()
            self._unheard.clear()
            asking: dict[int, list[Entry]] = {}
            for entry in self._picture.unheard():
                asking.setdefault(entry.lease, []).append(entry)
            leases = list(asking)
            for first in range(0, len(leases), _QUESTIONS):
                async with asyncio.TaskGroup() as group:
                    for lease in leases[first : first + _QUESTIONS]:
                        group.create_task(self._ask_age(lease, asking[lease]))

    async def _ask_age(self, lease: int, entries: list[Entry]) -> None:
        asked_at = self._clock()
        with suppress(Exception):  # asked again after the next listing
            answer = await self._client.call("/lease/timetolive", {"ID": str(lease)})
            left = number(answer.get("TTL"))
            if left < 0:  # the lease is gone, and the card with it
                return
            # Whole seconds, rounded down: a card may seem up to a second older than it is.
            age = max(0.0, float(number(answer.get("grantedTTL")) - left))
            heard_at = asked_at - age - self._skipped_within(age)
            for entry in entries:
                if entry.heard_at is None:
                    entry.heard_at = min(heard_at, entry.seen_at)


def rows(entries: Iterable[Entry], now: float) -> list[PeerCard]:
    """A listing of the caller's own of those that are cards."""
    return [PeerCard(entry.card(), entry.age_seconds(now)) for entry in entries if not entry.reason]
