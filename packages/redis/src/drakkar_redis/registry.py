"""The provider `redis`: one hash of cards and one sorted set of the times when they were published.

Not guaranteed: that a card outlives the memory of the server, which may be restarted without its data,
flushed or told to evict; it is back with the next heartbeat. Who may write the keys may publish any card.

Each method is one script call. Ages are differences of two readings of the server's clock.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from drakkar.fleet import provider as contract
from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext

from drakkar_redis import _rights
from drakkar_redis._card_scripts import LIST, PUBLISH, WITHDRAW
from drakkar_redis._card_text import decode, encode
from drakkar_redis._client import SHARE_OF_LIMIT, RedisClient
from drakkar_redis._errors import StoreError
from drakkar_redis._keys import Keys
from drakkar_redis._script import Script
from drakkar_redis._start import check
from drakkar_redis._tls import check_files
from drakkar_redis.settings import read_settings

if TYPE_CHECKING:
    from drakkar.fleet.provider import EventLogger

_MAX_NAMED: Final = 1024
_MAX_SHOWN: Final = 200
_AT_ONCE: Final = 100

ConfigError: Final[type[ValueError]] = getattr(contract, "ProviderConfigError", ValueError)
"""What tells a worker not to start; another implementation of the contract may have no name for it."""


class RedisRegistry:
    """Keeps cards in Redis. See `drakkar.fleet.provider.RegistryProvider` for what each method promises.

    A call that the server does not answer within nine tenths of the worker's time limit raises
    `TimeoutError`; one that fails raises `StoreError`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises `ValueError`, one line, when the options do not hold, or a file they name cannot be used."""
        self._settings = read_settings(options)
        check_files(self._settings)
        self._keys = Keys(self._settings.prefix)
        self._prune_ms = 0
        self._offline_ms = 0.0
        self._client: RedisClient | None = None
        self._pid = 0
        self._logger: EventLogger
        self._named: set[bytes] = set()
        self._all_named = False

    async def start(self, ctx: RegistryContext) -> None:
        """Ask the server once. One that cannot be reached yet is logged, and asked again at the first
        publish.

        Raises `ProviderConfigError` when it refuses the login, lacks a right, scripts or the database, or
        when `cluster` is not what the server is.
        """
        prune_after = self._settings.prune_after_seconds
        if prune_after is None:
            prune_after = getattr(ctx, "prune_after_seconds", 86400.0)
        self._prune_ms = max(1, round(1000 * min(prune_after, 1e9)))
        self._offline_ms = 1000 * getattr(ctx, "offline_after_seconds", 30.0)
        self._logger = ctx.logger
        client = RedisClient(self._settings, SHARE_OF_LIMIT * getattr(ctx, "timeout_seconds", 5.0))
        self._client = client
        self._pid = os.getpid()
        try:
            keys = [self._keys.cards, self._keys.published]
            await check(client, self._settings, _rights.CARDS, LIST, keys, [self._prune_ms])
        except ValueError as error:
            raise ConfigError(str(error)) from error
        except (StoreError, TimeoutError) as error:
            ctx.logger.warning("fleet_redis_not_reached", error=str(error))

    async def publish(self, card: dict[str, Any]) -> None:
        """Raises `ValueError` before the server is asked. Cancelling may or may not have taken effect."""
        data = encode(card)
        worker = card.get("worker")
        if not isinstance(worker, str) or not worker:
            raise ValueError("the card names no worker, so there is no place for it")
        await self._run(PUBLISH, worker.encode(), data, self._prune_ms)

    async def list(self) -> PeerCardList:
        """Return every card; those that were too old are deleted first. The age of a card that the server's
        clock cannot tell, as of one put there by hand, is None, and that since it was first listed when it
        can only be offline. Cancelling leaves no change but that."""
        index, blob = await self._run(LIST, self._prune_ms)
        found: PeerCardList = []
        for number, (name, data, age_ms) in enumerate(_entries(index, blob)):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)  # thousands of cards must not stall the loop
            card = "too_large" if data is None else decode(data)
            if isinstance(card, dict):
                card = _misplaced(card, name) or card
            if isinstance(card, str):
                self._name_rejected(name, card)
            else:
                found.append(PeerCard(card, self._age_seconds(age_ms)))
        return found

    async def withdraw(self, worker: str, instance: str) -> None:
        """Delete the card of `worker` while it holds `instance`; may be repeated."""
        await self._run(WITHDRAW, worker.encode(), instance.encode())

    async def stop(self) -> None:
        """Close the connections, waiting for no server. May be called twice, and without `start`."""
        if self._client is not None and os.getpid() == self._pid:  # else the connections are the parent's
            await self._client.close()

    async def _run(self, script: Script, *args: object) -> Any:
        if self._client is None:
            raise RuntimeError("the provider has not been started")
        if os.getpid() != self._pid:
            raise RuntimeError("a forked copy of a process is not the worker that it was")
        answer, _ = await self._client.run(script, [self._keys.cards, self._keys.published], args)
        return answer

    def _age_seconds(self, age_ms: int) -> float | None:
        if age_ms < 0:  # known is only how old it is at least
            age_ms = -1 - age_ms
            if age_ms <= self._offline_ms:
                return None
        return age_ms / 1000

    def _name_rejected(self, name: bytes, reason: str) -> None:
        if name in self._named:
            return
        if len(self._named) >= _MAX_NAMED:
            if not self._all_named:
                self._all_named = True
                self._logger.warning("fleet_card_invalid_names_full", names=_MAX_NAMED)
            return
        self._named.add(name)
        text = name.decode(errors="replace")[:_MAX_SHOWN]
        self._logger.warning(
            "fleet_card_invalid", file=text if text.isprintable() else ascii(text)[1:-1], reason=reason
        )


def _entries(index: bytes, blob: bytes) -> Iterator[tuple[bytes, bytes | None, int]]:
    """Name, card (None: too large) and age, as the script tells it, of each entry of a listing."""
    at = 0
    for line in index.split(b"\n") if index else ():
        age_ms, name_size, size = map(int, line.split())
        name, at = blob[at : at + name_size], at + name_size
        data, at = (None, at) if size < 0 else (blob[at : at + size], at + size)
        yield name, data, age_ms


def _misplaced(card: dict[str, Any], name: bytes) -> str:
    """Why a card cannot be what a worker put in this place; empty when it can. A copy must not be a second
    row of its worker. Only here is the place known, so one that names no worker is told of here, too."""
    if "worker" not in card:
        return "missing_field"
    worker = card["worker"]
    if not isinstance(worker, str):
        return "wrong_type"
    if not worker:
        return "empty_field"
    return "" if worker.encode() == name else "wrong_name"
