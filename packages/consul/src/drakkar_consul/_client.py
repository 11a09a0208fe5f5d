"""The agent, as both halves see it: keys, transactions, sessions, and how each of them fails.

On top of python-consul2 0.1.5, whose traps are worked around here and nowhere else. Each of them is marked
with `TRAP` and what goes wrong without the line.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import aiohttp
from consul import base
from yarl import URL

from drakkar_consul._keys import LONG_TEXT, Entry, Listing, Op, read_decoded, read_entries, read_result
from drakkar_consul._tls import tls_of
from drakkar_consul._words import (
    DENIED,
    MAY_MAKE_SESSIONS,
    failures_in,
    hidden,
    line,
    look_at,
    may_read,
    may_write,
    refusal,
)
from drakkar_consul.settings import ConsulSettings

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""An answer that is longer is not read to its end: whoever can write keys must not fill our memory."""

WAIT_SLACK_SECONDS: Final = 2.0
"""How long an answer to a blocking query may take on top of what it waits."""

_NO_ANSWER: Final = (ValueError, KeyError, TypeError, IndexError, RecursionError)
"""What taking an answer apart raises that is none."""

_CLOSED_UNDERWAY: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


class ConsulError(OSError):
    """The agent did not answer, or said no. One line, without any secret."""


class ForbiddenError(ConsulError):
    """The token has not the right, or there is no such token."""


class ConflictError(ConsulError):
    """A transaction changed nothing, as one of its conditions did not hold."""

    def __init__(self, message: str, failures: Sequence[tuple[int, str]]) -> None:
        super().__init__(message)
        self.failures = failures
        """The number of each operation that failed, and why."""

    @property
    def session_is_gone(self) -> bool:
        return any(what.startswith("invalid session") for _, what in self.failures)

    def failed(self, number: int) -> bool:
        return any(number == failed for failed, _ in self.failures)


