"""The cache of one worker and its exchange with peers, put together: started, stopped and asked as one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from drakkar.cache.cache import Cache
from drakkar.cache.changes import ChangesQuery
from drakkar.cache.exchange import Exchange, ExchangeTiming
from drakkar.cache.service import CacheService, CacheTiming
from drakkar.clock import Clock
from drakkar.fleet.identity import WorkerIdentity
from drakkar.fleet.provider import EventLogger
from drakkar.fleet.service import Peer
from drakkar.settings import Settings
from drakkar.telemetry.metrics import ExchangeMetrics

_CYCLE_SHARE: Final = 0.9
"""Of the time between two rounds, what one may take."""


class Caching:
    """What is needed to cache and to share. Satisfies `drakkar.server.peer_api.ChangesView`."""

    def __init__(
        self,
        settings: Settings,
        identity: WorkerIdentity,
        *,
        peers: Callable[[], Sequence[Peer]],
        on_change: Callable[[], None],
        clock: Clock,
        logger: EventLogger,
        metrics: CollectorRegistry,
    ) -> None:
        keys, sharing = settings.cache, settings.fleet.cache_exchange
        self._service = CacheService(
            identity.worker,
            Path(settings.storage.dir) if settings.storage.dir else None,
            CacheTiming(keys.flush_interval_seconds, keys.cleanup_interval_seconds, keys.max_memory_entries),
            serves=sharing.enabled,
            on_marks=on_change,
            clock=clock,
            logger=logger,
        )
        deadline = sharing.cycle_deadline_seconds or _CYCLE_SHARE * sharing.interval_seconds
        self._exchange = Exchange(
            identity.cluster,
            ExchangeTiming(
                interval_seconds=sharing.interval_seconds,
                page_size=sharing.page_size,
                timeout_seconds=sharing.timeout_seconds,
                cycle_deadline_seconds=deadline,
                max_concurrent_peers=sharing.max_concurrent_peers,
            ),
            self._service.thread,
            peers=peers,
            store=self._service.keep,
            clock=clock,
            logger=logger,
            metrics=ExchangeMetrics(metrics),
        )

    @property
    def cache(self) -> Cache:
        return self._service.cache

    @property
    def shares(self) -> bool:
        """Whether peers may read, and are read."""
        return self._service.serves

    async def start(self) -> None:
        """Open the file. It is bounded, and a file that cannot be used costs a line in the log alone."""
        await self._service.start()

    def start_exchange(self) -> None:
        """Begin to ask peers; called when there is a registry."""
        if self.shares:
            self._exchange.start()

    async def stop_exchange(self) -> None:
        await self._exchange.stop()

    async def stop(self) -> None:
        """Write what has changed and close the file."""
        await self._service.stop()

    def features(self) -> dict[str, Any]:
        return self._service.features()

    async def changes(self, query: ChangesQuery) -> bytes:
        return await self._service.changes(query)
