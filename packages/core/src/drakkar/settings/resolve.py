"""What follows from the settings: names, folders, options. Nothing here opens or creates anything."""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from drakkar.errors import ConfigError
from drakkar.settings._values import MAX_NAME_CHARS, check_name
from drakkar.settings.models import Settings

_KEY: Final = re.compile(rf"\b((?:{'|'.join(Settings.model_fields)})(?:\.\w+)+)(?: has no option '([^']+)')?")


def worker_name(settings: Settings, environ: Mapping[str, str], port: int | None) -> str:
    """The name of this worker, never empty.

    `port` is the one that is really bound; without a server it is None, and the number of the process stands
    in for it, so that two unnamed workers of one host still differ.

    Raises `ConfigError` when the environment holds a name that cannot be one.
    """
    name = settings.worker_name or _from_environment(settings.worker_name_env, "worker_name_env", environ)
    if name:
        return name
    ending = f"-{os.getpid() if port is None else port}"
    host = "".join(char for char in socket.gethostname() if char.isprintable()) or "worker"
    return host[: MAX_NAME_CHARS - len(ending)] + ending


def cluster_name(settings: Settings, environ: Mapping[str, str]) -> str:
    """The cluster of this worker; empty when none is set.

    Raises `ConfigError` when the environment holds a name that cannot be one.
    """
    return settings.cluster_name or _from_environment(settings.cluster_name_env, "cluster_name_env", environ)


def registry_folder(settings: Settings) -> tuple[Path, bool] | None:
    """The card folder of the `filesystem` provider, and whether somebody set it explicitly.

    An explicit folder must be usable, a derived one need not be. None when there is neither.
    """
    registry = settings.fleet.registry
    explicit = registry.plugin_options.get("dir") if registry.provider == "filesystem" else None
    if not (isinstance(explicit, str) and explicit):
        explicit = registry.filesystem.dir
    if explicit:
        return Path(explicit), True
    derived = settings.shared.dir or settings.storage.dir
    return (Path(derived) / "fleet", False) if derived else None


def provider_options(settings: Settings) -> dict[str, Any]:
    """What the factory of the configured provider gets: the section of its name, and on top of that
    `plugin_options`. The caller owns the map.

    `filesystem` gets the folder of `registry_folder` as `dir` (text; empty when there is none) and
    `explicit`.
    """
    registry = settings.fleet.registry
    return deepcopy(_section_options(settings, registry.provider) | registry.plugin_options)


def lease_provider(settings: Settings) -> str:
    """The provider whose leases are used."""
    return settings.supervisor.leases.provider or settings.fleet.registry.provider


def lease_options(settings: Settings) -> dict[str, Any]:
    """What the lease half of `lease_provider` gets: with no provider of its own set the options of the
    registry's, else the section of its name; and on top of that `supervisor.leases.plugin_options`. The
    caller owns the map. `filesystem` is also told whether its folder is `local` to this host.
    """
    leases = settings.supervisor.leases
    name = lease_provider(settings)
    options = _section_options(settings, name) if leases.provider else provider_options(settings)
    if name == "filesystem":
        options["local"] = not _folder_is_shared(settings)
    return deepcopy(options | leases.plugin_options)


@contextmanager
def naming_origins(settings: Settings) -> Iterator[None]:
    """Let a `ConfigError` about settings that could be read begin with where the first key that it names came
    from; of a provider's options, not of the provider's name."""
    try:
        yield
    except ConfigError as error:
        named = _KEY.findall(str(error))
        paths = [[*key.split("."), *filter(None, [option])] for key, option in named]
        path = next((path for path in paths if path[-1] != "provider"), paths[0] if paths else [])
        raise ConfigError(f"{settings.told_of(*path)}{error}") from error


@contextmanager
def naming_written_keys(settings: Settings, *, leases: bool = False) -> Iterator[None]:
    """Let a `ConfigError` about an option of the provider, or of its `leases`, name the key that was written.
    A provider knows its own section alone, and the option may come from `plugin_options`."""
    registry, own = settings.fleet.registry, settings.supervisor.leases
    provider = lease_provider(settings) if leases else registry.provider
    try:
        yield
    except ConfigError as error:
        text = str(error)
        if leases:
            text = _moved(text, provider, "supervisor.leases.plugin_options", own.plugin_options)
        if not (leases and own.provider):
            text = _moved(text, provider, "fleet.registry.plugin_options", registry.plugin_options)
        raise ConfigError(text) from error


def _moved(text: str, provider: str, section: str, options: Mapping[str, Any]) -> str:
    names = "|".join(map(re.escape, options))
    here = rf"fleet\.registry\.{re.escape(provider)}(?=\.(?:{names})\b| has no option '(?:{names})')"
    return re.sub(here, section, text) if options else text


def _section_options(settings: Settings, provider: str) -> dict[str, Any]:
    registry = settings.fleet.registry
    match provider:
        case "filesystem":
            folder, explicit = registry_folder(settings) or ("", False)
            return {"dir": str(folder), "explicit": explicit}
        case "static":
            return {"peers": list(registry.static.model_dump()["peers"])}
        case name:
            return registry.section(name)


def spans_hosts(settings: Settings) -> bool:
    """Whether workers of other hosts may see this worker's card, as far as the settings can tell."""
    match settings.fleet.registry.provider:
        case "none" | "static":
            return False
        case "filesystem":
            return _folder_is_shared(settings)
    return True


def _folder_is_shared(settings: Settings) -> bool:
    """Whether other hosts may see the folder of the `filesystem` provider. One that is not explicit and not
    the shared one is this worker's own, so it is taken for this host's."""
    _, explicit = registry_folder(settings) or ("", False)
    return explicit or bool(settings.shared.dir)


def config_summary(settings: Settings) -> str:
    """The settings that matter to a reader of the fleet, on one line; none of them is a secret."""
    registry = settings.fleet.registry
    return (
        f"provider={registry.provider}"
        f" heartbeat={registry.heartbeat_seconds:g}s refresh={registry.refresh_seconds:g}s"
        f" offline_after={registry.offline_after_seconds:g}s prune_after={registry.prune_after_seconds:g}s"
        f" auth={'token' if settings.ui.auth_token.get_secret_value() else 'none'}"
    )


def _from_environment(variable: str, setting: str, environ: Mapping[str, str]) -> str:
    try:
        return check_name(environ.get(variable, "")) if variable else ""
    except ValueError as error:
        raise ConfigError(f"{variable} (the variable of {setting}) {error}") from error