class ConsulClient:
    """The agent at the address in `settings`.

    Every call ends within `limit_seconds`, a blocking query within its wait and a little. All raise
    `ConsulError`. Connections are opened when they are needed, `connections` at most, and one more for
    blocking queries, so that these hold up nothing.
    """

    def __init__(self, settings: ConsulSettings, *, connections: int) -> None:
        """Raises `ValueError` when a file for TLS cannot be used."""
        self._settings = settings
        self.address = settings.address
        self.limit_seconds = 5.0
        http = _HTTPClient(settings, tls_of(settings), connections)
        self._http = http
        agent = _Agent(http, settings.token, settings.datacenter)
        self._kv = base.Consul.KV(agent)
        self._session = base.Consul.Session(agent)
        self._agent = agent
        self._last: tuple[str, Mapping[str, Entry]] = "", {}
        """The listing that was read last: what the agent sent, unless it is long, and what that meant."""

        self._reading = asyncio.Lock()

    async def get(self, key: str, *, exact: bool = False) -> Entry | None:
        """One key; None when there is none. `exact`: the servers agree first that it is the newest state."""
        mode = "consistent" if exact else "default"
        return await self._ask(
            lambda: self._kv.get(key, consistency=mode),
            lambda found: None if found[1] is None else read_decoded(found[1]),
            right=may_read(key),
            again=True,
        )

    async def tree(self, prefix: str) -> Listing:
        """All keys below `prefix`, which ends with a slash. Raises `ForbiddenError` without the right to
        read."""
        return await self._tree(prefix, [], None)

    async def tree_after(self, prefix: str, index: int, wait_seconds: int) -> Listing:
        """The same, once it is newer than `index`, or after `wait_seconds` as it is."""
        # TRAP: the library has no time limit, and without `wait` the agent answers after five minutes.
        limit = wait_seconds * 17 / 16 + WAIT_SLACK_SECONDS  # an agent adds up to a sixteenth
        return await self._tree(prefix, [("index", str(index)), ("wait", f"{wait_seconds}s")], limit)

    async def transact(self, *ops: Op) -> list[Entry]:
        """Do all of `ops` or none; return the keys as they are then, of each operation but deletions.

        Raises `ConflictError` when a condition does not hold.
        """
        # TRAP: `txn.put` of the library ignores the datacenter, and would lock keys in another one than it
        # reads.
        return await self._ask(
            lambda: self._put("/v1/txn", [{"KV": op} for op in ops], base.CB.json()),
            lambda answer: [read_result(each["KV"]) for each in answer["Results"] or ()],
            right=may_write(ops),
        )

    async def create_session(self, name: str, ttl_seconds: float, *, delete: bool) -> str:
        """A session that holds keys until it was not renewed for twice `ttl_seconds`; then they are freed, or
        deleted.

        It hangs on no health check: one that fails would end it under a holder that still counts on it.
        Without a lock delay, which would keep a key from everybody for 15 s more.
        """
        # TRAP: the library checks the ttl by `assert`, against limits that are for the servers to know.
        body = {
            "Name": name,
            "Checks": [],
            "LockDelay": "0s",
            "Behavior": "delete" if delete else "release",
            "TTL": f"{ttl_seconds:.3f}s",
        }
        return await self._ask(
            lambda: self._put("/v1/session/create", body, base.CB.json(is_id=True)),
            lambda session: session if isinstance(session, str) else _strange(),
            right=MAY_MAKE_SESSIONS,
        )

    async def renew_session(self, session: str) -> bool:
        """Whether it is still there; it has its full time again then."""
        try:
            await self._ask(
                lambda: self._session.renew(session), _nothing, right=MAY_MAKE_SESSIONS, again=True
            )
        except _NotFoundError as error:
            # A 404 of anybody else on the way, who knows nothing of sessions, must not end our leases. It may
            # repeat the path.
            if session in str(error) and f"/{session}" not in str(error):
                return False
            raise
        return True

    async def destroy_session(self, session: str) -> None:
        await self._ask(lambda: self._session.destroy(session), _nothing, right=MAY_MAKE_SESSIONS)

    @asynccontextmanager
    async def within(self, limit_seconds: float | None = None) -> AsyncIterator[None]:
        """A time limit around several calls, `limit_seconds` of the client unless told otherwise."""
        seconds = self.limit_seconds if limit_seconds is None else limit_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ConsulError(f"{self.address} did not answer within {seconds:g} s") from error

    async def close(self) -> None:
        """Close all connections; may be repeated, and the client used again afterwards."""
        await self._http.close()

    async def _tree(self, prefix: str, params: list[tuple[str, str]], limit_seconds: float | None) -> Listing:
        # TRAP: the library takes a whole answer apart in one step of the event loop, which then stands still
        # for ten milliseconds and more.
        agent = self._agent
        asked = [*params, ("recurse", "1"), *agent.params()]
        index, text = await self._ask(
            lambda: self._http.get(_untouched, f"/v1/kv/{prefix}", asked, agent.headers()),
            lambda answer: (int(answer[0]), answer[1]),  # TRAP: the index is a text.
            limit_seconds,
            right=may_read(prefix),
            again=limit_seconds is None,
        )
        if not text:
            # TRAP: a token that may not read gets an empty listing and no error. For one key there is an
            # error.
            await self.get(prefix)
            return Listing(index, {})
        async with self._reading:  # a watcher and a caller are often told the same at the same moment
            if text == self._last[0]:  # most answers to a renewal are the same as the one before
                return Listing(index, self._last[1])
            try:
                entries = await read_entries(text)
            except _NO_ANSWER as error:
                raise self._strange() from error
            if len(text) <= LONG_TEXT:
                self._last = text, entries
            return Listing(index, entries)

    def _put(self, path: str, body: object, callback: Any) -> Awaitable[Any]:
        agent = self._agent
        return self._http.put(callback, path, agent.params(), json.dumps(body), agent.headers())

    async def _ask(
        self,
        call: Callable[[], Awaitable[Any]],
        take: Callable[[Any], T],
        limit_seconds: float | None = None,
        *,
        right: str,
        again: bool = False,
    ) -> T:
        """Call the library, within the limit; return what `take` makes of the answer. `right`: what a token
        needs for it. `again`: ask a second time if the connection was closed meanwhile; only where that
        cannot matter."""
        try:
            async with self.within(limit_seconds):
                try:
                    return take(await call())
                except _CLOSED_UNDERWAY as error:
                    if not again or isinstance(error, aiohttp.ClientConnectorError):
                        raise
                    return take(await call())
        except ConsulError:
            raise
        except (base.ACLPermissionDenied, base.ACLDisabled) as error:
            raise ForbiddenError(refusal(self._settings, line(error), right)) from error
        except base.NotFound as error:
            raise _NotFoundError(f"{self.address}: {line(error)}") from error
        # TRAP: what goes wrong on the way is not among the library's own errors.
        except (base.ConsulException, aiohttp.ClientError, OSError) as error:
            failures = failures_in(error)
            if failures is None:
                text = line(error, self._settings.token)
                raise ConsulError(f"{self.address}: {text}{look_at(text)}") from error
            said = next((what for _, what in failures if DENIED in what), None)
            if said is not None:
                # TRAP: in a transaction a missing right looks like a condition that does not hold.
                raise ForbiddenError(refusal(self._settings, said, right)) from error
            raise ConflictError(f"{self.address}: {failures[0][1]}", failures) from error
        except _NO_ANSWER as error:
            # TRAP: what is no answer of an agent, such as a page of a proxy, fails while it is taken apart.
            raise self._strange() from error

    def _strange(self) -> ConsulError:
        return ConsulError(f"{self.address} did not answer like an agent of Consul")


