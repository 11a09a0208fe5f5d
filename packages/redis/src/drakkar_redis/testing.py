"""A Redis for a test kit to run over: providers and lease backends that share it, and ways to let time pass.

Meant for the checks of `drakkar.fleet.testkit` and `drakkar.leases.testkit`, or of any other kit for the same
contracts. What a kit writes stays in the server, under the prefix of the options.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from drakkar_redis._client import RedisClient
from drakkar_redis._keys import Keys
from drakkar_redis._script import Script
from drakkar_redis.registry import RedisRegistry
from drakkar_redis.settings import read_settings

if TYPE_CHECKING:
    from drakkar_redis.leases import RedisLeases

_LIMIT_SECONDS: Final = 10.0

_MAKE_OLDER: Final = Script(
    """
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    redis.call('ZINCRBY', KEYS[1], -ARGV[1], name)
end
"""
)


class Store:
    """The server that `options` name; two providers of it stand for two processes."""

    lease_ttl_seconds: Final = 1.0
    """The shortest ttl that makes sense."""

    def __init__(self, options: Mapping[str, Any], prune_after_seconds: float = 600) -> None:
        """`options` are those of the provider. Raises `ValueError` when they do not hold."""
        self._options = {**options, "prune_after_seconds": prune_after_seconds}
        self._settings = read_settings(self._options)

    def make_provider(self) -> RedisRegistry:
        """A new provider, not yet started."""
        return RedisRegistry(self._options)

    async def advance(self, seconds: float) -> None:
        """Make every card now stored `seconds` older by the server's clock."""
        client = RedisClient(self._settings, _LIMIT_SECONDS)
        try:
            await client.run(_MAKE_OLDER, [Keys(self._settings.prefix).published], [round(seconds * 1000)])
        finally:
            await client.close()

    def make_lease_backend(self) -> "RedisLeases":
        """A new lease backend, not yet started."""
        from drakkar_redis.leases import RedisLeases

        return RedisLeases(self._options)

    async def advance_leases(self, seconds: float) -> None:
        """Wait: the end of a lease is the server's to know."""
        await asyncio.sleep(seconds)
