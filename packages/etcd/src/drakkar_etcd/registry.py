"""The registry half: one key per worker below `<prefix>/cards/`, each on an etcd lease of the prune age.

Not guaranteed: that a dead worker is shown as offline by a process that starts right after the cluster got
a new leader, which gives every lease its full time once more; it is after the time that any worker has. Who
may write below the prefix may publish any card.

This is the side towards the worker: time limits and log lines. Requests are in `_publisher` and `_reader`.
"""

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from drakkar.fleet import provider as contract
from drakkar.fleet.provider import PeerCardList, RegistryContext

from drakkar_etcd._answers import EtcdError, UnansweredError
from drakkar_etcd._cards import encode_card
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._picture import Entry
from drakkar_etcd._publisher import Publisher
from drakkar_etcd._reader import Reader, rows
from drakkar_etcd._wire import Folder
from drakkar_etcd.settings import SECTION, read_settings

if TYPE_CHECKING:
    from drakkar.fleet.provider import EventLogger

T = TypeVar("T")

_MAX_NAMED: Final = 1024
_TELL_AGAIN_SECONDS: Final = 600.0
_DELETES: Final = 16
_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", None)
_ConfigError: Final[type[ValueError]] = getattr(contract, "ProviderConfigError", ValueError)
"""Other implementations of the contract have no such error."""


def elapsed_seconds() -> float:
    """Seconds since some fixed point, also while the host was suspended where the system can tell."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def nothing_skipped(within_seconds: float) -> float:
    del within_seconds
    return 0.0


class EtcdRegistry:
    """Keeps cards in etcd. See `drakkar.fleet.provider.RegistryProvider` for what each method promises.

    A call that no endpoint answers within nine tenths of the worker's time limit raises `TimeoutError` or
    `ConnectionError`; what the server refuses raises `EtcdError`.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        clock: Callable[[], float] = elapsed_seconds,
        skipped_within: Callable[[float], float] = nothing_skipped,
    ) -> None:
        """`clock` returns elapsed seconds. A test that moves it on tells by `skipped_within` how much of the
        last so many real seconds that was, for ages that only the server knows.

        Raises `ValueError`, one line, when the options do not hold.
        """
        self._settings = read_settings(options)
        self._clock = clock
        self._skipped_within = skipped_within
        self._client = EtcdClient(self._settings)
        self._prune_after_seconds = 0.0
        self._pid = 0
        self._publisher: Publisher | None = None
        self._reader: Reader | None = None
        self._logger: EventLogger
        self._named: set[str] = set()
        self._names_full = False
        self._told_difference_at = -math.inf

    async def start(self, ctx: RegistryContext) -> None:
        """Begin to listen. The server need not be up; but one that is, and refuses the login or wants one, is
        an error.

        Raises `ProviderConfigError` for that, and nothing else that the server or the network does, as all
        that may be over with the next heartbeat.
        """
        self._logger = ctx.logger
        self._pid = os.getpid()
        prune_after = self._settings.prune_after_seconds
        if prune_after is None:
            prune_after = getattr(ctx, "prune_after_seconds", 86400.0)
        self._prune_after_seconds = prune_after
        self._client.clusters.on_difference = self._tell_difference
        self._client.open(0.9 * getattr(ctx, "timeout_seconds", 5.0))
        folder = Folder(f"{self._settings.prefix}/cards/")
        self._publisher = Publisher(self._client, folder, self._prune_after_seconds)
        try:
            async with self._client.within():
                await self._greet(folder)
        except EtcdError as error:
            if error.login_is_refused:
                raise _ConfigError(f"{SECTION}.username: the login was refused: {error}") from error
            if error.not_logged_in and not self._settings.username:
                raise _ConfigError(f"{SECTION}.username is missing: {error}") from error
            self._logger.warning("etcd_unreachable", error=str(error))
        except (UnansweredError, TimeoutError) as error:
            self._logger.warning("etcd_unreachable", error=str(error))
        self._reader = Reader(self._client, folder, self._clock, self._skipped_within)
        self._reader.start()

    async def _greet(self, folder: Folder) -> None:
        """Whether we may come in: the least request that tells."""
        if self._settings.username:
            await self._client.log_in()
        else:
            await self._client.call("/kv/range", {**folder.range, "count_only": True})

    async def publish(self, card: dict[str, Any]) -> None:
        """Raises `ValueError` before the server is asked. Cancelling may or may not have taken effect, but
        not later than a `publish` or a `withdraw` that returns."""
        data = encode_card(card)
        publisher = self._started(self._publisher)
        async with self._client.within():
            await publisher.publish(card["worker"], data)

    async def list(self) -> PeerCardList:
        """Return every card that the store has at this moment. Ages are known for what was published since
        the start, and a moment later for the rest. Cancelling leaves no change but cards that were too old.
        """
        reader = self._started(self._reader)
        async with self._client.within():
            entries = await self._read(reader)
        self._name_rejected(entries)
        return rows(entries, self._clock())

    async def withdraw(self, worker: str, instance: str) -> None:
        """Delete the card of `worker` while it holds `instance`; may be repeated."""
        publisher = self._started(self._publisher)
        async with self._client.within():
            await publisher.withdraw(worker, instance)

    async def stop(self) -> None:
        """Close what was opened, without asking the server. May be called twice, and without `start`."""
        if self._pid not in (0, os.getpid()):
            return  # the connections are the parent's
        if self._reader is not None:
            await self._reader.stop()
        await self._client.close()

    async def _read(self, reader: Reader) -> Sequence[Entry]:
        """What there is, without what is too old, of which some is deleted: the server does so by itself, but
        later after it got a new leader, and never for what somebody put there without a lease."""
        entries = await reader.read()
        now = self._clock()
        old = [entry for entry in entries if entry.is_older_than(self._prune_after_seconds, now)]
        if not old:
            return entries
        publisher = self._started(self._publisher)
        await asyncio.gather(*(publisher.delete(entry.key, entry.mod) for entry in old[:_DELETES]))
        return [entry for entry in entries if entry not in old]

    def _tell_difference(self, told: str) -> None:
        now = elapsed_seconds()
        if now - self._told_difference_at >= _TELL_AGAIN_SECONDS:
            self._told_difference_at = now
            self._logger.error("etcd_clusters_differ", error=f"{told}, see {SECTION}.endpoints")

    def _started(self, part: T | None) -> T:
        if part is None:
            raise RuntimeError("the provider has not been started")
        if os.getpid() != self._pid:
            raise RuntimeError("a forked copy of a process is not the worker that it was")
        return part

    def _name_rejected(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if not entry.reason or entry.shown in self._named:
                continue
            if len(self._named) == _MAX_NAMED:
                if not self._names_full:
                    self._names_full = True
                    self._logger.warning("fleet_card_invalid_names_full", names=_MAX_NAMED)
                return
            self._named.add(entry.shown)
            self._logger.warning("fleet_card_invalid", file=entry.shown, reason=entry.reason)
