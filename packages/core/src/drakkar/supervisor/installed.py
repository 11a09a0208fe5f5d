"""The background workers of installed packages: found by their entry points, imported only when asked for."""

import asyncio
import importlib.metadata
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Final

from drakkar.errors import ConfigError
from drakkar.supervisor.crash import describe_crash

GROUP: Final = "drakkar.workers"


def find() -> Mapping[str, Sequence[EntryPoint]]:
    """The entry points of each name, those that say the same once.

    Looks at one distribution after the other: one that is damaged, anywhere on the path, costs its own alone.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    seen: set[str] = set()
    try:
        for dist in importlib.metadata.distributions():
            try:
                metadata = dist.metadata
                if "Name" not in metadata or (name := metadata["Name"]) in seen:
                    continue  # what is left of an uninstall; or a copy that no import would reach
                seen.add(name)
                for entry in dist.entry_points:
                    if entry.group == GROUP:
                        found.setdefault(entry.name, {})[entry.value] = entry
            except Exception:  # noqa: BLE001, S112  metadata is a file of somebody else's
                continue
    except Exception:  # noqa: BLE001, S110  finders on sys.meta_path are other people's code
        pass
    return {name: [entries[value] for value in sorted(entries)] for name, entries in found.items()}


def load(entry: EntryPoint) -> object:
    """What the entry point leads to, or makes when it leads to something callable.

    Raises `ConfigError`, whatever the package raises.
    """
    try:
        target: object = entry.load()
        made = target() if callable(target) else target
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigError(
            f"supervisor.workers: {entry.name!r} ({entry.value}) cannot be loaded: {describe_crash(error)}"
        ) from error
    if asyncio.iscoroutine(made):
        made.close()
    return made
