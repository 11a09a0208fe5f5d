"""One request to a peer: whatever it does, it costs its time limit, a bounded amount of memory, and no more.

No redirect is followed and no proxy of the environment used: a card says where to ask, and nobody else. A
body that is compressed is refused unread, since it was asked for as it is.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol
from urllib.parse import quote, urlencode

from drakkar.cache.connection import PeerConnection
from drakkar.cache.page import MAX_BODY_BYTES, BadPageError, PageReader
from drakkar.cache.rows import Cursor, Row
from drakkar.cache.thread import CacheThread
from drakkar.errors import describe
from drakkar.telemetry.metrics import ExchangeMetrics

Outcome = Literal["http_error", "timeout", "transport_error", "bad_body"]
ENDPOINT: Final = "cache_changes"

_PIECE_BYTES: Final = 128 * 1024


class Connection(Protocol):
    """What a peer is asked over, as `PeerConnection`."""

    async def ask(self, query: str) -> tuple[int, dict[bytes, bytes]]: ...

    async def piece(self) -> bytes: ...

    def close(self) -> None: ...


class PeerRequestError(Exception):
    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class PeerClient:
    """Asks peers."""

    def __init__(
        self,
        thread: CacheThread,
        timeout_seconds: float,
        metrics: ExchangeMetrics,
        connect: Callable[[str], Connection] | None = None,
    ) -> None:
        """`connect` makes the connection to a URL, where requests do not go over the network."""
        self._thread = thread
        self._timeout_seconds = timeout_seconds
        self._metrics = metrics
        self._tls: ssl.SSLContext | None = None
        self.connect = connect or (lambda url: PeerConnection(url, self._certificates))

    async def page(
        self, peer: Connection, scopes: Sequence[str], after: Cursor | None, limit: int
    ) -> tuple[list[Row], bool]:
        """The rows after `after`, in order, and whether there are more. Raises `PeerRequestError`."""
        began = asyncio.get_running_loop().time()
        outcome = None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                page = await self._ask(peer, scopes, after, limit)
            outcome = "ok"
            return page
        except PeerRequestError as error:
            outcome = error.outcome
            raise
        except TimeoutError as error:
            outcome = "timeout"
            raise PeerRequestError("timeout", f"no answer within {self._timeout_seconds:g} s") from error
        except BadPageError as error:
            outcome = "bad_body"
            raise PeerRequestError("bad_body", str(error)) from error
        except Exception as error:  # of the network, of TLS, of an address that is none
            outcome = "transport_error"
            raise PeerRequestError("transport_error", describe(error)) from error
        finally:
            if outcome is not None:  # else the worker stops, or the cycle is over
                self._metrics.requests.labels(ENDPOINT, outcome).inc()
                self._metrics.duration_seconds.labels(ENDPOINT).observe(
                    asyncio.get_running_loop().time() - began
                )

    async def _ask(
        self, peer: Connection, scopes: Sequence[str], after: Cursor | None, limit: int
    ) -> tuple[list[Row], bool]:
        params: dict[str, str | int] = {"scopes": ",".join(scopes), "limit": limit}
        if after is not None:
            params |= {"after_ms": after[0], "after_key": after[1]}
        status, headers = await peer.ask(urlencode(params, quote_via=quote))
        if status != 200:
            raise PeerRequestError("http_error", f"status {status}")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise BadPageError("the body is compressed, which was not asked for")
        if int(headers.get(b"content-length", b"0")) > MAX_BODY_BYTES:  # a number, or it had been refused
            raise BadPageError(f"more than {MAX_BODY_BYTES} bytes")
        reader = PageReader(after)
        pieces: list[bytes] = []
        size = 0
        while piece := await peer.piece():
            pieces.append(piece)
            size += len(piece)
            if size >= _PIECE_BYTES:
                await self._read(reader, pieces)
                size = 0
        await self._read(reader, pieces)
        more = await self._thread.run(reader.end)
        if more and not reader.rows:
            raise BadPageError("there is said to be more, but nothing comes")
        return reader.rows, more

    async def _read(self, reader: PageReader, pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        pieces.clear()
        await self._thread.run(lambda: reader.feed(data))

    async def _certificates(self) -> ssl.SSLContext:
        while self._tls is None:
            await self._thread.run(self._read_certificates)
        return self._tls

    def _read_certificates(self) -> None:
        """On the thread, and kept also when who asked has gone: it takes a while."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
