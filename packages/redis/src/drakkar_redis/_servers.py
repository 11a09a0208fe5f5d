"""Where to send a command: the server, the master that the Sentinels name, or the owner of the fleet's slot.

A Cluster is treated like Sentinels, since all keys of a fleet are in one slot: its servers are asked who
owns the slot, and everything goes there, over one kind of client. So an answer to WAIT is about the write
before it, and one way of noticing a fail-over fits all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import RedisError

from drakkar_redis._address import Host, shown
from drakkar_redis._errors import RefusedError, StoreError, told
from drakkar_redis._keys import Keys
from drakkar_redis._tls import no_passphrase
from drakkar_redis.settings import RedisSettings

MAX_CONNECTIONS: Final = 32
"""More than the keeper asks for at once, so that a renewal stands in no line."""

CLOSE_SECONDS: Final = 1.0
_KEEP: Final[dict[str, Any]] = {
    # One try: a repeated command may count twice, and only the caller knows how long it may take.
    "retry": Retry(NoBackoff(), 0),
    # The caller's own deadline ends every call; a cancelled command closes its connection.
    "socket_timeout": None,
    "socket_connect_timeout": None,
    "protocol": 2,  # no HELLO, of whose refusal an old server tells with the password in it
}


class Servers:
    """Finds the server in charge. Remembers which one answered, and asks that first the next time."""

    def __init__(self, settings: RedisSettings, limit_seconds: float) -> None:
        self._settings = settings
        self._asked = list(settings.sentinels or settings.hosts)
        self._found = False
        self._ask_seconds = limit_seconds / (len(self._asked) + 1) if self._asked else limit_seconds

    async def connect(self) -> tuple[str, Redis]:
        """Return a client of the server in charge, and that server's address. Opens nothing there yet.

        Raises `StoreError` when nobody can tell.
        """
        settings = self._settings
        if settings.path:
            return settings.address, self._client(None)
        if settings.sentinels:
            host = await self._ask(self._ask_sentinel)
        elif settings.cluster:
            host = await self._ask(self._ask_member)
        else:
            host = settings.hosts[0]
        return f"{'rediss' if settings.tls else 'redis'}://{shown(host)}", self._client(host)

    async def _ask(self, ask: "Callable[[Host], Awaitable[Host | None]]") -> Host:
        reasons = []
        refused: RefusedError | None = None
        for host in list(self._asked):
            try:
                async with asyncio.timeout(self._ask_seconds):
                    found = await ask(host)
            except (RedisError, OSError, ValueError, TypeError, LookupError) as error:  # the last: nonsense
                by_sentinel = bool(self._settings.sentinels)
                failure = told(
                    error, shown(host), self._settings, is_new=not self._found, by_sentinel=by_sentinel
                )
                reasons.append(str(failure))
                refused = failure if isinstance(failure, RefusedError) else refused
                continue
            if found is not None:
                self._found = True
                self._asked.remove(host)
                self._asked.insert(0, host)
                return found
            knows = "has no master of that service_name" if self._settings.sentinels else "knows of none"
            reasons.append(f"{shown(host)} {knows}")
        if refused is not None:
            raise refused
        raise StoreError(f"{self._settings.address}: no master found ({'; '.join(reasons)})")

    async def _ask_sentinel(self, host: Host) -> Host | None:
        settings = self._settings
        login = (settings.sentinel_username, settings.sentinel_password)
        client = self._client(host, login)
        try:
            found = await execute(client, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", settings.service_name)
        finally:
            await close(client)
        return (_text(found[0]), int(found[1])) if found else None

    async def _ask_member(self, host: Host) -> Host | None:
        """Who owns the fleet's slot, as `host` sees it; what else it knows of is asked, too, the next
        time."""
        slot = key_slot(Keys(self._settings.prefix).token.encode())
        client = self._client(host)
        try:
            ranges = await execute(client, "CLUSTER", "SLOTS")
        finally:
            await close(client)
        owner = None
        for first, last, *nodes in ranges:
            members = [(_text(node[0] or b"") or host[0], int(node[1])) for node in nodes]
            self._asked += [member for member in members if member not in self._asked]
            if first <= slot <= last:
                owner = members[0]
        return owner

    def _arguments(self, host: Host | None, login: tuple[str, str] | None = None) -> dict[str, Any]:
        settings = self._settings
        username, password = login or (settings.username, settings.password)
        arguments = {**_KEEP, "username": username or None, "password": password or None, "db": settings.db}
        if host is None:
            return {**arguments, "path": settings.path}
        arguments |= {"host": host[0], "port": host[1]}
        if settings.tls:
            arguments |= {
                "ssl_ca_certs": settings.ca_file or None,
                "ssl_certfile": settings.cert_file or None,
                "ssl_keyfile": settings.key_file or None,
                "ssl_password": no_passphrase,
            }
        return arguments

    def _client(self, host: Host | None, login: tuple[str, str] | None = None) -> Redis:
        kind = SSLConnection if self._settings.tls else Connection if host else UnixDomainSocketConnection
        arguments = self._arguments(host, login)
        return Redis.from_pool(BlockingConnectionPool(MAX_CONNECTIONS, None, cast("Any", kind), **arguments))


async def close(client: Redis) -> None:
    """Close its connections; a server that does not say goodbye is not waited for."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.aclose()
    except (TimeoutError, RedisError, OSError):
        return


async def execute(client: Redis, *command: object) -> Any:
    return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # the library's


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
