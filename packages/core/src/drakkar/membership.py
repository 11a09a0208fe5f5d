"""The registry of one worker, made from its settings."""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from drakkar.clock import Clock
from drakkar.fleet.identity import WorkerIdentity
from drakkar.fleet.plugins import load_provider, make_provider
from drakkar.fleet.provider import EventLogger, RegistryContext, RegistryProvider
from drakkar.fleet.service import RegistryService, RegistryTiming
from drakkar.server.address import is_loopback
from drakkar.settings import Settings
from drakkar.settings.resolve import naming_written_keys, provider_options, registry_folder, spans_hosts
from drakkar.telemetry.metrics import RegistryMetrics

_REFRESH_JITTER: Final = 0.2


def choose_provider(settings: Settings, logger: EventLogger) -> RegistryProvider | None:
    """The configured provider, not started; None, and a line in the log, when there is no registry.

    Raises `ConfigError` when it does not exist or refuses its options.
    """
    name = settings.fleet.registry.provider
    off = None
    if not settings.ui.enabled:
        off = "fleet_registry_disabled_no_ui"
    elif name == "filesystem" and registry_folder(settings) is None:
        off = "fleet_registry_disabled_no_dir"
    if off is None:
        with naming_written_keys(settings):
            return make_provider(name, provider_options(settings), logger)
    load_provider(name, logger)  # a name that does not exist is wrong, registry or not
    logger.warning(off, provider=name)
    return None


def make_registry(
    settings: Settings,
    provider: RegistryProvider,
    identity: WorkerIdentity,
    *,
    clock: Clock,
    logger: EventLogger,
    metrics: CollectorRegistry,
    on_refresh: Callable[[], None],
) -> RegistryService:
    """The service over `provider`, not started."""
    registry = settings.fleet.registry
    ctx = RegistryContext(
        worker=identity.worker,
        instance=identity.instance,
        cluster=identity.cluster,
        logger=logger,
        options=provider_options(settings),
        prune_after_seconds=registry.prune_after_seconds,
        timeout_seconds=registry.timeout_seconds,
        offline_after_seconds=registry.offline_after_seconds,
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
        clock=clock,
        logger=logger,
        metrics=RegistryMetrics(metrics),
        on_refresh=on_refresh,
    )


def warn_of_loopback(settings: Settings, identity: WorkerIdentity, logger: EventLogger) -> None:
    """Warn of an address that peers elsewhere cannot reach."""
    host = urlsplit(identity.url).hostname or ""
    if not settings.ui.public_url and is_loopback(host) and spans_hosts(settings):
        logger.warning(
            "fleet_url_is_loopback",
            url=identity.url,
            hint="peers on other hosts cannot reach this address: set ui.host or ui.public_url",
        )
