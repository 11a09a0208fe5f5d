"""Who can be chosen: finding, loading and calling the factories of provider packages.

Nothing is imported but the chosen name's own entry point, so a broken package that nobody asked for cannot
stop a worker. `scan` is the exception: it loads everything, for a person who asks what there is.

A package replaces one of ours by registering its name: a distribution that is not ours wins over one that
is. Between several that are not ours, the first by normalized name wins on every machine, and the others
are logged. What cannot be loaded is logged and the next one takes its place.
"""

import difflib
import importlib.metadata
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from drakkar.errors import ConfigError, describe
from drakkar.fleet.provider import EventLogger, RegistryFactory, RegistryProvider

GROUP: Final = "drakkar.registry_providers"
PUBLISHED_PROVIDERS: Final = ("consul", "etcd", "filesystem", "redis", "static")
"""The names that this project publishes, each as the distribution `drakkar-<name>`."""

PROVIDER_KEY: Final = "fleet.registry.provider"
"""The setting that names the provider, as errors call it unless they are told of another one."""

_METHODS: Final = ("start", "publish", "list", "withdraw", "stop")
_INVALID: Final = "fleet_registry_entry_point_invalid"
_LOAD_FAILED: Final = "fleet_registry_entry_point_load_failed"


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """One entry point as `scan` found it.

    `name` is empty when the entry points of the distribution cannot be read. `chosen` tells whether a worker
    configured with `name` would use this one. `error` is one line, None when it can be loaded.
    """

    name: str
    distribution: str
    version: str
    chosen: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class _Candidate:
    entry_point: importlib.metadata.EntryPoint
    distribution: str
    version: str

    @property
    def is_ours(self) -> bool:
        return self.distribution in ("drakkar-core", f"drakkar-{self.entry_point.name}")


class _UnusableError(Exception):
    """Why an entry point gives no factory; `event` is what to log it as."""

    def __init__(self, event: str, message: str) -> None:
        super().__init__(message)
        self.event = event


def load_provider(name: str, logger: EventLogger, key: str = PROVIDER_KEY) -> RegistryFactory:
    """Return the factory registered as `name`, importing that one alone. `key` is the setting that `name`
    came from.

    Logs, as warnings, whatever was passed over on the way. Raises `ConfigError` when there is no such
    provider or none of them can be loaded; its message names `key` and lists the providers that exist.
    """
    candidates, unreadable = _find()
    for distribution, error in unreadable:
        logger.warning("fleet_registry_entry_point_scan_failed", distribution=distribution, error=error)
    error = ""
    ranked = candidates.get(name, [])
    for place, candidate in enumerate(ranked, 1):
        distribution = candidate.distribution
        try:
            factory = _load(candidate.entry_point)
        except _UnusableError as failure:
            error = str(failure)
            fields = {"reason" if failure.event == _INVALID else "error": error}
            logger.warning(failure.event, provider=name, distribution=distribution, **fields)
            continue
        for other in ranked[place:]:
            if not other.is_ours:  # ours stepping back for a replacement is the rule, not a mishap
                reason = f"{distribution} registers this provider, too, and comes first"
                logger.warning(_INVALID, provider=name, distribution=other.distribution, reason=reason)
        return factory
    raise ConfigError(_missing(key, name, error, sorted(candidates)))


def make_provider(name: str, options: Mapping[str, Any], logger: EventLogger) -> RegistryProvider:
    """Return a provider that is not started yet; `options` go to its factory as they are.

    Raises `ConfigError`, one line that names the provider, when it is missing, when its factory refuses the
    options or fails, or when what it made is no provider.
    """
    product = make_product(load_provider(name, logger), options, f"{PROVIDER_KEY} {name!r}", _METHODS)
    return cast(RegistryProvider, product)


