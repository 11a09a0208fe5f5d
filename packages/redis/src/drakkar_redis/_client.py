"""One script call to Redis: within its time, on the right server, failing in plain words.

The client library is known here and in `_servers` alone.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from drakkar_redis import _rights
from drakkar_redis._errors import LOGIN_ERRORS, SEE_RIGHTS, EncryptedKeyError, RefusedError, StoreError, told
from drakkar_redis._keys import Keys
from drakkar_redis._servers import Servers, close, execute
from drakkar_redis.settings import RedisSettings

SHARE_OF_LIMIT: Final = 0.9
"""How much of the caller's time limit a call takes, so that it can say more than "timed out"."""

WAIT_SHARE: Final = 0.5
"""How much of the time of a call replicas have; the rest is for what is done when they do not answer."""

QUIET_SECONDS = 15.0
"""How long a connection that listens may be silent before it is asked whether anybody is still there: of one
that a firewall forgot nothing else would tell."""

_STILL_THERE: Final = "still there"
_ELSEWHERE: Final = (RedisConnectionError, ReadOnlyError, AskError, TryAgainError, ClusterDownError, OSError)
"""After these, the next try looks for the server anew. Scripts may be repeated: each says what shall be."""


class Script:
    """A Lua script. Known to the server by its hash, and sent in full to one that has not seen it.

    Its answer comes behind its last argument, which is another one in each call: an answer that is late, or
    comes twice, is not taken for that to the next call.
    """

    def __init__(self, source: str) -> None:
        self.source: Final = f"local function run()\n{source}\nend\nreturn {{ARGV[#ARGV], run()}}"
        self.sha: Final = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


_RIGHTS: Final = Script(_rights.SOURCE)


class _Link:
    """The client of one server, and how many calls are using it."""

    def __init__(self, address: str, client: Redis) -> None:
        self.address = address
        self.client = client
        self.users = 0
        self.dropped = False


