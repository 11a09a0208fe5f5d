"""Pulling the rows of peers, in cycles. Nothing waits for it, and no peer can hold up another one for longer
than the requests that it is given.

The place that was reached with each peer is kept in memory. A worker that starts reads its peers from the
beginning, which changes nothing where it has their rows already.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from drakkar.cache.fetch import ENDPOINT, Connection, PeerClient, PeerRequestError
from drakkar.cache.peers import PeerState, Target, choose
from drakkar.cache.rows import Row
from drakkar.cache.thread import CacheThread
from drakkar.calls import wait_ended
from drakkar.clock import Clock
from drakkar.errors import describe
from drakkar.fleet.provider import EventLogger
from drakkar.fleet.service import Peer
from drakkar.telemetry.metrics import ExchangeMetrics
from drakkar.telemetry.outages import Outage

FIRST_CYCLE_SECONDS: Final = 2.0
"""At most, and a random part of it: workers that start together do not all ask at once."""

_REQUEST_SHARE: Final = 0.9
"""Of a cycle, what one request may take: who hangs for all of it fails, rather than being left unnoticed."""

_STOP_SECONDS: Final = 1.0
_MAX_STATES: Final = 4096
_LAST_KEY: Final = "\U0010ffff"


class NotStoredError(Exception):
    """Rows could not be stored here; no fault of the peer."""


@dataclass(frozen=True, slots=True)
class ExchangeTiming:
    """The keys of `fleet.cache_exchange`; what they mean stands there."""

    interval_seconds: float = 30.0
    page_size: int = 500
    timeout_seconds: float = 5.0
    cycle_deadline_seconds: float = 27.0
    max_concurrent_peers: int = 4


class Exchange:
    """Runs between `start` and `stop`, each called once. `store` keeps rows, or raises `NotStoredError`."""

    def __init__(
        self,
        own_cluster: str,
        timing: ExchangeTiming,
        thread: CacheThread,
        *,
        peers: Callable[[], Sequence[Peer]],
        store: Callable[[Sequence[Row]], Awaitable[None]],
        clock: Clock,
        logger: EventLogger,
        metrics: ExchangeMetrics,
        connect: Callable[[str], Connection] | None = None,
    ) -> None:
        self._own_cluster = own_cluster
        self._timing = timing
        self._peers = peers
        self._store = store
        self._clock = clock
        self._logger = logger
        limit = min(timing.timeout_seconds, _REQUEST_SHARE * timing.cycle_deadline_seconds)
        self._client = PeerClient(thread, limit, metrics, connect)
        self._states: dict[str, PeerState] = {}
        self._cycle = 0
        self._outage = Outage()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="drakkar cache exchange")

    async def stop(self) -> None:
        """Leave whatever is under way; takes no notice of peers."""
        if self._task is None:
            return
        self._task.cancel()
        await wait_ended([self._task], _STOP_SECONDS, self._clock)

    async def cycle(self) -> None:
        """Ask every peer that may have news, for at most `cycle_deadline_seconds`."""
        self._cycle += 1
        peers = self._peers()
        targets = choose(
            ((peer.card, peer.liveness) for peer in peers), self._states, self._own_cluster, self._cycle
        )
        waiting = iter(targets)
        with suppress(TimeoutError):  # who was not reached comes first in the next cycle
            async with asyncio.timeout(self._timing.cycle_deadline_seconds), asyncio.TaskGroup() as group:
                for _ in range(min(self._timing.max_concurrent_peers, len(targets))):
                    group.create_task(self._pull_each(waiting), name="drakkar cache pull")
        if len(self._states) > _MAX_STATES:
            listed = {peer.card["worker"] for peer in peers}
            self._states = {name: state for name, state in self._states.items() if name in listed}

    async def _run(self) -> None:
        early = min(FIRST_CYCLE_SECONDS, self._timing.interval_seconds)
        await self._clock.sleep(early * (0.5 + random.random() / 2))  # noqa: S311  no secret
        while True:
            began = self._clock.elapsed()
            try:
                await self.cycle()
            except Exception as error:  # noqa: BLE001  a cycle that fails must not be the last one
                if self._outage.failed(self._clock.elapsed()) is not None:
                    self._logger.error("cache_exchange_failed", error=describe(error))
            took = self._clock.elapsed() - began
            await self._clock.sleep(
                max(0.1 * self._timing.interval_seconds, self._timing.interval_seconds - took)
            )

    async def _pull_each(self, waiting: Iterator[Target]) -> None:
        for target in waiting:
            await self._pull(target)

    async def _pull(self, target: Target) -> None:
        state = target.state
        state.last_asked = self._cycle
        rejected: Counter[str] = Counter()
        peer = self._client.connect(target.url)
        try:
            while await self._pull_page(peer, target, rejected):
                pass
        except NotStoredError:
            pass  # told where it happened; the cursor stands before these rows
        except PeerRequestError as error:
            if state.failures == 0:
                self._logger.warning(
                    "fleet_peer_request_failed",
                    peer=target.name,
                    url=target.url,
                    endpoint=ENDPOINT,
                    outcome=error.outcome,
                    error=str(error),
                )
            skip = state.failed()
            self._logger.info(
                "fleet_peer_backoff", peer=target.name, skip_cycles=skip, failures=state.failures
            )
        else:
            state.succeeded()
        finally:
            peer.close()
            if rejected:
                self._logger.warning("fleet_peer_rows_rejected", peer=target.name, rejected=dict(rejected))

    async def _pull_page(self, peer: Connection, target: Target, rejected: Counter[str]) -> bool:
        """Read and keep the next page; whether there is another one."""
        state = target.state
        after = state.cursor
        if after is not None and state.to_verify:
            after = (after[0] - 1, _LAST_KEY)
        rows, more = await self._client.page(peer, state.scopes, after, self._timing.page_size)
        if state.to_verify:
            state.to_verify = False
            if all(row.cursor != state.cursor for row in rows):
                state.cursor = None  # the peer has lost what it had
                return True
        kept = []
        for row in rows:
            if row.scope not in state.scopes:
                rejected["scope"] += 1
            elif row.origin_worker_id != target.name:
                rejected["origin"] += 1
            else:
                kept.append(row)
        if kept:
            await self._store(kept)
        if rows:
            state.cursor = rows[-1].cursor
        return more
