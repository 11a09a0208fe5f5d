"""Cards and leases of a fleet in Redis: the provider `redis`.

Only the factory is here. Importing it opens nothing and loads nothing else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from drakkar_redis.leases import RedisLeases
    from drakkar_redis.registry import RedisRegistry

__all__ = ["make_registry"]


class _Factory:
    """What the entry point names: `make_registry(options)` returns a provider that is not yet started."""

    def __call__(self, options: Mapping[str, Any]) -> "RedisRegistry":
        """Raises `ValueError`, one line that names the option, when `options` do not hold."""
        from drakkar_redis.registry import RedisRegistry

        return RedisRegistry(options)

    def lease_backend(self, options: Mapping[str, Any]) -> "RedisLeases":
        """Return a lease backend that is not yet started; raises as a call does."""
        from drakkar_redis.leases import RedisLeases

        return RedisLeases(options)


make_registry: Final = _Factory()
