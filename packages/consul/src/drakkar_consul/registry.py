"""The provider `consul`: one key per worker below `<prefix>/cards/`.

Not guaranteed: that a card is still there when its age is looked at, or that a call cut off by its time limit
had no effect; it has none later than the next call for that worker, though. Who may write below the prefix
may publish any card.

A card hangs on a session of its worker that deletes it, so that the cards of dead workers go away by
themselves.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext

from drakkar_consul import _keys as keys
from drakkar_consul._ages import Ages
from drakkar_consul._cards import CardEntry, encode_card, instance_in
from drakkar_consul._client import ConflictError, ConsulClient, ConsulError, ForbiddenError
from drakkar_consul._keys import Entry
from drakkar_consul._names import place_of
from drakkar_consul._session import Session, elapsed_seconds
from drakkar_consul._watch import WAIT_SECONDS, Watch
from drakkar_consul.settings import read_settings

if TYPE_CHECKING:
    from drakkar.fleet.provider import EventLogger

CONNECTIONS: Final = 2
"""And one for the blocking query. An agent takes 200 connections of one address in all."""

MIN_SESSION_SECONDS: Final = 10.0
MAX_SESSION_SECONDS: Final = 86400.0

_STILL_SECONDS: Final = 900.0
"""After this a card that stands still is of nobody who is online, where the worker does not say."""

_TRIES: Final = 6
_PRUNED_AT_ONCE: Final = 16
_MAX_NAMED: Final = 1024
_CARDS_AT_ONCE: Final = 100


class ConsulRegistry:
    """Keeps cards as keys. See `drakkar.fleet.provider.RegistryProvider` for what each method promises.

    A call that the agent does not answer within nine tenths of the worker's time limit raises `ConsulError`.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        clock: Callable[[], float] = elapsed_seconds,
        wait_seconds: int = WAIT_SECONDS,
    ) -> None:
        """`clock` returns elapsed seconds. Raises `ValueError`, one line, when the options do not hold."""
        self._settings = read_settings(options)
        self._clock = clock
        self._client = ConsulClient(self._settings, connections=CONNECTIONS)
        self._prefix = f"{self._settings.prefix}/cards/"
        self._wait_seconds = wait_seconds
        self._prune_after = 86400.0
        self._renew_after = MIN_SESSION_SECONDS
        self._session: Session | None = None
        self._ages: Ages
        self._watch: Watch
        self._logger: EventLogger
        self._pid = 0
        self._own: dict[str, int] = {}
        self._publishes = 0
        self._cards: dict[str, CardEntry] = {}
        self._named: set[str] = set()

    async def start(self, ctx: RegistryContext) -> None:
        """Begin to watch the cards. Does not wait for the agent."""
        prune_after = self._settings.prune_after_seconds
        if prune_after is None:
            prune_after = getattr(ctx, "prune_after_seconds", 86400.0)
        self._prune_after = prune_after
        self._ages = Ages(min(prune_after, getattr(ctx, "offline_after_seconds", _STILL_SECONDS)))
        self._client.limit_seconds = 0.9 * getattr(ctx, "timeout_seconds", 5.0)
        self._logger = ctx.logger
        ttl_seconds = min(MAX_SESSION_SECONDS, max(MIN_SESSION_SECONDS, prune_after / 2))
        self._renew_after = ttl_seconds / 4
        name = f"drakkar card of {place_of(ctx.worker)[:200]}"
        self._session = Session(self._client, name, ttl_seconds, delete=True)
        self._watch = Watch(self._client, self._prefix, self._ages, self._clock, self._wait_seconds)
        self._watch.start()
        self._pid = os.getpid()

    async def publish(self, card: dict[str, Any]) -> None:
        """Write the card, on this process's session.

        Raises `ValueError` before the agent is asked, and `ConsulError` when the card cannot be written. One
        that was cut off on its way has no effect after the next publish or withdraw.
        """
        data = encode_card(card)
        session = self._started()
        key = self._key(card["worker"])
        async with self._asking():
            await self._write(session, key, data)

    async def list(self) -> PeerCardList:
        """Return every card below the prefix.

        Raises `ConsulError` when the agent cannot be asked or the token may not read. Cancelling leaves no
        change but cards that were too old.
        """
        self._started()
        async with self._asking():
            asked_at = elapsed_seconds()
            listing = await self._client.tree(self._prefix)
            self._watch.observe(listing, asked_at)
            entries = await self._without_old(listing.entries)
        return await self._read(entries)

    async def withdraw(self, worker: str, instance: str) -> None:
        """Delete the card of `worker` while it holds `instance`; may be repeated.

        Raises `ConsulError` when the agent cannot be asked, but not when there is no card.
        """
        session = self._started()
        key = self._key(worker)
        async with self._asking():
            try:
                await self._delete(key, instance)
                self._own.pop(key, None)
            except ForbiddenError:
                if not self._own:  # a session that could never hold a card would stay for a day
                    await session.destroy()
                raise
            if not self._own:  # and with it ends what a publish on its way could still hang a card on
                await session.destroy()

    async def stop(self) -> None:
        """Close the connections, without asking the agent. A card that was not withdrawn stays until the
        session runs out. May be called twice, and without `start`."""
        if os.getpid() == self._pid:  # else nothing was opened, or it is the parent's
            await self._watch.stop()
            await self._client.close()

    async def _delete(self, key: str, instance: str) -> None:
        for _ in range(_TRIES):
            entry = await self._client.get(key)
            if entry is None or instance_in(entry.value) != instance:
                return
            with suppress(ConflictError):  # somebody wrote it meanwhile: look again whose it is
                await self._client.transact(keys.delete(key, entry.index))
                return
        raise ConsulError(f"{self._client.address}: the card changes all the time")

    async def _write(self, session: Session, key: str, data: bytes) -> None:
        """Each try names the change that it is to follow, so that it cannot come after a later one."""
        self._publishes += 1  # else Consul would take a card that has not changed for no change
        known, other = self._own.get(key), None
        for _ in range(_TRIES):
            sent_at, now = self._clock(), elapsed_seconds()
            holder = await session.fresh(now - self._renew_after)
            ops = [keys.check_missing(key) if known is None else keys.check_index(key, known)]
            if other is not None:
                ops.append(keys.unlock(key, other, data))
            ops.append(keys.lock(key, holder, data, self._publishes))
            try:
                changed = (await self._client.transact(*ops))[-1].index
            except ConflictError as error:
                if error.session_is_gone:
                    session.forget(holder)
                entry = await self._client.get(key)
                known = None if entry is None else entry.index
                other = None if entry is None or entry.session == holder else entry.session
                continue
            self._own[key] = changed
            self._ages.published(key, changed, sent_at, self._clock())
            return
        raise ConsulError(f"{self._client.address}: another process writes this card all the time")

    async def _without_old(self, entries: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Those that are not older than they may get, for sure; delete some of the others."""
        old = self._ages.older_than(self._prune_after, self._clock())
        for key in list(old & entries.keys())[:_PRUNED_AT_ONCE]:
            try:
                await self._client.transact(keys.delete(key, entries[key].index))
            except (ConflictError, ForbiddenError):
                continue  # published again, or gone; or this worker may only read
        return {key: entry for key, entry in entries.items() if key not in old} if old else entries

    async def _read(self, entries: Mapping[str, Entry]) -> PeerCardList:
        now = self._clock()
        cards: dict[str, CardEntry] = {}
        peers = []
        for number, (key, entry) in enumerate(entries.items()):
            if number % _CARDS_AT_ONCE == _CARDS_AT_ONCE - 1:
                await asyncio.sleep(0)  # thousands of cards must not stall the loop
            found = self._cards.get(key)
            if found is None or found.text != entry.text:
                found = CardEntry(key.removeprefix(self._prefix), entry.text)
            cards[key] = found
            if found.reason:
                self._name(key, found.reason)
            else:
                peers.append(PeerCard(found.card(), self._ages.age(key, now)))
        self._cards = cards
        return peers

    def _name(self, key: str, reason: str) -> None:
        if key in self._named or len(self._named) > _MAX_NAMED:
            return
        self._named.add(key)
        if len(self._named) > _MAX_NAMED:
            self._logger.warning("fleet_card_invalid_names_full", names=_MAX_NAMED)
            return
        shown = key if key.isprintable() else ascii(key)[1:-1]
        self._logger.warning("fleet_card_invalid", file=shown, reason=reason)

    def _key(self, worker: str) -> str:
        return self._prefix + place_of(worker)

    def _started(self) -> Session:
        if self._session is None:
            raise RuntimeError("the provider has not been started")
        if os.getpid() != self._pid:
            raise RuntimeError("a forked copy of a process is not the worker that it was")
        return self._session

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        try:
            async with self._client.within():
                yield
        except ConsulError:
            self._watch.agent_answers = False
            raise
        self._watch.agent_answers = True
