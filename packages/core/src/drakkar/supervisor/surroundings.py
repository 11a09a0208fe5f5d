"""What lanes are given, and what they tell of themselves."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger
from drakkar.leases.keeper import LeaseKeeper
from drakkar.supervisor.history import History
from drakkar.telemetry.metrics import SupervisorMetrics

LaneStatus = Literal[
    "waiting", "leading", "running", "stopping", "stuck", "releasing", "backing_off", "stopped"
]


@dataclass(frozen=True, slots=True)
class LaneReport:
    """A lane at one moment, for people."""

    name: str
    shard: str
    """`-` outside a fan-out."""

    lease: str | None
    status: LaneStatus
    token: int | None
    """Of the lease that is held; None when none is."""

    since_seconds: float
    """How long the lane has been in this status."""

    restarts_in_seconds: float | None
    """Until the next start; None unless the last run crashed or returned."""

    attempts: int
    """Unhealthy ends in a row."""

    last_error: str | None
    last_error_at: datetime | None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all lanes of a process share."""

    keeper: LeaseKeeper
    clock: Clock
    logger: EventLogger
    metrics: SupervisorMetrics
    stop_timeout_seconds: float
    refresh_seconds: float
    """How often the registry looks at the peers."""

    history: History = field(default_factory=History)
