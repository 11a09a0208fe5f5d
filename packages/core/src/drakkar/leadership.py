"""The leases and the background workers of one worker, put together: started, stopped and asked as one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from drakkar.clock import Clock
from drakkar.errors import ConfigError
from drakkar.fleet.identity import WorkerIdentity
from drakkar.fleet.plugins import PROVIDER_KEY
from drakkar.fleet.provider import EventLogger
from drakkar.fleet.service import Peer
from drakkar.leases.backend import LeaseBackend, LeaseContext, LeaseInfo
from drakkar.leases.keeper import LeaseKeeper
from drakkar.leases.plugins import LEASE_PROVIDER_KEY, make_lease_backend
from drakkar.settings import Settings
from drakkar.settings.resolve import lease_options, lease_provider, naming_written_keys
from drakkar.supervisor.chosen import Supervised
from drakkar.supervisor.history import HistoryEvent
from drakkar.supervisor.supervisor import Supervisor
from drakkar.supervisor.surroundings import LaneReport, Surroundings
from drakkar.supervisor.worker import Dependencies, SharedCache
from drakkar.telemetry.metrics import LeaseMetrics, SupervisorMetrics


def choose_leases(
    settings: Settings, workers: Sequence[Supervised], logger: EventLogger
) -> LeaseBackend | None:
    """The configured lease backend, not started; None without background workers.

    Raises `ConfigError` when the provider does not exist, has no leases or refuses its options, and when the
    times do not hold for it. What is set under `supervisor.leases` is looked at without workers, too: they
    may be chosen the next time.
    """
    leases = settings.supervisor.leases
    if not workers and leases == type(leases)():
        return None
    key = LEASE_PROVIDER_KEY if leases.provider else PROVIDER_KEY
    with naming_written_keys(settings, leases=True):
        backend = make_lease_backend(lease_provider(settings), lease_options(settings), logger, key)
    if problems := leases.timing.problems(backend.min_ttl_seconds):
        raise ConfigError(problems[0])
    return backend if workers else None


def local_hint(settings: Settings) -> str:
    """What it means that the configured leases are local, and what to do about it."""
    match lease_provider(settings):
        case "none":
            return (
                "each process leads by itself; set supervisor.leases.provider to one that all workers share"
            )
        case "filesystem":
            return (
                "workers elsewhere do not see these leases; set shared.dir to a folder that all of them see"
            )
    return "workers elsewhere do not see these leases"


class Leadership:
    """What is needed to lead: the lease backend of `choose_leases` and the background workers.

    Satisfies `drakkar.server.leases_api.LeasesView`.
    """

    def __init__(
        self,
        settings: Settings,
        backend: LeaseBackend,
        workers: Sequence[Supervised],
        identity: WorkerIdentity,
        *,
        peers: Callable[[], Sequence[Peer]],
        cache: SharedCache | None,
        on_change: Callable[[], None],
        clock: Clock,
        logger: EventLogger,
        metrics: CollectorRegistry,
    ) -> None:
        leases = settings.supervisor.leases
        self.lease_provider = lease_provider(settings)
        ctx = LeaseContext(
            worker=identity.worker,
            instance=identity.instance,
            cluster=identity.cluster,
            logger=logger,
            options=lease_options(settings),
            ttl_seconds=leases.ttl_seconds,
            timeout_seconds=leases.timeout_seconds,
        )
        self.keeper = LeaseKeeper(
            backend,
            ctx,
            leases.timing,
            clock=clock,
            logger=logger,
            metrics=LeaseMetrics(metrics),
            local_hint=local_hint(settings),
        )
        around = Surroundings(
            keeper=self.keeper,
            clock=clock,
            logger=logger,
            metrics=SupervisorMetrics(metrics),
            stop_timeout_seconds=settings.supervisor.stop_timeout_seconds,
            refresh_seconds=settings.fleet.registry.refresh_seconds,
        )
        deps = Dependencies(logger, settings, self.keeper, peers, cache=cache)
        self.supervisor = Supervisor(workers, deps, around, on_change=on_change)

    def start(self) -> None:
        """Begin; nothing waits for the store."""
        self.keeper.start()
        self.supervisor.start()

    async def stop(self) -> Sequence[str]:
        """Acquire nothing more, end every run, give every lease back, stop the backend. Returns the names of
        the runs that would not end; their leases are left to run out."""
        self.keeper.drain()
        try:
            return await self.supervisor.stop()
        finally:
            await self.keeper.stop()

    def features(self) -> dict[str, Any]:
        """What the card tells of the background workers."""
        return self.supervisor.features()

    def lease_problem(self) -> str | None:
        return self.keeper.problem or self.supervisor.problem()

    async def list_leases(self) -> Sequence[LeaseInfo]:
        return await self.keeper.list()

    def lane_reports(self) -> Mapping[str, Sequence[LaneReport]]:
        return self.supervisor.reports()

    def single(self) -> Mapping[str, bool]:
        """Of each background worker, by its name, whether it is one lease and no fan-out."""
        return self.supervisor.single()

    def leader_for(self) -> Sequence[str]:
        names: list[str] = self.supervisor.features()["leader_for"]
        return names

    def history(self) -> Sequence[HistoryEvent]:
        return self.supervisor.history()

    def step_down(self, lease: str, cool_down_seconds: float) -> bool:
        return self.supervisor.step_down(lease, cool_down_seconds)
