"""The connection to etcd: one request, one login, one watch. The traps of the client library end here.

The library is etcd3-py 0.1.6, its `AioClient`. Of it, only the way in is used: `call_rpc` with bytes and
`raw=True`, which leaves addresses, headers and the session to the library and the bodies to us. What would
break without each of the detours below is said where it is taken, and shown in `tests/etcd/test_client.py`.
"""

import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import aiohttp
from etcd3 import AioClient  # type: ignore[import-untyped]  # it has no types
from etcd3.baseclient import BaseClient  # type: ignore[import-untyped]  # it has no types

from drakkar_etcd._answers import CompactedError, EtcdError, UnansweredError, read_answer, read_message
from drakkar_etcd.settings import SECTION, EtcdSettings

T = TypeVar("T")

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))

LOGIN_PAUSE_SECONDS: Final = 1.0
"""How long a login that was refused counts for all: each costs the server 65 ms of a processor."""

_HAS_LEADER: Final = {"Grpc-Metadata-hasleader": "true"}
"""Without this header a watch at a member that lost its majority stays open in silence; with it the member
ends the stream."""


class _Library(AioClient):  # type: ignore[misc]  # it has no types
    """The library's client with its constructor, its probe and its one address replaced."""

    def __init__(self, endpoints: tuple[str, ...], tls: ssl.SSLContext | None) -> None:
        self.endpoints = endpoints
        self.current = 0
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
        return self.endpoints[self.current]

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
        self._settings = settings
        self._library: _Library | None = None
        self._limit_seconds = 0.0
        self._token: str | None = None
        self._login_failure: EtcdError | None = None
        self._login_failed_at = 0.0
        self._login_turn = asyncio.Lock()
        self._streams: set[aiohttp.ClientResponse] = set()

    def open(self, limit_seconds: float) -> None:
        """Make the session, on the running event loop; no request is sent. `limit_seconds` is the time that a
        call has, all endpoints together. May be called again.

        Raises `ValueError`, one line that names the option, when a file of the settings cannot be used.
        """
        self._limit_seconds = limit_seconds
        if self._library is None:
            tls = _tls(self._settings) if self._settings.is_tls else None
            self._library = _Library(self._settings.endpoints, tls)

    async def close(self) -> None:
        """End every stream and connection. May be called twice, and without `open`."""
        if self._library is not None:
            library, self._library = self._library, None
            self.end_streams()
            await library.session.close()

    def end_streams(self) -> None:
        """Have every watch end, with an error or without."""
        for response in self._streams:
            response.close()

    @property
    def endpoint(self) -> str:
        """The one that is asked at present."""
        return self._open().baseurl

    async def call(self, method: str, request: Mapping[str, Any], *, repeat: bool = True) -> dict[str, Any]:
        """Return the answer to one request.

        `repeat` allows to ask the next endpoint although the first may have done what it was asked for, or
        may still do it.

        Raises `EtcdError` for a refusal, `UnansweredError` when no endpoint answered.
        """
        library = self._open()
        data = json.dumps(request).encode()
        reason = ""
        for _ in library.endpoints:
            at, began = library.current, asyncio.get_running_loop().time()
            try:
                return await self._ask(library, method, data)
            except asyncio.CancelledError:
                # Whoever asked has a time limit, too, which may be the first to end.
                if asyncio.get_running_loop().time() - began > 0.5 * self._try_seconds(library):
                    self._move_on(library, at)
                raise
            except aiohttp.ClientConnectorError as error:
                reason = f"{library.endpoints[at]}: {_why(error)}"
                sent = False
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reason = f"{library.endpoints[at]}: {_why(error)}"
                sent = True
            except EtcdError as error:
                if not error.unavailable:
                    raise
                reason = f"{library.endpoints[at]}: {error}"
                sent = True
            self._move_on(library, at)
            if sent and not repeat:
                break
        raise UnansweredError(f"no answer from etcd, {reason}")

    async def log_in(self) -> None:
        """Log in if there is a user to log in as. Raises as `call` does."""
        if self._settings.username and self._token is None:
            await self._renew_login(None)

    async def watch(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the messages of a watch, the first of which says that it is there, until it ends.

        It ends when the server ends it, and when a call got no answer from the endpoint that it is open to:
        a server that hangs, or a connection that is dead, says nothing on a stream. Close the iterator.

        Raises `CompactedError`, `EtcdError`, or what the connection raises.
        """
        library = self._open()
        token = self._token
        try:
            async with self._streaming(library, {"create_request": request}) as lines:
                async for line in lines:
                    message = read_message(line)
                    if message.get("canceled"):
                        # The server leaves the stream open after this, and says nothing more on it.
                        if "compact_revision" in message:
                            raise CompactedError
                        raise EtcdError(200, 0, str(message.get("cancel_reason", "the watch was refused")))
                    yield message
        except EtcdError as error:
            if self._settings.username and (error.not_logged_in or "permission denied" in str(error)):
                # A watch with a dead token is told that it has no permission.
                with suppress(EtcdError, OSError, aiohttp.ClientError):
                    await self._renew_login(token)
            raise

    @asynccontextmanager
    async def _streaming(
        self, library: _Library, request: Mapping[str, Any]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        # The library's own streams fail with TypeError under aiohttp 3.10 and later, and lose events before.
        # Its `timeout=None` would take away the limit for connecting as well.
        limit = aiohttp.ClientTimeout(total=None, sock_connect=self._try_seconds(library))
        at = library.current
        try:
            async with asyncio.timeout(
                self._try_seconds(library)
            ):  # the first message comes with the headers
                response = await self._post(
                    library, "/watch", json.dumps(request).encode(), limit, self._token, _HAS_LEADER
                )
        except (aiohttp.ClientError, TimeoutError, OSError):
            self._move_on(library, at)
            raise
        self._streams.add(response)
        try:
            _notice_dead_peers(response)
            yield _lines(response)
        finally:
            self._streams.discard(response)
            response.close()  # not release: that would wait for the end of the stream

    async def _ask(self, library: _Library, method: str, data: bytes) -> dict[str, Any]:
        token = self._token
        try:
            return await self._send(library, method, data, token)
        except EtcdError as error:
            if not (error.not_logged_in and self._settings.username):
                raise
        await self._renew_login(token)
        return await self._send(library, method, data, self._token)

    async def _send(self, library: _Library, method: str, data: bytes, token: str | None) -> dict[str, Any]:
        # Without a limit of our own there is none at all: the library turns aiohttp's off.
        limit = self._try_seconds(library)
        async with asyncio.timeout(limit):
            response = await self._post(library, method, data, aiohttp.ClientTimeout(total=limit), token)
            async with response:
                return read_answer(response.status, await response.read())

    async def _post(
        self,
        library: _Library,
        method: str,
        data: bytes,
        limit: aiohttp.ClientTimeout,
        token: str | None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> aiohttp.ClientResponse:
        # Bytes in and raw out: the library's models take 640 ms of the event loop for a thousand keys, write
        # text as Latin-1, and turn every refusal of a 3.5 server into a TypeError.
        library.token = token
        request = library.call_rpc(method, data=data, raw=True, timeout=limit, headers=dict(headers))
        return cast("aiohttp.ClientResponse", await request)

    async def _renew_login(self, stale: str | None) -> None:
        """Log in unless somebody did since `stale` was the token: once for all that found it no good.

        Not the library's `auth()`: it takes the token away while it waits, so that whatever is asked
        meanwhile fails, and nothing ever calls it a second time.
        """
        async with self._login_turn:
            if self._token != stale:
                return
            failure, now = self._login_failure, asyncio.get_running_loop().time()
            if failure is not None and now - self._login_failed_at < LOGIN_PAUSE_SECONDS:
                raise EtcdError(failure.status, failure.code, failure.message)
            self._login_failure = None
            settings = self._settings
            login = json.dumps({"name": settings.username, "password": settings.password}).encode()
            try:
                # Without the old token: 3.4 refuses a login that comes with one which has expired.
                answer = await self._send(self._open(), "/auth/authenticate", login, None)
                self._token = answer["token"]
            except EtcdError as error:
                if error.no_logins:
                    return
                self._login_failure, self._login_failed_at = error, now
                raise

    def _move_on(self, library: _Library, at: int) -> None:
        if library.current == at:
            library.current = (at + 1) % len(library.endpoints)
            self.end_streams()

    def _try_seconds(self, library: _Library) -> float:
        return self._limit_seconds / len(library.endpoints)

    def _open(self) -> _Library:
        if self._library is None:
            raise RuntimeError("the connection is not open: it was not started, or was stopped")
        return self._library


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    left = b""
    async for piece in response.content.iter_any():
        *lines, left = (left + piece).split(b"\n")
        for line in lines:
            yield line
    if left:  # 3.4 ends an error without a line break
        yield left


def _notice_dead_peers(response: aiohttp.ClientResponse) -> None:
    """Have the kernel look whether the other end is still there; a stream alone would never tell."""
    connection = response.connection
    sock = connection.transport.get_extra_info("socket") if connection and connection.transport else None
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if (option := getattr(socket, name, None)) is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _tls(settings: EtcdSettings) -> ssl.SSLContext:
    # The library ignores the CA without a client certificate, and host names with one.
    context = _with_file("ca_file", lambda: ssl.create_default_context(cafile=settings.ca_file))
    if settings.cert_file is not None:
        cert, key = settings.cert_file, settings.key_file
        # Without a password of ours, OpenSSL would ask for that of an encrypted key on the terminal.
        _with_file("cert_file", lambda: context.load_cert_chain(cert, key, password=lambda: ""))
    return context


def _with_file(name: str, use: Callable[[], T]) -> T:
    try:
        return use()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{SECTION}.{name} cannot be used: {reason}") from error


def _why(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        found = error.os_error  # asyncio puts an address in the place of the system's own words
        return os.strerror(found.errno) if found.errno else str(found)
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
