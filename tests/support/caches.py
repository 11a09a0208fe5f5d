"""Caches of workers in this process, and what a peer's card and page look like."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from drakkar.cache.exchange import Exchange, ExchangeTiming
from drakkar.cache.rows import Row
from drakkar.cache.service import CacheService, CacheTiming
from drakkar.clock import Clock
from drakkar.fleet.liveness import Liveness
from drakkar.fleet.service import Peer
from drakkar.telemetry.metrics import ExchangeMetrics
from prometheus_client import CollectorRegistry
from support.clock import FakeClock
from support.log import RecordingLogger

NOW_MS = 1_800_000_000_000


@asynccontextmanager
async def open_cache(
    folder: Path | None,
    worker: str = "worker-1",
    *,
    clock: Clock | None = None,
    log: RecordingLogger | None = None,
    on_marks: Callable[[], None] = lambda: None,
    **timing: Any,
) -> AsyncIterator[CacheService]:
    """A cache at work; its clock stands still, so that it writes when it is told to, unless given another."""
    service = CacheService(
        worker,
        folder,
        CacheTiming(**timing),
        serves=True,
        on_marks=on_marks,
        clock=clock or FakeClock(),
        logger=log if log is not None else RecordingLogger(),
    )
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


async def flush(service: CacheService) -> None:
    await service.keep(())


def a_row(key: str = "a", ms: int = NOW_MS, **fields: Any) -> Row:
    row = Row(key, "cluster", '"x"', 3, ms, ms, None, "worker-2")
    return row._replace(**fields)


def page_of(rows: Sequence[Row], more: bool = False) -> bytes:
    """As other implementations may write it, too."""
    return json.dumps({"rows": [row._asdict() for row in rows], "more": more}).encode()


def a_peer(url: str, name: str = "worker-2", liveness: Liveness = "online", **fields: Any) -> Peer:
    """One that shows no marks, so that it is asked in every cycle; `fields` are more of its card."""
    card = {"schema": 1, "worker": name, "cluster": "", "url": url, "state": "running", **fields}
    return Peer(card, 1.0, liveness)


class Puller:
    """An exchange on a cache, and what it has counted and logged."""

    def __init__(
        self,
        service: CacheService,
        *peers: Peer,
        cluster: str = "",
        clock: Clock | None = None,
        **timing: Any,
    ) -> None:
        self.peers = list(peers)
        self.log = RecordingLogger()
        self.registry = CollectorRegistry()
        self.exchange = Exchange(
            cluster,
            ExchangeTiming(**timing),
            service.thread,
            peers=lambda: self.peers,
            store=service.keep,
            clock=clock or FakeClock(),
            logger=self.log,
            metrics=ExchangeMetrics(self.registry),
        )

    async def cycle(self, count: int = 1) -> None:
        for _ in range(count):
            await self.exchange.cycle()

    def count(self, outcome: str) -> float:
        labels = {"endpoint": "cache_changes", "outcome": outcome}
        return self.registry.get_sample_value("drakkar_fleet_peer_requests_total", labels) or 0

    def outcomes(self) -> dict[str, float]:
        """What was counted so far."""
        names = ("ok", "http_error", "timeout", "transport_error", "bad_body")
        return {name: self.count(name) for name in names if self.count(name)}