class _NotFoundError(ConsulError):
    pass


class _HTTPClient(base.HTTPClient):  # type: ignore[misc]  # it has no types
    """How the library sends its requests.

    TRAP: its own asyncio client makes a new session and connection for every request (half the speed, and
    an agent takes 200 connections of one address), sends no client certificate, ignores a CA file, has no
    time limit but 300 s, and warns of an unclosed connector whatever one does.
    """

    def __init__(self, settings: ConsulSettings, tls: ssl.SSLContext | bool, connections: int) -> None:
        super().__init__(settings.host, settings.port, "https" if settings.tls else "http")
        self._tls = tls
        self._token = settings.token
        self._limits = {False: connections, True: 1}
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    def get(self, callback: Any, path: str, params: Any = None, headers: Any = None) -> Awaitable[Any]:
        return self._request(callback, "GET", path, params, headers, None)

    def put(
        self, callback: Any, path: str, params: Any = None, data: Any = "", headers: Any = None
    ) -> Awaitable[Any]:
        return self._request(callback, "PUT", path, params, headers, data)

    def delete(
        self, callback: Any, path: str, params: Any = None, data: Any = "", headers: Any = None
    ) -> Awaitable[Any]:
        return self._request(callback, "DELETE", path, params, headers, data)

    def post(
        self, callback: Any, path: str, params: Any = None, data: Any = "", headers: Any = None
    ) -> Awaitable[Any]:
        return self._request(callback, "POST", path, params, headers, data)

    async def _request(
        self, callback: Any, method: str, path: str, params: Any, headers: Any, data: Any
    ) -> Any:
        blocking = any(name == "index" for name, _ in params or ())
        async with self._session(blocking).request(
            method,
            URL(self.uri(path, params), encoded=True),
            data=data,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None),  # every caller has a limit
            # TRAP: an agent redirects keys that look like paths, and the token would go along.
            allow_redirects=False,
        ) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise ValueError("the answer is too long")
            text = body.decode("utf-8", "replace")
            if response.status >= 400:  # it goes into an error, and a proxy may repeat what it was sent
                text = hidden(text, self._token)
            return callback(base.Response(response.status, response.headers, text, body))

    def _session(self, blocking: bool) -> aiohttp.ClientSession:
        """A pool of connections, made in the running event loop; blocking queries have one of their own."""
        session = self._sessions.get(blocking)
        if session is None or session.closed:
            session = self._sessions[blocking] = aiohttp.ClientSession(
                connector=_Connector(limit=self._limits[blocking], ssl=self._tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                # TRAP: aiohttp asks for gzip, which takes an agent several times as long as the answer.
                headers={"Accept-Encoding": "identity"},
            )
            # TRAP: aiohttp sends a PUT again when the connection breaks before the answer. A compare-and-set
            # that was applied would then fail, and a session be made twice.
            session._retry_connection = False
        return session

    async def close(self) -> None:
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()


class _Connector(aiohttp.TCPConnector):
    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        # TRAP: a connection that is closed in the middle of a request says good-bye over TLS, and an agent
        # that is busy with a blocking query does not answer: it would stay open for half a minute.
        transport = protocol.transport
        super()._release(key, protocol, should_close=should_close)
        if transport is not None and transport.is_closing():
            transport.abort()


class _Agent:
    """What the parts of the library need of its `Consul`.

    TRAP: `Consul()` itself lets CONSUL_HTTP_ADDR, _TOKEN, _SSL and _SSL_VERIFY win over its arguments, and
    warns of deprecations in itself.
    """

    consistency = "default"

    def __init__(self, http: _HTTPClient, token: str, datacenter: str) -> None:
        self.http = http
        self.token = token
        self.dc = datacenter

    def params(self) -> list[tuple[str, str]]:
        return [("dc", self.dc)] if self.dc else []

    def headers(self) -> dict[str, str]:
        return {"X-Consul-Token": self.token} if self.token else {}


def _nothing(answer: object) -> None:
    """For calls whose answer is that there is one."""


def _strange() -> str:
    raise ValueError("no answer of an agent")


def _untouched(response: Any) -> tuple[str, str]:
    """The index and the text of an answer; no text when there are no such keys."""
    base.CB.binary()(response)  # raises what every answer of the library does
    return response.headers["X-Consul-Index"], "" if response.code == 404 else response.body
