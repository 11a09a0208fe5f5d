"""The connection to etcd: one request, one login, one watch. The traps of the client library end here.

The library is etcd3-py 0.1.6, its `AioClient`. Of it, only the way in is used: `call_rpc` with bytes and
`raw=True`, which leaves addresses, headers and the session to the library and the bodies to us. What would
break without each of the detours below is said where it is taken, and shown in `tests/etcd/test_client.py`.
"""

import asyncio
import errno
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import aiohttp
from etcd3 import AioClient  # type: ignore[import-untyped]  # it has no types
from etcd3.baseclient import BaseClient  # type: ignore[import-untyped]  # it has no types

from drakkar_etcd._answers import (
    CompactedError,
    EtcdError,
    NoEtcdError,
    RedirectError,
    UnansweredError,
    look_at,
    no_answer_from,
    read_answer,
    read_message,
    reason_of,
)
from drakkar_etcd._clusters import Clusters
from drakkar_etcd._login import Login
from drakkar_etcd._reading import body_of, lines_of, notice_dead_peers
from drakkar_etcd._tls import context_of
from drakkar_etcd.settings import SECTION, EtcdSettings

T = TypeVar("T")

_LONG_BYTES: Final = 100_000

_HAS_LEADER: Final = {"Grpc-Metadata-hasleader": "true"}
"""Without this header a watch at a member that lost its majority stays open in silence; with it the member
ends the stream."""


class _Library(AioClient):  # type: ignore[misc]  # it has no types
    """The library's client with its constructor, its probe and its one address replaced."""

    def __init__(self, endpoints: tuple[str, ...], tls: ssl.SSLContext | None) -> None:
        self.endpoints = endpoints
        self.current = 0
        self.address = endpoints[0]
        # Not AioClient's: it takes a CA for nothing without a client certificate, does not check host names
        # with one, and shares thirty connections between calls and watches, so that the thirty-first call of
        # a process with thirty watches hangs.
        BaseClient.__init__(self, protocol="https" if tls else "http")
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True), cookie_jar=aiohttp.DummyCookieJar()
        )

    @property
    def baseurl(self) -> str:
        # The library knows one host and port, and puts no brackets around an IPv6 address.
        return self.address

    def _retrieve_version(self) -> None:
        """The library asks the server for its version here, by `requests`: the event loop stands for up to
        0.3 s, and when the server is down it fails with AttributeError afterwards."""

    def _verify_version(self) -> None:
        """Nothing to look at."""

    def _get_prefix(self) -> None:
        self.api_prefix = "/v3"  # which every server has since 3.4


