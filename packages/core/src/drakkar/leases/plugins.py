"""The lease half of a provider package, by name."""

from collections.abc import Mapping
from typing import Any, Final, cast

from drakkar.errors import ConfigError
from drakkar.fleet.plugins import load_provider, make_product, scan
from drakkar.fleet.provider import EventLogger
from drakkar.leases.backend import LeaseBackend

LEASE_PROVIDER_KEY: Final = "supervisor.leases.provider"
"""The setting that names the provider whose leases are used, as errors call it unless they are told of
another one."""

_METHODS: Final = ("start", "acquire", "renew", "release", "wait", "list", "stop")


def make_lease_backend(
    name: str, options: Mapping[str, Any], logger: EventLogger, key: str = LEASE_PROVIDER_KEY
) -> LeaseBackend:
    """Return the lease backend of the provider `name`, not started yet; `options` go to it as they are.
    `key` is the setting that `name` came from.

    Raises `ConfigError`, one line that names `key`, when there is no such provider, when it has no leases
    (the message lists those that have), when it refuses the options, or when what it made is no lease
    backend.
    """
    make = getattr(load_provider(name, logger, key), "lease_backend", None)
    if not callable(make):
        having = ", ".join(info.name for info in scan() if info.chosen and _has_leases(info.name, logger))
        elsewhere = "" if key == LEASE_PROVIDER_KEY else f" set {LEASE_PROVIDER_KEY} to one of"
        raise ConfigError(f"{key} {name!r} has no leases;{elsewhere} those that have: {having}")
    return cast(LeaseBackend, make_product(make, options, f"leases of {key} {name!r}", _METHODS))


def _has_leases(name: str, logger: EventLogger) -> bool:
    return callable(getattr(load_provider(name, logger), "lease_backend", None))
