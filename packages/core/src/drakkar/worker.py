"""One worker of the fleet: the parts put together, started in order and stopped in the opposite one.

    async with Worker(load_settings(Path("drakkar.yaml"))) as worker:
        print(worker.url, [peer.card["worker"] for peer in worker.peers()])

Several workers may live in one process and one event loop. A worker installs no signal handlers and
configures no logging: that is the program's business (`drakkar run` is such a program).
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry

from drakkar.cache.cache import Cache
from drakkar.caching import Caching
from drakkar.calls import see_through
from drakkar.clock import Clock, SystemClock
from drakkar.fleet.identity import WorkerIdentity, WorkerState
from drakkar.fleet.provider import EventLogger, RegistryProvider
from drakkar.fleet.service import Peer, RegistryHealth, RegistryService
from drakkar.leadership import Leadership, choose_leases
from drakkar.leases.backend import LeaseBackend
from drakkar.membership import choose_provider, make_registry, warn_of_loopback
from drakkar.server.address import host_names, listen, origin_of, reachable_host, url_of
from drakkar.server.app import make_app
from drakkar.server.fleet_api import Row, ServedIdentity, worker_rows
from drakkar.server.http import HttpServer
from drakkar.server.timeline import Timeline, leaders, seen_at
from drakkar.settings import Settings
from drakkar.settings.resolve import (
    cluster_name,
    config_summary,
    lease_provider,
    naming_origins,
    worker_name,
)
from drakkar.supervisor.chosen import Supervised, choose
from drakkar.supervisor.events import LeaderEvent
from drakkar.telemetry.logs import get_logger


@dataclass(frozen=True, slots=True)
class Choice:
    """What a worker is to run, made from its settings and not started."""

    workers: Sequence[Supervised]
    provider: RegistryProvider | None
    backend: LeaseBackend | None


def choose_parts(
    settings: Settings,
    environ: Mapping[str, str],
    logger: EventLogger,
    workers: Iterable[Supervised] = (),
) -> Choice:
    """All that can be wrong with a configuration alone: neither a port nor a store is touched.

    Raises `ConfigError` for whatever a worker with these settings and these further `workers` would refuse.
    """
    with naming_origins(settings):
        worker_name(
            settings, environ, settings.ui.port
        )  # for what it refuses; an unnamed one's port comes later
        cluster_name(settings, environ)
        chosen = choose(settings.supervisor.workers, also=workers)
        return Choice(chosen, choose_provider(settings, logger), choose_leases(settings, chosen, logger))


_INSIDE: Final[ContextVar[tuple["Worker", ...]]] = ContextVar("drakkar_inside", default=())
"""The workers that the code which asks is part of, as a run is: these wait for it when they stop."""


class Worker:
    """An async context manager; or call `start` and `stop`, each once.

    `workers` run in addition to those that `supervisor.workers` names. `environ` is where worker and cluster
    names are looked up, by default the process environment; `logger` takes event names and fields, by default
    the standard library's logger `drakkar`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        workers: Iterable[Supervised] = (),
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        logger: EventLogger | None = None,
    ) -> None:
        self.metrics = CollectorRegistry()
        """The metrics of this worker alone; the server shows them at `/metrics`."""
        self.timeline = Timeline()
        """Who led what in the fleet, for the page."""
        self.unstopped: Sequence[str] = ()
        """After `stop`: the runs of background workers that would not end. They may still be at work, under
        leases that this process leaves to run out: the process should end, with a status that is not 0."""
        self._workers = tuple(workers)
        self._settings = settings
        self._environ = os.environ if environ is None else environ
        self._clock = clock or SystemClock()
        self._logger: EventLogger = logger or get_logger()
        self._started_at: datetime = self._clock.wall()
        self._state: WorkerState = "starting"
        self._noted: Sequence[str] = ()
        self._served: ServedIdentity | None = None
        self._listener: socket.socket | None = None
        self._server: HttpServer | None = None
        self._registry: RegistryService | None = None
        self._leadership: Leadership | None = None
        self._caching: Caching | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when the server listens, the registry has started and the state is `running`.

        Waits for the store at most `fleet.registry.timeout_seconds`. Raises `ConfigError` when the
        configuration cannot work, `UnavailableError` when the port is taken, `RuntimeError` when `stop` is
        called meanwhile. An error or a cancellation undoes what was done so far.
        """
        if self._starting is not None or self._stopping is not None:
            raise RuntimeError("a worker is started once; make a new one")
        self._starting = asyncio.create_task(self._start(), name="drakkar start")
        try:
            await asyncio.wait({self._starting})
            if self._starting.cancelled():
                raise RuntimeError("the worker was stopped while it started")
            self._starting.result()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Publish `draining`, end the runs, write the cache, withdraw the card, stop the registry, then the
        server.

        Bounded, also when the store hangs. May be called again, and at any time: every call returns when
        the one stop has ended, a start that is under way ends before it begins. A cancellation is passed on
        after that, never in the middle; but at once to what runs inside of the worker, a background worker's
        run for one, since the stop waits for its end.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="drakkar stop")
        await (asyncio.shield(self._stopping) if self in _INSIDE.get() else see_through(self._stopping))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def served(self) -> ServedIdentity:
        """Who this worker is. Raises `RuntimeError` before `start`."""
        if self._served is None:
            raise RuntimeError("the worker has not started")
        return self._served

    @property
    def name(self) -> str:
        return self.served.identity.worker

    @property
    def instance(self) -> str:
        return self.served.identity.instance

    @property
    def cluster(self) -> str:
        return self.served.identity.cluster

    @property
    def url(self) -> str | None:
        """Where the server answers; None with `ui.enabled: false`."""
        return self.served.identity.url or None

    @property
    def state(self) -> WorkerState:
        return self._state

    def peers(self) -> Sequence[Peer]:
        """The other workers of the last refresh, with ages of now; empty without a registry."""
        return () if self._registry is None else self._registry.peers()

    @property
    def cache(self) -> Cache | None:
        """Small values, shared with peers; None with `cache.enabled: false`, and before `start`."""
        return None if self._caching is None else self._caching.cache

    def leader_for(self) -> Sequence[str]:
        """The background workers that this worker leads now, sorted."""
        return () if self._leadership is None else self._leadership.leader_for()

    def leader_events(self) -> AsyncIterator[LeaderEvent]:
        """What this worker begins and ceases to lead, from now on; ends when it has stopped.

        Raises `RuntimeError` when it has no background workers, or has not started.
        """
        if self._leadership is None:
            raise RuntimeError("this worker runs no background workers")
        return self._leadership.supervisor.leader_events()

    def listing(self) -> object:
        """Another object after every refresh that worked; for telling whether there is news."""
        return None if self._registry is None else self._registry.listing()

    def workers(self) -> list[Row]:
        """The rows of `GET /api/v1/workers`: this worker and its peers."""
        return worker_rows(self)

    def registry_health(self) -> RegistryHealth | None:
        """Whether the registry works; None when there is none."""
        return None if self._registry is None else self._registry.health()

    def now_ts(self) -> float:
        return self._clock.wall().timestamp()

    async def _start(self) -> None:
        _INSIDE.set((*_INSIDE.get(), self))
        settings = self._settings
        release = version("drakkar-core")
        chosen = choose_parts(settings, self._environ, self._logger, self._workers)
        host, port = "", None
        if settings.ui.enabled:
            self._listener = listen(settings.ui.host, settings.ui.port)
            host, port = reachable_host(settings.ui.host), self._listener.getsockname()[1]
        identity = WorkerIdentity(
            worker=worker_name(settings, self._environ, port),
            cluster=cluster_name(settings, self._environ),
            url="" if port is None else settings.ui.public_url or url_of(host, port),
            version=release,
            started_at=self._started_at,
        )
        self._served = ServedIdentity(
            identity,
            host,
            port,
            settings.fleet.registry.provider,
            lease_provider(settings),
            config_summary(settings),
        )
        caching = None
        if settings.cache.enabled:
            caching = self._caching = Caching(
                settings,
                identity,
                peers=self.peers,
                on_change=lambda: self._show_features(at_once=False),
                clock=self._clock,
                logger=self._logger,
                metrics=self.metrics,
            )
            await caching.start()
        leadership = None
        if chosen.backend is not None:
            leadership = Leadership(
                settings,
                chosen.backend,
                chosen.workers,
                identity,
                peers=self.peers,
                cache=self.cache,
                on_change=self._show_features,
                clock=self._clock,
                logger=self._logger,
                metrics=self.metrics,
            )
        if self._listener is not None:
            token = settings.ui.auth_token.get_secret_value()
            hosts = host_names(settings.ui.host, settings.ui.public_url)
            shared = caching if caching is not None and caching.shares else None
            origin = origin_of(settings.ui.public_url)
            app = make_app(self, leadership, shared, release, self.metrics, token, hosts, origin, self._clock)
            self._server = HttpServer(app, self._listener)
            await self._server.start()
        if chosen.provider is not None:
            self._registry = make_registry(
                settings,
                chosen.provider,
                identity,
                clock=self._clock,
                logger=self._logger,
                metrics=self.metrics,
                on_refresh=self._note_leaders,
            )
            self._show_features()  # so that the first card has them
            await self._registry.start()
            warn_of_loopback(settings, identity, self._logger)  # now that the provider has not refused
            if caching is not None:
                caching.start_exchange()
        if leadership is not None:
            self._leadership = leadership
            leadership.start()
            self._show_features()
        self._set_state("running")

    async def _stop(self) -> None:
        await self._end_start()
        self._set_state("draining")
        try:
            if self._caching is not None:
                await self._caching.stop_exchange()
            if self._leadership is not None:
                self.unstopped = await self._leadership.stop()
        finally:
            await self._flush()

    async def _flush(self) -> None:
        try:
            if self._caching is not None:
                await self._caching.stop()
        finally:
            await self._withdraw()

    async def _withdraw(self) -> None:
        try:
            if self._registry is not None:
                await self._registry.stop()
        finally:
            if self._server is not None:
                await self._server.stop()
            elif self._listener is not None:
                self._listener.close()

    def _note_leaders(self) -> None:
        now_ts, peers = self.now_ts(), self.peers()
        self._noted = self.leader_for()
        jobs = {} if self._leadership is None else self._leadership.single()
        leading = {**leaders(peers), self.name: self._noted}
        seen = {**seen_at(peers, now_ts), self.name: now_ts}
        self.timeline.observe(now_ts, leading, seen, jobs)

    def _show_features(self, *, at_once: bool = True) -> None:
        if self.leader_for() != self._noted:  # one shard more or less would be no reason to look at all peers
            self._note_leaders()
        if self._registry is not None:
            parts = [part.features() for part in (self._leadership, self._caching) if part is not None]
            self._registry.set_features({key: part[key] for part in parts for key in part}, at_once=at_once)

    async def _end_start(self) -> None:
        if self._starting is None:
            return
        if not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if not self._starting.cancelled():
            self._starting.exception()  # for `start` to raise; here so that it counts as seen in any case

    def _set_state(self, state: WorkerState) -> None:
        self._state = state
        if self._registry is not None:
            self._registry.set_state(state)
