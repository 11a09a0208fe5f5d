"""One worker of the fleet: the parts put together, started in order and stopped in the opposite one.

    async with Worker(load_settings(Path("drakkar.yaml"))) as worker:
        print(worker.url, [peer.card["worker"] for peer in worker.peers()])

Several workers may live in one process and one event loop. A worker installs no signal handlers and
configures no logging: that is the program's business (`drakkar run` is such a program).
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry

from drakkar.clock import Clock, SystemClock
from drakkar.fleet.identity import WorkerIdentity, WorkerState
from drakkar.fleet.plugins import load_provider, make_provider
from drakkar.fleet.provider import EventLogger, RegistryContext, RegistryProvider
from drakkar.fleet.service import Peer, RegistryHealth, RegistryService, RegistryTiming
from drakkar.server.address import is_loopback, listen, reachable_host, url_of
from drakkar.server.app import make_app
from drakkar.server.fleet_api import Row, ServedIdentity, worker_rows
from drakkar.server.http import HttpServer
from drakkar.settings import Settings
from drakkar.settings.resolve import (
    cluster_name,
    config_summary,
    provider_options,
    registry_folder,
    spans_hosts,
    worker_name,
)
from drakkar.telemetry.logs import get_logger
from drakkar.telemetry.metrics import RegistryMetrics

_REFRESH_JITTER: Final = 0.2


class Worker:
    """An async context manager; or call `start` and `stop`, each once.

    `environ` is where worker and cluster names are looked up, by default the process environment; `logger`
    takes event names and fields, by default the standard library's logger `drakkar`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        logger: EventLogger | None = None,
    ) -> None:
        self.metrics = CollectorRegistry()
        """The metrics of this worker alone; the server shows them at `/metrics`."""
        self._settings = settings
        self._environ = os.environ if environ is None else environ
        self._clock = clock or SystemClock()
        self._logger: EventLogger = logger or get_logger()
        self._started_at: datetime = self._clock.wall()
        self._state: WorkerState = "starting"
        self._served: ServedIdentity | None = None
        self._server: HttpServer | None = None
        self._registry: RegistryService | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when the server listens, the registry has started and the state is `running`.

        Waits for the store at most `fleet.registry.timeout_seconds`. Raises `ConfigError` when the
        configuration cannot work, `RuntimeError` when `stop` is called meanwhile. An error or a cancellation
        undoes what was done so far.
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
        """Publish `draining`, withdraw the card, stop the registry, then the server.

        Bounded, also when the store hangs. May be called again, and at any time: every call returns when
        the one stop has ended, a start that is under way ends before it begins. A cancellation is passed on
        after that, never in the middle.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="drakkar stop")
        cancelled: asyncio.CancelledError | None = None
        while not self._stopping.done():
            try:
                await asyncio.wait({self._stopping})
            except asyncio.CancelledError as error:
                cancelled = error
        self._stopping.result()
        if cancelled is not None:
            raise cancelled

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

    def workers(self) -> list[Row]:
        """The rows of `GET /api/v1/workers`: this worker and its peers."""
        return worker_rows(self)

    def registry_health(self) -> RegistryHealth | None:
        """Whether the registry works; None when there is none."""
        return None if self._registry is None else self._registry.health()

    def now_ts(self) -> float:
        return self._clock.wall().timestamp()

    async def _start(self) -> None:
        settings = self._settings
        release = version("drakkar-core")
        provider = self._make_provider()  # first, so that a wrong configuration costs nobody anything
        host, port = "", None
        if settings.ui.enabled:
            listener = listen(settings.ui.host, settings.ui.port)
            token = settings.ui.auth_token.get_secret_value()
            self._server = HttpServer(make_app(self, release, self.metrics, token), listener)
            host, port = reachable_host(settings.ui.host), listener.getsockname()[1]
        identity = WorkerIdentity(
            worker=worker_name(settings, self._environ, port),
            cluster=cluster_name(settings, self._environ),
            url="" if port is None else settings.ui.public_url or url_of(host, port),
            version=release,
            started_at=self._started_at,
        )
        self._served = ServedIdentity(
            identity, host, port, settings.fleet.registry.provider, config_summary(settings)
        )
        if self._server is not None:
            await self._server.start()
        if provider is not None:
            self._warn_of_loopback(identity.url, host)
            self._registry = self._make_registry(provider, identity)
            await self._registry.start()
        self._set_state("running")

    async def _stop(self) -> None:
        await self._end_start()
        self._set_state("draining")
        try:
            if self._registry is not None:
                await self._registry.stop()
        finally:
            if self._server is not None:
                await self._server.stop()

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

    def _make_provider(self) -> RegistryProvider | None:
        """The configured provider, not started; None, and a line in the log, when there is no registry."""
        settings = self._settings
        name = settings.fleet.registry.provider
        off = None
        if not settings.ui.enabled:
            off = "fleet_registry_disabled_no_ui"
        elif name == "filesystem" and registry_folder(settings) is None:
            off = "fleet_registry_disabled_no_dir"
        if off is None:
            return make_provider(name, provider_options(settings), self._logger)
        load_provider(name, self._logger)  # a name that does not exist is wrong, registry or not
        self._logger.warning(off, provider=name)
        return None

    def _make_registry(self, provider: RegistryProvider, identity: WorkerIdentity) -> RegistryService:
        registry = self._settings.fleet.registry
        ctx = RegistryContext(
            worker=identity.worker,
            instance=identity.instance,
            cluster=identity.cluster,
            logger=self._logger,
            options=provider_options(self._settings),
            prune_after_seconds=registry.prune_after_seconds,
            timeout_seconds=registry.timeout_seconds,
        )
        timing = RegistryTiming(
            heartbeat_seconds=registry.heartbeat_seconds,
            refresh_seconds=registry.refresh_seconds,
            offline_after_seconds=registry.offline_after_seconds,
            timeout_seconds=registry.timeout_seconds,
            refresh_jitter=_REFRESH_JITTER,
        )
        return RegistryService(
            registry.provider,
            provider,
            ctx,
            identity,
            timing,
            clock=self._clock,
            logger=self._logger,
            metrics=RegistryMetrics(self.metrics),
        )

    def _warn_of_loopback(self, url: str, host: str) -> None:
        if self._settings.ui.public_url or not is_loopback(host) or not spans_hosts(self._settings):
            return
        self._logger.warning(
            "fleet_url_is_loopback",
            url=url,
            hint="peers on other hosts cannot reach this address: set ui.host or ui.public_url",
        )
