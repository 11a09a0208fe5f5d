"""The metrics of one worker, under names that are shared with other implementations.

Each worker has a `CollectorRegistry` of its own, so that several workers can live in one process. What is
a fact of this moment (ages, counts) is worked out when it is read, not written down when it changes.
"""

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from drakkar.fleet.liveness import LIVENESS, Liveness

REGISTRY_OPERATIONS = ("publish", "list", "withdraw")
LEASE_OPERATIONS = ("start", "acquire", "renew", "release", "wait", "list", "stop")


class RegistryMetrics:
    """What the registry service counts. Every series exists from the start, so that a rate can be taken."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.peers = Gauge(
            "drakkar_fleet_peers",
            "Peers in the last registry snapshot by liveness (this worker not counted).",
            ["state"],
            registry=registry,
        )
        self.errors = Counter(
            "drakkar_fleet_registry_errors",
            "Registry provider calls that failed or timed out.",
            ["op"],
            registry=registry,
        )
        self.duration_seconds = Histogram(
            "drakkar_fleet_registry_duration_seconds",
            "Duration of registry provider calls in seconds.",
            ["op"],
            registry=registry,
        )
        self.snapshot_age_seconds = Gauge(
            "drakkar_fleet_registry_snapshot_age_seconds",
            "Seconds since the last successful registry refresh; 0 right after one.",
            registry=registry,
        )
        self.duplicate_names = Counter(
            "drakkar_fleet_duplicate_worker_name",
            "Other live instances seen publishing this worker's name.",
            registry=registry,
        )
        self.invalid_cards = Gauge(
            "drakkar_fleet_invalid_cards",
            "Cards of the last registry snapshot that were left out because of their fields.",
            registry=registry,
        )
        for op in REGISTRY_OPERATIONS:
            self.errors.labels(op)
            self.duration_seconds.labels(op)

    def watch(self, count_peers: Callable[[Liveness], int], snapshot_age: Callable[[], float]) -> None:
        """Read the two gauges from the service whenever they are asked for."""
        self.snapshot_age_seconds.set_function(snapshot_age)
        for state in LIVENESS:
            self.peers.labels(state).set_function(partial(count_peers, state))


MAX_LEASE_SERIES = 1024


class LeaseMetrics:
    """What the lease keeper counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._held = Gauge(
            "drakkar_lease_held",
            f"1 for each lease that this worker holds; at most {MAX_LEASE_SERIES} names are shown.",
            ["name"],
            registry=registry,
        )
        self.lost = Counter(
            "drakkar_lease_lost",
            "Leases that ran out or were found to be somebody else's while they were held.",
            registry=registry,
        )
        self.abandoned = Counter(
            "drakkar_lease_abandoned",
            "Leases left to run out because the run under them would not end.",
            registry=registry,
        )
        self.errors = Counter(
            "drakkar_lease_errors", "Lease backend calls that failed or timed out.", ["op"], registry=registry
        )
        self.renew_duration_seconds = Histogram(
            "drakkar_lease_renew_duration_seconds",
            "Duration of one renewal of all held leases in seconds.",
            registry=registry,
        )
        for op in LEASE_OPERATIONS:
            self.errors.labels(op)
        self._shown: set[str] = set()

    def held(self, name: str) -> None:
        if name in self._shown or len(self._shown) < MAX_LEASE_SERIES:
            self._shown.add(name)
            self._held.labels(name).set(1)

    def ended(self, name: str) -> None:
        if name in self._shown:
            self._shown.discard(name)
            self._held.remove(name)


class SupervisorMetrics:
    """What the supervisor counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.crashes = Counter(
            "drakkar_worker_panic",
            "Runs of background workers that ended by raising; the shard is - outside a fan-out.",
            ["worker", "shard"],
            registry=registry,
        )
        self.leader_events = Counter(
            "drakkar_leader_events",
            "Background workers that began (acquired) or ceased (released) to lead in this process.",
            ["worker", "event"],
            registry=registry,
        )


PEER_OUTCOMES = ("ok", "http_error", "timeout", "transport_error", "bad_body")


class ExchangeMetrics:
    """What the cache exchange counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "drakkar_fleet_peer_requests",
            "Requests this worker sent to peer workers, by endpoint and outcome.",
            ["endpoint", "outcome"],
            registry=registry,
        )
        self.duration_seconds = Histogram(
            "drakkar_fleet_peer_request_duration_seconds",
            "Time of one request this worker sent to a peer worker, by endpoint.",
            ["endpoint"],
            registry=registry,
        )
        for outcome in PEER_OUTCOMES:
            self.requests.labels("cache_changes", outcome)
        self.duration_seconds.labels("cache_changes")
