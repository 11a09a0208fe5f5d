"""What the answers look like, for the description of the API alone.

Answers are built as plain data and sent as they are: a thousand rows go out without being checked one by
one. A test holds them to these models.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

_Text = Annotated[str | SkipJsonSchema[None], Field(default=None)]
"""Text under a key that may be missing, but is never null."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class WorkerRow(_Answer):
    """One worker of the fleet. What a card does not have is left out."""

    worker_name: str
    cluster_name: str | None
    """Null when the worker belongs to none."""

    cluster: str
    """The same, empty when the worker belongs to none."""

    url: str
    debug_url: str
    is_current: bool
    """Whether this is the worker that answers."""

    ip_address: str | None
    """Null for peers."""

    debug_port: int | None
    """Null for peers."""

    last_seen_ts: float | None
    """Epoch seconds on the clock of the worker that answers; null when unknown."""

    online: bool | None
    """Null when unknown."""

    backend: _Text
    version: _Text
    state: _Text
    started_at: _Text
    instance: _Text
    leader_for: Annotated[list[str] | SkipJsonSchema[None], Field(default=None)]
    """The background workers that it leads, sorted."""


class WorkerInfo(_Answer):
    """The worker that answers."""

    worker_id: str
    cluster: str | None
    instance: str
    config_summary: str
    backend: str
    backend_version: str
    started_at: str
    url: str
    registry_provider: str
    lease_provider: str


class HistoryRow(_Answer):
    """Something that happened to a background worker of the worker that answers."""

    number: int
    """Counts all since the start, those that are forgotten as well."""

    at_ts: float
    name: str
    shard: str
    """`-` for the background worker as a whole."""

    event: Literal["acquired", "released", "crashed"]
    error: str | None
    """Of a crash."""


class LeaderSpan(_Answer):
    """One worker of the fleet led one background worker without a break."""

    name: str
    worker: str
    from_ts: float
    to_ts: float | None
    """Null while it goes on."""


class HistoryAnswer(_Answer):
    since_ts: float
    """When the worker that answers started: of before that it knows nothing."""

    events: list[HistoryRow]
    """The last 200, newest first."""

    spans: list[LeaderSpan]
    """Those of the last hour, by name and time."""


class Health(_Answer):
    status: Literal["ok"]


class RegistryReadiness(_Answer):
    provider: str
    snapshot_age_seconds: float
    failing_for_seconds: dict[str, float]
    """Seconds since the first failure of each operation that fails now."""


class Readiness(_Answer):
    ready: bool
    state: str
    registry: RegistryReadiness | None
    """Null when there is none."""


class CacheRow(_Answer):
    """One version of one key of the cache."""

    key: str
    scope: Literal["cluster", "global"]
    value: str
    """JSON text."""

    size_bytes: int
    created_at_ms: int
    updated_at_ms: int
    """Epoch milliseconds, but greater than that of every earlier row of this worker."""

    expires_at_ms: int | None
    """Null when it does not expire."""

    origin_worker_id: str


class ChangesPage(_Answer):
    rows: list[CacheRow]
    more: bool
    """Whether there are rows after the last one of these."""
