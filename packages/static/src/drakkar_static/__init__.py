"""A fixed peer list for a Drakkar fleet: the factory that the entry point `static` names.

Importing this imports nothing else of the package; the registry is imported when one is made.
"""

from collections.abc import Mapping
from typing import Any

from drakkar.fleet.provider import RegistryProvider

__all__ = ["make_registry"]


class _Factory:
    def __call__(self, options: Mapping[str, Any]) -> RegistryProvider:
        """Return a registry of the peers in `options`.

        Raises `ValueError`, one line that names the option, for options that do not hold.
        """
        from drakkar_static.registry import StaticRegistry
        from drakkar_static.settings import read_options

        return StaticRegistry(read_options(options))


make_registry = _Factory()
