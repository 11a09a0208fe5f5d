"""The settings of a worker: every key, its default, and the rules between keys.

Nothing is read here. Where values come from, and what a wrong one is reported as, is
`drakkar.settings.load`; what follows from them is `drakkar.settings.resolve`.

Models are frozen and take no unknown keys. A section that is null is an empty one, so that a file may have
all keys of a section commented out. `fleet.registry` also takes one free-form section for each provider,
named as the provider is, whose options only that provider understands: for the published names always, for
another name while it is the configured one, so that a misspelt key is still noticed.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import platformdirs
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from drakkar.fleet.plugins import PUBLISHED_PROVIDERS
from drakkar.leases.deadline import LeaseTiming
from drakkar.settings._origins import Origins
from drakkar.settings._values import (
    Count,
    Flag,
    Folder,
    FullName,
    Host,
    Name,
    OptionalSeconds,
    OptionalUrl,
    Options,
    PageSize,
    Port,
    Seconds,
    Token,
    Url,
    VariableName,
)
from drakkar.settings.text import kind


class Section(BaseModel):
    """A group of keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_empty(cls, data: object) -> object:
        if data is None:
            return {}
        if isinstance(data, dict | BaseModel):
            return data
        raise ValueError(f"must be a map of keys, not {kind(data)}")


class StorageSettings(Section):
    dir: Folder = Field(default_factory=lambda: platformdirs.user_state_dir("drakkar"))
    """Folder for this worker's own files, by default the user's state folder for `drakkar`. Empty: keep
    nothing on disk."""


class SharedSettings(Section):
    dir: Folder = ""
    """Folder that every worker of the fleet sees. Empty: there is none."""


class FilesystemSettings(Section):
    dir: Folder = ""
    """Card folder; one that is set must be usable. Empty means `<shared.dir>/fleet`, without a `shared.dir`
    `<storage.dir>/fleet`."""


class PeerSettings(Section):
    name: FullName
    """Worker name of the peer."""

    cluster: Name = ""
    """Cluster of the peer."""

    url: Url
    """Where the peer's UI server answers."""