class EtcdClient:
    """Asks one cluster. Every call ends within its limit and may be cancelled at any time.

    After a failure the next endpoint is asked, and stays the one until it fails.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        """Raises `ValueError`, one line that names the option, when a file of the settings cannot be used."""
        self._settings = settings
        self._tls = context_of(settings)
        self._library: _Library | None = None
        self._limit_seconds = 0.0
        self._login = Login(settings, self._send_login)
        self._streams: set[aiohttp.ClientResponse] = set()
        self.clusters = Clusters(settings.endpoints, self._ask_status)

    def open(self, limit_seconds: float) -> None:
        """Make the session, on the running event loop, and begin to look at the clusters of several
        endpoints. `limit_seconds` is the time that a call has, all endpoints together. May be called again.
        """
        self._limit_seconds = limit_seconds
        if self._library is None:
            self._library = _Library(self._settings.endpoints, self._tls)
            self.clusters.look()

    async def close(self) -> None:
        """End every stream and connection. May be called twice, and without `open`."""
        if self._library is not None:
            library, self._library = self._library, None
            self.end_streams()
            await self.clusters.close()
            await library.session.close()

    def end_streams(self) -> None:
        """Have every watch end, with an error or without."""
        for response in self._streams:
            response.close()

    @property
    def endpoint(self) -> str:
        """The one that is asked at present."""
        library = self._open()
        return library.endpoints[library.current]

    @asynccontextmanager
    async def within(self) -> AsyncIterator[None]:
        """The time limit of `open` around several calls. Raises `TimeoutError` that names all endpoints."""
        limit = asyncio.timeout(self._limit_seconds)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            asked = ", ".join(self._settings.endpoints)
            raise TimeoutError(f"etcd did not answer within {self._limit_seconds:g} s ({asked})") from error

    async def call(self, method: str, request: Mapping[str, Any], *, repeat: bool = True) -> dict[str, Any]:
        """Return the answer to one request.

        `repeat` allows to ask the next endpoint although the first may have done what it was asked for, or
        may still do it.

        Raises `EtcdError` for a refusal, `UnansweredError` when no endpoint answered, or something else did.
        """
        data = json.dumps(request).encode()
        answer = await self._at_each(lambda library: self._ask(library, method, data), repeat=repeat)
        self.clusters.look_if_different()
        return answer

    async def log_in(self) -> None:
        """Log in if there is a user to log in as. Raises as `call` does."""
        if self._login.is_wanted and self._login.token is None:
            await self._at_each(lambda _: self._login.renew(None), repeat=True)

    async def _at_each(self, ask: Callable[[_Library], Awaitable[T]], *, repeat: bool) -> T:
        """What `ask` returns at the first endpoint that answers."""
        library = self._open()
        reasons: dict[int, str] = {}
        for _ in library.endpoints:
            at, began = library.current, asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(self._try_seconds(library)):
                    return await ask(library)
            except asyncio.CancelledError:
                # Whoever asked has a time limit, too, which may be the first to end.
                if self._is_long(library, began):
                    self._move_on(library, at)
                raise
            except (aiohttp.ClientError, OSError) as error:
                reasons[at] = self._reason(library.endpoints[at], error)
                sent = not isinstance(error, aiohttp.ClientConnectorError)
            except EtcdError as error:
                if not isinstance(error, NoEtcdError):  # whose words are our own
                    error.message = self._login.hidden(error.message)
                if not error.unavailable:
                    error.explain(library.endpoints[at], self._settings)
                    raise
                reasons[at] = error.message if isinstance(error, NoEtcdError) else f"etcd: {error.message}"
                sent = True
            self._move_on(library, at)
            if sent and not repeat:
                break
        # In the order of the settings: what does not change from call to call is logged once.
        raise UnansweredError(no_answer_from({library.endpoints[at]: reasons[at] for at in sorted(reasons)}))

    def _reason(self, endpoint: str, error: BaseException) -> str:
        """Why there was no answer, and which option may have to do with it."""
        reason = reason_of(error, self._login.hidden)
        hung_up = isinstance(error, aiohttp.ServerDisconnectedError) or (
            isinstance(error, OSError) and error.errno == errno.ECONNRESET
        )
        if hung_up and endpoint.startswith("http:") and not self.clusters.knows(endpoint):
            return f"{reason}, is it https:// there? See {SECTION}.endpoints"
        return f"{reason}{look_at(reason)}"

    async def watch(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the messages of a watch, the first of which says that it is there, until it ends.

        It ends when the server ends it, and when a call got no answer from the endpoint that it is open to:
        a server that hangs, or a connection that is dead, says nothing on a stream. Close the iterator.

        Raises `CompactedError`, `EtcdError`, or what the connection raises.
        """
        library = self._open()
        token = self._login.token
        try:
            token = await self._ready(library)
            async with self._streaming(library, {"create_request": request}, token) as lines:
                async for line in lines:
                    message = read_message(line)
                    if message.get("canceled"):
                        # The server leaves the stream open after this, and says nothing more on it.
                        if "compact_revision" in message:
                            raise CompactedError
                        raise EtcdError(200, 0, str(message.get("cancel_reason", "the watch was refused")))
                    yield message
        except EtcdError as error:
            if self._login.is_wanted and (error.not_logged_in or error.is_denied):
                # A watch with a dead token is told that it has no permission.
                with suppress(EtcdError, OSError, aiohttp.ClientError):
                    await self._login.renew(token)
            raise

    async def _ready(self, library: _Library) -> str | None:
        at = library.current
        try:
            async with asyncio.timeout(self._try_seconds(library)):
                return await self._login.ready()
        except (aiohttp.ClientError, OSError, NoEtcdError):
            self._move_on(library, at)
            raise

    @asynccontextmanager
    async def _streaming(
        self, library: _Library, request: Mapping[str, Any], token: str | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        # The library's own streams fail with TypeError under aiohttp 3.10 and later, and lose events before.
        # Its `timeout=None` would take away the limit for connecting as well.
        limit = aiohttp.ClientTimeout(total=None, sock_connect=self._try_seconds(library))
        at = library.current
        try:
            # The first message comes with the headers.
            async with self._doubting(library, token), asyncio.timeout(self._try_seconds(library)):
                response = await self._post(
                    library,
                    library.endpoints[at],
                    "/watch",
                    json.dumps(request).encode(),
                    limit,
                    token,
                    _HAS_LEADER,
                )
        except (aiohttp.ClientError, OSError, NoEtcdError):
            self._move_on(library, at)
            raise
        self._streams.add(response)
        try:
            notice_dead_peers(response)
            yield lines_of(response)
        finally:
            self._streams.discard(response)
            response.close()  # not release: that would wait for the end of the stream

    async def _ask(self, library: _Library, method: str, data: bytes) -> dict[str, Any]:
        token = await self._login.ready()
        try:
            async with self._doubting(library, token):
                return await self._send(library, method, data, token)
        except EtcdError as error:
            if not (error.not_logged_in and self._login.is_wanted):
                raise
        await self._login.renew(token)
        token = self._login.token
        async with self._doubting(library, token):
            return await self._send(library, method, data, token)

    @asynccontextmanager
    async def _doubting(self, library: _Library, token: str | None) -> AsyncIterator[None]:
        """Around a request with `token`: what has no answer puts it in doubt."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except aiohttp.ClientConnectorError:
            raise  # the token was not even sent
        except (aiohttp.ClientError, OSError):
            self._login.doubt(token)
            raise
        except EtcdError as error:
            if error.unavailable:
                self._login.doubt(token)
            raise
        except asyncio.CancelledError:
            if self._is_long(library, began):
                self._login.doubt(token)
            raise

    async def _send_login(self, login: dict[str, str]) -> dict[str, Any]:
        # Not the library's `auth()`: it takes the token away while it waits, so that whatever is asked
        # meanwhile fails, and nothing ever calls it a second time. And without the old token: 3.4 refuses a
        # login that comes with one which has expired.
        return await self._send(self._open(), "/auth/authenticate", json.dumps(login).encode(), None)

    async def _send(
        self, library: _Library, method: str, data: bytes, token: str | None, endpoint: str = ""
    ) -> dict[str, Any]:
        endpoint = endpoint or library.endpoints[library.current]
        # Without a limit of our own there is none at all: the library turns aiohttp's off.
        limit = self._try_seconds(library)
        timeout = aiohttp.ClientTimeout(total=limit)
        async with asyncio.timeout(limit):
            response = await self._post(library, endpoint, method, data, timeout, token)
            async with response:
                body = await body_of(response)
                answer = read_answer(response.status, body)
        if len(body) > _LONG_BYTES:
            await asyncio.sleep(0)  # what is made of thousands of keys takes a step of the event loop itself
        self.clusters.heard(endpoint, answer)
        return answer

    async def _ask_status(self, endpoint: str) -> None:
        # This needs no login, and no majority.
        await self._send(self._open(), "/maintenance/status", b"{}", None, endpoint)

    async def _post(
        self,
        library: _Library,
        endpoint: str,
        method: str,
        data: bytes,
        limit: aiohttp.ClientTimeout,
        token: str | None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> aiohttp.ClientResponse:
        # Bytes in and raw out: the library's models take 640 ms of the event loop for a thousand keys, write
        # text as Latin-1, and turn every refusal of a 3.5 server into a TypeError.
        library.address, library.token = endpoint, token
        request = library.call_rpc(
            method,
            data=data,
            raw=True,
            timeout=limit,
            headers=dict(headers),
            # aiohttp would follow, and take the login's password and the token along to any other host, even
            # from https:// to http://.
            allow_redirects=False,
        )
        response = cast("aiohttp.ClientResponse", await request)
        if 300 <= response.status < 400:
            response.close()
            raise RedirectError(response.status)
        return response

    def _move_on(self, library: _Library, at: int) -> None:
        if library.current == at:
            library.current = (at + 1) % len(library.endpoints)
            self.end_streams()

    def _try_seconds(self, library: _Library) -> float:
        return self._limit_seconds / len(library.endpoints)

    def _is_long(self, library: _Library, began: float) -> bool:
        """Whether what began then took so long that it cannot be meant to end by being cancelled."""
        return asyncio.get_running_loop().time() - began > 0.5 * self._try_seconds(library)

    def _open(self) -> _Library:
        if self._library is None:
            raise RuntimeError("the connection is not open: it was not started, or was stopped")
        return self._library
