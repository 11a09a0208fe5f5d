"""Cards and leases of a fleet in etcd: the provider `etcd`.

Only the factory is here. Importing it opens nothing and loads nothing else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from drakkar_etcd.leases import EtcdLeases
    from drakkar_etcd.registry import EtcdRegistry

__all__ = ["make_registry"]


class _Factory:
    """What the entry point names: `make_registry(options)` returns a provider that is not yet started."""

    def __call__(self, options: Mapping[str, Any]) -> "EtcdRegistry":
        """Raises `ValueError`, one line that names the option, when `options` do not hold."""
        from drakkar_etcd.registry import EtcdRegistry

        return EtcdRegistry(options)

    def lease_backend(self, options: Mapping[str, Any]) -> "EtcdLeases":
        """Return a lease backend that is not yet started; raises as a call does."""
        from drakkar_etcd.leases import EtcdLeases

        return EtcdLeases(options)


make_registry: Final = _Factory()