class RedisClient:
    """Runs scripts, each call within `limit_seconds`. Any number at once. Opens nothing until the first."""

    def __init__(self, settings: RedisSettings, limit_seconds: float) -> None:
        self._settings = settings
        self._limit_seconds = limit_seconds
        self._servers = Servers(settings, limit_seconds)
        self._link: _Link | None = None
        self._finding = asyncio.Lock()
        self._closed = False
        self._dropped: set[_Link] = set()

    async def check(
        self, commands: Sequence[str], script: Script, keys: Sequence[str], args: Sequence[object]
    ) -> None:
        """Show that the configuration can work: that the user may run `commands`, and that `script` runs.
        Raises `ValueError` when it certainly cannot, and `StoreError` or `TimeoutError` when that cannot be
        told now."""
        try:
            self._servers.check_files()
        except EncryptedKeyError as error:
            raise ValueError(str(error)) from None
        except OSError as error:
            raise ValueError(
                f"ca_file, cert_file, key_file: cannot load the certificates: {error}"
            ) from error
        try:
            answer, _ = await self.run(_RIGHTS, [Keys(self._settings.prefix).nothing], [" ".join(commands)])
            if lacking := _rights.lacking(answer):
                raise ValueError(f"username, password: the user lacks {lacking}; {SEE_RIGHTS}")
            await self.run(script, keys, args)
        except RefusedError as error:
            raise ValueError(f"{error.option}: {error}") from error

    async def run(
        self, script: Script, keys: Sequence[str], args: Sequence[object], replicas: int = 0
    ) -> tuple[Any, int]:
        """Return what the script did, and how many replicas have it, of `replicas` that were waited for.

        A server that turned out to be gone, or not in charge any more, is looked for once more within the
        same time. Cancelling may or may not have taken effect.

        Raises `TimeoutError` when there is no answer in time, `RefusedError`, or another `StoreError`.
        """
        limit = asyncio.timeout(self._limit_seconds)
        try:
            async with limit:
                return await self._run(script, keys, args, replicas)
        except TimeoutError:
            if not limit.expired():
                raise
        where = self._settings.address if self._link is None else self._link.address
        raise TimeoutError(f"{where} did not answer within {self._limit_seconds:g} s")

    async def listen(
        self, channel: str, subscribed: Callable[[], None], heard: Callable[[bytes], None]
    ) -> None:
        """Call `subscribed` each time when the server has confirmed, and `heard` for each message, until the
        connection, which is one of its own, ends. Always raises: `StoreError`, or that it was cancelled."""
        try:
            address, client = await self._servers.connect()
        except (RedisError, OSError) as error:
            raise told(error, self._settings.address, self._settings) from None
        pubsub = client.pubsub()
        limit_seconds, is_asked = self._limit_seconds, False
        try:
            async with asyncio.timeout(limit_seconds):
                await pubsub.subscribe(channel)
            while True:
                message = await pubsub.get_message(timeout=limit_seconds)
                if message is None and is_asked:
                    raise StoreError(f"{address} does not answer on the connection that listens")
                if message is None:
                    is_asked = True
                    async with asyncio.timeout(limit_seconds):
                        await pubsub.ping(_STILL_THERE)
                    limit_seconds = self._limit_seconds
                    continue
                limit_seconds, is_asked = QUIET_SECONDS, False
                if message["type"] == "subscribe":
                    subscribed()
                elif message["type"] == "message":
                    heard(message["data"])
        except (RedisError, OSError, ValueError, TypeError, LookupError) as error:  # the last: of nonsense
            raise told(error, address, self._settings) from None
        finally:
            try:
                await pubsub.aclose()  # type: ignore[no-untyped-call]  # the library's
            finally:
                await close(client)

    async def close(self) -> None:
        """End all connections, those in use included. May be called again."""
        self._closed = True
        links = [*self._dropped, *([self._link] if self._link else [])]
        self._link = None
        self._dropped.clear()
        for link in links:
            await close(link.client)

    async def _run(
        self, script: Script, keys: Sequence[str], args: Sequence[object], replicas: int
    ) -> tuple[Any, int]:
        for last_try in (False, True):
            address = self._settings.address
            try:
                link = await self._find()
                address = link.address
                link.users += 1
                try:
                    return await self._send(link.client, script, keys, args, replicas)
                except _ELSEWHERE as error:
                    self._drop(link)
                    if last_try or isinstance(error, LOGIN_ERRORS):
                        raise
                finally:
                    link.users -= 1
                    if link.dropped and not link.users:
                        self._dropped.discard(link)
                        await close(link.client)
            except (RedisError, OSError, ValueError) as error:  # the last: of a reply that is none
                if isinstance(error, TimeoutError):
                    raise  # the deadline's
                raise told(error, address, self._settings) from None
        raise AssertionError("the last try returns or raises")

    async def _find(self) -> _Link:
        async with self._finding:
            if self._closed:
                raise StoreError("closed")
            if self._link is None:
                self._link = _Link(*await self._servers.connect())
            return self._link

    def _drop(self, link: _Link) -> None:
        """Send nothing to it any more; its connections are closed when the last call has ended."""
        if self._link is link:
            self._link = None
        link.dropped = True
        self._dropped.add(link)

    async def _send(
        self, client: Redis, script: Script, keys: Sequence[str], args: Sequence[object], replicas: int
    ) -> tuple[Any, int]:
        asked = secrets.token_hex(8)
        tail = (len(keys), *keys, *args, asked)
        confirmed = 0
        if replicas:
            command = ("EVAL", script.source, *tail)
            answer, confirmed = await self._send_and_wait(client, command, replicas)
        else:
            try:
                answer = await execute(client, "EVALSHA", script.sha, *tail)
            except NoScriptError:  # restarted, failed over, or flushed
                answer = await execute(client, "EVAL", script.source, *tail)
        match answer:
            case [each] if each == asked.encode():
                return None, confirmed
            case [each, found] if each == asked.encode():
                return found, confirmed
        raise RedisConnectionError("answered something else than was asked")

    async def _send_and_wait(self, client: Redis, command: Sequence[Any], replicas: int) -> tuple[Any, int]:
        pipeline = client.pipeline(transaction=False)  # WAIT is about the writes of its own connection
        pipeline.execute_command(*command)
        pipeline.execute_command("WAIT", replicas, max(1, int(WAIT_SHARE * 1000 * self._limit_seconds)))
        answer, confirmed = await pipeline.execute(raise_on_error=False)
        for each in (answer, confirmed):
            if isinstance(each, Exception):
                raise each
        return answer, int(confirmed)