def _list(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of maps, not {kind(value)}")
    return value


def _names(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of names, not {kind(value)}")
    return tuple(dict.fromkeys(value)) if all(isinstance(name, str) for name in value) else value


class StaticSettings(Section):
    peers: Annotated[tuple[PeerSettings, ...], BeforeValidator(_list)] = ()
    """The fixed peer list: `name`, `cluster`, `url` of each."""


class RegistrySettings(Section):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Options] = Field(init=False)

    provider: FullName = "filesystem"
    """`filesystem`, `static`, `none`, or the name of a plugin."""

    heartbeat_seconds: Seconds = 10.0
    """Seconds between card publishes."""

    refresh_seconds: Seconds = 15.0
    """Seconds between reads of the peer cards."""

    offline_after_seconds: Seconds = 30.0
    """A card older than this is offline. At least twice `heartbeat_seconds`."""

    prune_after_seconds: Seconds = 86400.0
    """Cards older than this are deleted. At least `offline_after_seconds`."""

    timeout_seconds: Seconds = 5.0
    """Time limit for one provider call."""

    filesystem: FilesystemSettings = Field(default_factory=FilesystemSettings)
    static: StaticSettings = Field(default_factory=StaticSettings)

    plugin_options: Options = Field(default_factory=dict)
    """Options for the provider, on top of those in the section of its name."""

    @model_validator(mode="before")
    @classmethod
    def _sections_have_a_provider(cls, data: object) -> object:
        if isinstance(data, dict):
            allowed = {*cls.model_fields, *PUBLISHED_PROVIDERS}
            if isinstance(provider := data.get("provider"), str):
                allowed.add(provider)
            if unknown := [key for key in data if key not in allowed]:
                raise _errors(cls, [("extra_forbidden", (str(key),)) for key in unknown])
        return data

    @model_validator(mode="after")
    def _timings_fit(self) -> "RegistrySettings":
        broken: list[tuple[PydanticCustomError | str, tuple[str, ...]]] = []
        if self.offline_after_seconds < 2 * self.heartbeat_seconds:
            broken.append(self._relation("offline_after_seconds", "twice ", "heartbeat_seconds"))
        for value, path in self._prune_options():
            if value < self.offline_after_seconds:
                broken.append(self._relation("prune_after_seconds", "", "offline_after_seconds", value, path))
        if broken:
            raise _errors(type(self), broken)
        return self

    def _prune_options(self) -> Iterator[tuple[float, tuple[str, ...]]]:
        """Every `prune_after_seconds` that may count, with where it stands: an option of the provider wins
        over ours. One that is no number is the provider's to refuse."""
        key = "prune_after_seconds"
        yield self.prune_after_seconds, (key,)
        for name, options in (
            (self.provider, self.section(self.provider)),
            ("plugin_options", self.plugin_options),
        ):
            value = options.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield value, (name, key)

    def _relation(
        self, key: str, times: str, other: str, value: float | None = None, path: tuple[str, ...] = ()
    ) -> tuple[PydanticCustomError, tuple[str, ...]]:
        """`value` is that of `key`, at `path`, where these are not the section's own."""
        message = (
            f"({getattr(self, key) if value is None else value:g}) must be at least"
            f" {times}fleet.registry.{other} ({getattr(self, other):g}); raise the first or lower the second"
        )
        context = {"message": message, "other": f"fleet.registry.{other}"}
        return PydanticCustomError("relation", "{message}", context), path or (key,)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Options may hold secrets, and a repr ends up in logs and tracebacks.
        return ((name, getattr(self, name)) for name in type(self).model_fields if name != "plugin_options")

    def section(self, provider: str) -> dict[str, Any]:
        """The options in the free-form section named `provider`; empty when there is none."""
        return dict((self.__pydantic_extra__ or {}).get(provider, {}))


class CacheExchangeSettings(Section):
    enabled: Flag = True
    """Whether peers get and give rows, while there is a cache on disk and a registry."""

    interval_seconds: Seconds = 30.0
    """Seconds between two rounds of asking peers."""

    page_size: PageSize = 500
    """How many rows to ask for at once."""

    timeout_seconds: Seconds = 5.0
    """Time limit for one request to a peer, its body included."""

    cycle_deadline_seconds: OptionalSeconds = None
    """Time limit for one round, from `timeout_seconds` to `interval_seconds`. Null: nine tenths of the
    latter."""

    max_concurrent_peers: Count = 4
    """How many peers are asked at the same time."""

    @model_validator(mode="after")
    def _times_fit(self) -> "CacheExchangeSettings":
        deadline = self.cycle_deadline_seconds
        if deadline is not None and deadline > self.interval_seconds:
            raise self._misfit("at most", "interval_seconds", "lower the first or raise the second")
        if deadline is not None and deadline < self.timeout_seconds:
            raise self._misfit("at least", "timeout_seconds", "raise the first or lower the second")
        return self

    def _misfit(self, bound: str, key: str, remedy: str) -> ValidationError:
        other = f"fleet.cache_exchange.{key}"
        message = (
            f"({self.cycle_deadline_seconds:g}) must be {bound} {other} ({getattr(self, key):g}); {remedy}"
        )
        error = PydanticCustomError("relation", "{message}", {"message": message, "other": other})
        return _errors(type(self), [(error, ("cycle_deadline_seconds",))])


class FleetSettings(Section):
    registry: RegistrySettings = Field(default_factory=RegistrySettings)
    cache_exchange: CacheExchangeSettings = Field(default_factory=CacheExchangeSettings)


class UiSettings(Section):
    enabled: Flag = True
    """Whether the worker has an HTTP server. Without it there is no registry, since nobody could reach the
    worker through its card."""

    host: Host = "127.0.0.1"
    """Address to listen on; `0.0.0.0` or `::` for all."""

    port: Port = None
    """Port to listen on. Null: 8080, or the next one that is free. 0: any that is free."""

    public_url: OptionalUrl = ""
    """The URL to publish, when others reach the worker by another one than it listens on."""

    auth_token: Token = SecretStr("")
    """What a client must send as bearer token. Empty: everybody who can connect may read."""


class LeaseSettings(Section):
    provider: Name = ""
    """Whose leases to use. Empty: those of `fleet.registry.provider`."""

    plugin_options: Options = Field(default_factory=dict, repr=False)
    """Options for the leases, on top of those that the provider has from `fleet.registry`."""

    ttl_seconds: Seconds = 30.0
    """How long a lease lasts without renewal: the longest time that a crash leaves a job undone."""

    renew_seconds: Seconds = 10.0
    """Seconds between renewals; a third of `ttl_seconds` at most is taken."""

    retry_seconds: Seconds = 5.0
    """Seconds between attempts to get a lease, where the store cannot tell when it will be free."""

    timeout_seconds: Seconds = 3.0
    """Time limit for one call to the store; a quarter of `ttl_seconds` at most is taken."""

    @property
    def timing(self) -> LeaseTiming:
        return LeaseTiming(self.ttl_seconds, self.renew_seconds, self.retry_seconds, self.timeout_seconds)


class SupervisorSettings(Section):
    workers: Annotated[tuple[FullName, ...], BeforeValidator(_names)] = ()
    """The background workers to run, by name. `DK_WORKERS=a,b` stands for this key."""

    leases: LeaseSettings = Field(default_factory=LeaseSettings)

    stop_timeout_seconds: Seconds = 10.0
    """How long a run may take to end after it was cancelled, before its lease is left to run out."""


class CacheSettings(Section):
    enabled: Flag = False
    """Whether this worker has a cache."""

    flush_interval_seconds: Seconds = 3.0
    """Seconds between two writes to disk: what a process that is killed may lose."""

    cleanup_interval_seconds: Seconds = 60.0
    """Seconds between two removals of expired values from disk."""

    max_memory_entries: Count = 10000
    """How many values are kept in memory; those not used for longest go first."""


class Settings(Section):
    """All settings of one worker."""

    worker_name: Name = ""
    """Name of this worker, unique in the fleet. Empty: from the environment variable that `worker_name_env`
    names, else made of the host name and the port."""

    worker_name_env: VariableName = "WORKER_ID"
    """Environment variable with the worker name, read when `worker_name` is empty."""

    cluster_name: Name = ""
    """The part of the fleet that this worker belongs to."""

    cluster_name_env: VariableName = ""
    """Environment variable with the cluster name, read when `cluster_name` is empty."""

    storage: StorageSettings = Field(default_factory=StorageSettings)
    shared: SharedSettings = Field(default_factory=SharedSettings)
    fleet: FleetSettings = Field(default_factory=FleetSettings)
    ui: UiSettings = Field(default_factory=UiSettings)
    cache: CacheSettings = Field(default_factory=CacheSettings)
    supervisor: SupervisorSettings = Field(default_factory=SupervisorSettings)

    _origins: Origins = PrivateAttr(default_factory=Origins)

    def told_of(self, *path: str) -> str:
        """Where the value of the key at `path` came from, as the start of a message; empty for a default and
        for no path."""
        return self._origins.of(path) if path else ""


def _errors(
    model: type[BaseModel], errors: list[tuple[PydanticCustomError | str, tuple[str, ...]]]
) -> ValidationError:
    # Errors at keys of the model, where a plain ValueError would be one of the model as a whole.
    details = [InitErrorDetails(type=type_, loc=loc, input=None) for type_, loc in errors]
    return ValidationError.from_exception_data(model.__name__, details)
