"""One connection to a peer, over which one request goes at a time.

HTTP by h11, sockets by asyncio, and no client library between them: requests are cancelled here all the time,
at their limit, at the end of a round, at a stop, and nothing may stay of one. A pool that loses a place to
each that was cancelled while it connected ends in a cache that asks nobody any more; a socket that is lost in
a handshake stays open until somebody collects it.

Names are not resolved on the event loop's default executor: others need its few threads, the clients of
stores among them, and the end of a process waits for all of them, however long a resolver hangs.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, urlsplit

import h11

from drakkar.cache.thread import CacheThread

_HEADERS: Final = (
    ("Accept", "application/json"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", "drakkar"),
)
_PORTS: Final = {"http": 80, "https": 443}
_READ_BYTES: Final = 8 * 1024
_MAX_HEAD_BYTES: Final = 16 * 1024
"""With what is read at once on top: of headers of three bytes it is taken apart in some ten milliseconds."""

_IDLE_SECONDS: Final = 4.0
"""Shorter than servers keep idle connections, or a request would now and then meet one that is closing."""

_EVENTS_AT_ONCE: Final = 100
"""Of HTTP, before the event loop has its turn: a body may come in chunks of one byte."""

_NEXT_ADDRESS_SECONDS: Final = 1.0
"""After which the next address of a name is tried: the first may be of a network that leads nowhere."""

_lookups = threading.BoundedSemaphore(64)
"""Of all exchanges of the process, each a thread: a resolver that hangs for ever must not have ever more."""


class PeerConnection:
    """To the server at `url`: made with the first request, and made again when the server has closed it.

    Whatever a request raises, cancellation among it, `close` is all that is left to do. Time limits are the
    caller's.
    """

    def __init__(self, url: str, tls: Callable[[], Awaitable[ssl.SSLContext]]) -> None:
        """`tls` is asked for certificates when `url` is `https`."""
        self._url = urlsplit(url)
        self._tls = tls
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.WriteTransport | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._used_at = 0.0
        self._events = 0

    async def ask(self, query: str) -> tuple[int, dict[bytes, bytes]]:
        """Send a request; the status of the answer and its headers, by names in lower case.

        Raises `OSError`, `h11.ProtocolError`, and `ValueError` for an address that is none.
        """
        host = (self._url.hostname or "").encode("idna").decode()
        writer = await self._connected(host)
        port = "" if self._url.port is None else f":{self._url.port}"
        headers = [("Host", (f"[{host}]" if ":" in host else host) + port), *_HEADERS]
        target = quote(self._url.path, safe="/%:@!$&'()*+,;=~") + f"?{query}"
        writer.write(self._http.send(h11.Request(method="GET", target=target, headers=headers)) or b"")
        self._http.send(h11.EndOfMessage())
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event.status_code, dict(event.headers)
            if not isinstance(event, h11.InformationalResponse):
                raise ConnectionError("the peer has closed the connection")
            await asyncio.sleep(0)  # there may be ever more of them, each as long as a head may be

    async def piece(self) -> bytes:
        """More of the body; nothing at its end. Raises as `ask`."""
        event = await self._next()
        if isinstance(event, h11.Data):
            return event.data
        self._used_at = asyncio.get_running_loop().time()
        return b""

    def close(self) -> None:
        """At once, whatever is under way. May be called twice."""
        if self._writer is not None:
            self._writer.transport.abort()
        if self._transport is not None:
            self._transport.abort()
        self._transport = self._reader = self._writer = None

    async def _connected(self, host: str) -> asyncio.StreamWriter:
        if self._writer is not None and self._may_go_on():
            self._http.start_next_cycle()
            return self._writer
        self.close()
        tls = await self._tls() if self._url.scheme == "https" else None
        sock = await _connect(host, self._url.port or _PORTS[self._url.scheme])
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        if tls is None:
            self._transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
            writer = asyncio.StreamWriter(self._transport, protocol, reader, loop)
        else:
            # What comes before the handshake is dropped: it is from anybody, and must not become an answer.
            self._transport, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
            transport = await loop.start_tls(self._transport, protocol, tls, server_hostname=host)
            if transport is None:
                raise ConnectionError("the connection was closed in the handshake")
            protocol.connection_made(transport)
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT, _MAX_HEAD_BYTES)
        return writer

    def _may_go_on(self) -> bool:
        idle = asyncio.get_running_loop().time() - self._used_at
        whole = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        too_much, _ = self._http.trailing_data  # nobody asked for it: it must not answer what comes next
        reader = self._reader
        return whole and not too_much and idle < _IDLE_SECONDS and reader is not None and not reader.at_eof()

    async def _next(self) -> Any:
        self._events += 1
        if self._events % _EVENTS_AT_ONCE == 0:
            await asyncio.sleep(0)
        if self._reader is None:
            raise ConnectionError("the connection is closed")
        data = None
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(_READ_BYTES)
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            if data == b"":
                raise ConnectionError("the peer has closed the connection in its answer") from error
            raise
        return event


async def _connect(host: str, port: int) -> socket.socket:
    """Try the addresses of `host`, one after the other; raises what the last one does."""
    *others, last = await _addresses(host, port)
    for address in others:
        with suppress(OSError):  # `TimeoutError` is one
            async with asyncio.timeout(_NEXT_ADDRESS_SECONDS):
                return await _connect_to(address)
    return await _connect_to(last)


async def _connect_to(address: Any) -> socket.socket:
    """`address` is one of `socket.getaddrinfo`."""
    family, kind, proto, _, place = address
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


async def _addresses(host: str, port: int) -> list[Any]:
    """As `socket.getaddrinfo`; cancelling leaves at once, and the thread to itself."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name
    if not _lookups.acquire(blocking=False):
        raise OSError("too many names are being resolved, and none is answered")
    try:
        thread = CacheThread()
    except RuntimeError:  # the system has no more of them
        _lookups.release()
        raise
    try:
        return await thread.run(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    finally:
        thread.close(_lookups.release)
