"""The lease half of a provider package, by name."""

from collections.abc import Mapping
from typing import Any, Final, cast

from drakkar.errors import ConfigError, describe
from drakkar.fleet.plugins import load_provider, scan
from drakkar.fleet.provider import EventLogger
from drakkar.leases.backend import LeaseBackend

_METHODS: Final = ("start", "acquire", "renew", "release", "wait", "list", "stop")


def make_lease_backend(name: str, options: Mapping[str, Any], logger: EventLogger) -> LeaseBackend:
    """Return the lease backend of the provider `name`, not started yet; `options` go to it as they are.

    Raises `ConfigError`, one line, when there is no such provider, when it has no leases (the message lists
    those that have), when it refuses the options, or when what it made is no lease backend.
    """
    make = getattr(load_provider(name, logger), "lease_backend", None)
    if not callable(make):
        having = [info.name for info in scan() if info.chosen and _has_leases(info.name, logger)]
        raise ConfigError(
            f"supervisor.leases.provider {name!r} has no leases; those that have: {', '.join(having)}"
        )
    label = f"supervisor.leases.provider {name!r}"
    try:
        product: object = make(options)
    except KeyboardInterrupt:
        raise
    except ValueError as error:
        raise ConfigError(f"{label}: {' '.join(str(error).split())}") from error
    except BaseException as error:
        raise ConfigError(f"{label} cannot be made: {describe(error)}") from error
    missing = [method for method in _METHODS if not callable(getattr(product, method, None))]
    if missing:
        raise ConfigError(f"{label}: its lease backend lacks {', '.join(missing)}")
    return cast(LeaseBackend, product)


def _has_leases(name: str, logger: EventLogger) -> bool:
    return callable(getattr(load_provider(name, logger), "lease_backend", None))
