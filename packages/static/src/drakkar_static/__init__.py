"""A fixed peer list for a Drakkar fleet: the factory that the entry point `static` names.

Importing this imports nothing else of the package; each half is imported when one is made.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drakkar.fleet.provider import RegistryProvider

if TYPE_CHECKING:
    from drakkar.leases.backend import LeaseBackend

__all__ = ["make_registry"]


class _Factory:
    def __call__(self, options: Mapping[str, Any]) -> RegistryProvider:
        """Return a registry of the peers in `options`.

        Raises `ValueError`, one line that names the option, for options that do not hold.
        """
        from drakkar_static.registry import StaticRegistry
        from drakkar_static.settings import read_options

        return StaticRegistry(read_options(options))

    def lease_backend(self, options: Mapping[str, Any]) -> "LeaseBackend":
        """Return the leases that `options` assign, not yet started.

        Raises `ValueError`, one line that names the option, for options that do not hold.
        """
        from drakkar_static.leases import StaticLeases
        from drakkar_static.settings import read_lease_options

        return StaticLeases(read_lease_options(options))


make_registry = _Factory()
