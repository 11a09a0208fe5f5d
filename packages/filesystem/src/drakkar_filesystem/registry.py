"""The provider `filesystem`: one file per worker in `<dir>/workers`.

Not guaranteed: that a listing is one moment of the whole folder, that a card is still there when its age is
looked at, or that a call cut off by its time limit had no effect. Who may write the folder may publish any
card.

This is the side on the event loop: time limits and log lines. What touches the disk is in `_cards`.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from drakkar.fleet.card import CardError, encode_card
from drakkar.fleet.provider import EventLogger, PeerCardList, ProviderConfigError, RegistryContext

from drakkar_filesystem._card_file import file_name
from drakkar_filesystem._cards import Cards
from drakkar_filesystem._client import FileThread, Proceed
from drakkar_filesystem._folder import Folder
from drakkar_filesystem.settings import DIR_KEY, read_settings

T = TypeVar("T")

_MAX_NAMED: Final = 1024
_LINES_AT_ONCE: Final = 64
_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed_seconds() -> float:
    """Seconds since some fixed point, also while the host was suspended where the system can tell."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class FilesystemRegistry:
    """Keeps cards as files. See `drakkar.fleet.provider.RegistryProvider` for what each method promises.

    A call that the folder does not answer within nine tenths of the worker's time limit raises
    `TimeoutError`. It may stay behind on the provider's own thread; then later calls wait for it, each
    within its limit, and succeed once the folder answers again.
    """

    def __init__(self, options: Mapping[str, Any], *, clock: Callable[[], float] = elapsed_seconds) -> None:
        """`clock` returns elapsed seconds. Raises `ValueError`, one line, when the options do not hold."""
        self._settings = read_settings(options)
        self._clock = clock
        self._folder = Folder(self._settings.dir)
        self._thread = FileThread("drakkar-filesystem")
        self._limit_seconds = 0.0
        self._cards: Cards | None = None
        self._pid = 0
        self._logger: EventLogger
        self._worker = ""
        self._named: set[str] = set()
        self._names_full = False
        self._sharer_named = False

    async def start(self, ctx: RegistryContext) -> None:
        """Start the thread; an explicit folder is made and written to, a derived one is not looked at.

        Raises `ProviderConfigError` when an explicit folder cannot be used or does not answer.
        """
        prune_after = self._settings.prune_after_seconds
        if prune_after is None:
            prune_after = getattr(ctx, "prune_after_seconds", 86400.0)
        self._limit_seconds = 0.9 * getattr(ctx, "timeout_seconds", 5.0)
        self._logger = ctx.logger
        self._worker = ctx.worker
        self._cards = Cards(
            self._folder, ctx.worker, ctx.instance, prune_after_seconds=prune_after, clock=self._clock
        )
        self._pid = os.getpid()
        self._thread.start()
        if not self._settings.explicit:
            return
        try:
            await self._call(Cards.probe)
        except OSError as error:
            message = f"{DIR_KEY}: cannot use {self._settings.dir}: {_why(error)}"
            raise ProviderConfigError(_printable(message)) from error

    async def publish(self, card: dict[str, Any]) -> None:
        """Write the card, making the folder when it is missing.

        Raises `CardError` before the folder is touched, and `OSError` when the card cannot be written.
        Cancelling may or may not have taken effect, but not later than a `withdraw` that returns.
        """
        data = encode_card(card)
        worker = card.get("worker")
        if not isinstance(worker, str) or not worker:
            raise CardError("missing_field", "the card names no worker, so there is no file for it")
        await self._call(lambda cards, proceed: cards.publish(worker, data, proceed))

    async def list(self) -> PeerCardList:
        """Return every card in the folder; all ages are None before the first publish.

        Raises `OSError` when the folder is missing or cannot be read. Cancelling leaves no change but cards
        that were too old.
        """
        listing = await self._call(Cards.read_all)
        if listing.sharer and not self._sharer_named:
            self._sharer_named = True
            file = file_name(self._worker)
            self._logger.warning(
                "fleet_card_file_shared", file=file, worker=self._worker, other=listing.sharer
            )
        await self._name_rejected(listing.rejected)
        return listing.cards

    async def withdraw(self, worker: str, instance: str) -> None:
        """Delete the card of `worker` while it holds `instance`; may be repeated.

        Raises `OSError` when the folder cannot be used, but not when there is no folder or no card.
        """
        await self._call(lambda cards, proceed: cards.withdraw(worker, instance, proceed))

    async def stop(self) -> None:
        """Let the thread go, without waiting for it. May be called twice, and without `start`."""
        if os.getpid() == self._pid:  # else there is no thread, or it is the parent's
            self._thread.close()

    async def _call(self, work: Callable[[Cards, Proceed], T]) -> T:
        cards = self._cards
        if cards is None:
            raise RuntimeError("the provider has not been started")
        if os.getpid() != self._pid:
            raise RuntimeError("a forked copy of a process is not the worker that it was")
        limit = asyncio.timeout(self._limit_seconds)
        try:
            async with limit:
                return await self._thread.run(lambda proceed: work(cards, proceed))
        except TimeoutError:
            if not limit.expired():  # the file system's own ETIMEDOUT
                raise
        raise TimeoutError(f"{self._folder.path} did not answer within {self._limit_seconds:g} s")

    async def _name_rejected(self, rejected: Iterable[tuple[str, str]]) -> None:
        for file, reason in rejected:
            if file in self._named:
                continue
            if len(self._named) == _MAX_NAMED:
                if not self._names_full:
                    self._names_full = True
                    self._logger.warning("fleet_card_invalid_names_full", names=_MAX_NAMED)
                return
            self._named.add(file)
            self._logger.warning("fleet_card_invalid", file=_printable(file), reason=reason)
            if len(self._named) % _LINES_AT_ONCE == 0:
                await asyncio.sleep(0)  # a folder full of rubbish must not stall the loop with log lines


def _printable(text: str) -> str:
    """`text` in one line; a file name may hold line breaks, and bytes that no log can take."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _why(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{reason}: {error.filename}"
