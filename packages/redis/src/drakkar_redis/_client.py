"""One script call to Redis: within its time, on the right server, failing in plain words.

The client library is known here and in `_servers` alone.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio import Redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from drakkar_redis._errors import LOGIN_ERRORS, StoreError, ask_for_tls, told
from drakkar_redis._keys import MISTYPED, Keys
from drakkar_redis._script import Script
from drakkar_redis._servers import Servers, close, execute
from drakkar_redis.settings import RedisSettings

_T = TypeVar("_T")

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
        self._heard = False
        """Whether a server has ever answered; until then it may be that the two do not agree on TLS."""

        self._dropped: set[_Link] = set()

    async def run(
        self, script: Script, keys: Sequence[str], args: Sequence[object], replicas: int = 0
    ) -> tuple[Any, int]:
        """Return what the script did, and how many replicas have it, of `replicas` that were waited for.

        A server that turned out to be gone, or not in charge any more, is looked for once more within the
        same time. Cancelling may or may not have taken effect.

        Raises `TimeoutError` when there is no answer in time, `RefusedError`, or another `StoreError`.
        """
        return await self._in_time(self._run(script, keys, args, replicas))

    async def ask(self, *command: object) -> Any:
        """Return the answer to a command that is no script, None to one that is refused. Raises as `run`
        does."""
        return await self._in_time(self._ask(*command))

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

    async def _in_time(self, call: Awaitable[_T]) -> _T:
        limit = asyncio.timeout(self._limit_seconds)
        try:
            async with limit:
                return await call
        except TimeoutError:
            if not limit.expired():
                raise
        where = self._settings.address if self._link is None else self._link.address
        hint = ask_for_tls(self._settings) if self._settings.tls and not self._heard else ""
        raise TimeoutError(f"{where} did not answer within {self._limit_seconds:g} s{hint}")

    async def _ask(self, *command: object) -> Any:
        link = await self._find()
        try:
            return await execute(link.client, *command)
        except ResponseError:
            return None
        except (RedisError, OSError, ValueError) as error:
            raise told(error, link.address, self._settings) from None

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
                except ResponseError as error:
                    if "WRONGTYPE" in str(error):
                        await self._name_mistyped(link)
                    raise
                finally:
                    link.users -= 1
                    if link.dropped and not link.users:
                        self._dropped.discard(link)
                        await close(link.client)
            except (RedisError, OSError, ValueError) as error:  # the last: of a reply that is none
                if isinstance(error, TimeoutError):
                    raise  # the deadline's
                raise told(error, address, self._settings, is_new=not self._heard) from None
        raise AssertionError("the last try returns or raises")

    async def _name_mistyped(self, link: _Link) -> None:
        """Raises `StoreError` if it can be told which key is none of ours."""
        ours = Keys(self._settings.prefix)
        found, _ = await self._send(link.client, MISTYPED, [ours.cards, ours.published, ours.names], [], 0)
        if isinstance(found, bytes):
            what = f"the key {found.decode(errors='replace')} is of another type (WRONGTYPE); delete it"
            raise StoreError(f"{link.address}: {what}")

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
        command = ("EVAL", script.source, *tail)
        if replicas:
            answer, confirmed = await self._send_and_wait(client, command, replicas)
        elif script.in_full:
            answer = await execute(client, *command)
        else:
            try:
                answer = await execute(client, "EVALSHA", script.sha, *tail)
            except NoScriptError:  # restarted, failed over, or flushed
                answer = await execute(client, *command)
        self._heard = True
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
