"""Cards and leases of a fleet in the key/value store of Consul: the provider `consul`.

Only the factory is here. Importing it opens nothing and loads nothing else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from drakkar_consul.leases import ConsulLeases
    from drakkar_consul.registry import ConsulRegistry

__all__ = ["make_registry"]


class _Factory:
    """What the entry point names: `make_registry(options)` returns a provider that is not yet started."""

    def __call__(self, options: Mapping[str, Any]) -> "ConsulRegistry":
        """Raises `ValueError`, one line that names the option, when `options` do not hold."""
        from drakkar_consul.registry import ConsulRegistry

        return ConsulRegistry(options)

    def lease_backend(self, options: Mapping[str, Any]) -> "ConsulLeases":
        """Return a lease backend that is not yet started; raises as a call does."""
        from drakkar_consul.leases import ConsulLeases

        return ConsulLeases(options)


make_registry: Final = _Factory()