def make_product(
    make: Callable[[Mapping[str, Any]], object],
    options: Mapping[str, Any],
    label: str,
    methods: Iterable[str],
) -> object:
    """What a half of a package's factory makes of `options`, with all of `methods`.

    Raises `ConfigError`, one line that begins with `label`, for whatever goes wrong in it.
    """
    try:
        product = make(options)
    except KeyboardInterrupt:
        raise
    except ValueError as error:  # the contract's way to refuse options: its text is for the user
        reason = describe(error).removeprefix(f"{type(error).__name__}: ")
        raise ConfigError(f"{label}: {reason}") from error
    except BaseException as error:
        raise ConfigError(f"{label} cannot be made: {describe(error)}") from error
    missing = [method for method in methods if not callable(getattr(product, method, None))]
    if missing:
        if inspect.iscoroutine(product):
            product.close()  # an async factory; closed so that the only message is the one below
        made = type(product).__name__
        raise ConfigError(f"{label}: its factory made a {made}, which lacks {', '.join(missing)}")
    return product


def scan() -> list[ProviderInfo]:
    """Load every provider and tell what became of it, sorted by name, the preferred one first."""
    candidates, unreadable = _find()
    infos = [ProviderInfo("", distribution, "", False, error) for distribution, error in unreadable]
    for name, ranked in sorted(candidates.items()):
        taken = False
        for candidate in ranked:
            error: str | None = None
            try:
                _load(candidate.entry_point)
            except _UnusableError as failure:
                error = str(failure)
            chosen = error is None and not taken
            taken = taken or chosen
            infos.append(ProviderInfo(name, candidate.distribution, candidate.version, chosen, error))
    return infos


def _find() -> tuple[dict[str, list[_Candidate]], list[tuple[str, str]]]:
    """Return the candidates of each name, best first, and (distribution, error) for what is unreadable.

    Looks at one distribution after the other, not at `importlib.metadata.entry_points()`, which one
    damaged distribution anywhere on the path would make fail for all.
    """
    found: dict[str, list[_Candidate]] = {}
    unreadable: list[tuple[str, str]] = []
    seen: set[str] = set()
    try:
        for dist in importlib.metadata.distributions():
            distribution = "unknown"
            try:
                metadata = dist.metadata
                if "Name" not in metadata:
                    continue  # what an interrupted uninstall leaves behind
                distribution = re.sub(r"[-_.]+", "-", metadata["Name"]).lower()
                if distribution in seen:
                    continue  # a second copy further down the path, which no import would reach
                seen.add(distribution)
                for name, entry_point in {e.name: e for e in dist.entry_points if e.group == GROUP}.items():
                    found.setdefault(name, []).append(_Candidate(entry_point, distribution, dist.version))
            except Exception as error:  # noqa: BLE001 - metadata is a file of somebody else's, and reported
                unreadable.append((distribution, describe(error)))
    except Exception as error:  # noqa: BLE001 - finders on sys.meta_path are other people's code
        unreadable.append(("", describe(error)))
    for ranked in found.values():
        ranked.sort(key=lambda candidate: (candidate.is_ours, candidate.distribution))
    return found, unreadable


def _load(entry_point: importlib.metadata.EntryPoint) -> RegistryFactory:
    try:
        target: object = entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may leave by SystemExit just as well
        raise _UnusableError(_LOAD_FAILED, describe(error)) from error
    if not callable(target):
        raise _UnusableError(_INVALID, f"{entry_point.value} is not callable, but {type(target).__name__}")
    return cast(RegistryFactory, target)


def _missing(key: str, name: str, error: str, existing: list[str]) -> str:
    there_are = f"providers that exist: {', '.join(existing) or 'none at all'}"
    start = f"{key} is {name!r}"
    if error:
        return f"{start}, which is installed but cannot be loaded: {error} ({there_are})"
    if name in PUBLISHED_PROVIDERS:
        return f"{start}, which is not installed: pip install drakkar-{name} ({there_are})"
    nearest = difflib.get_close_matches(name, {*existing, *PUBLISHED_PROVIDERS}, n=1)
    hint = f", did you mean {nearest[0]!r}?" if nearest else ""
    return f"{start}, and there is no such provider{hint} ({there_are})"
