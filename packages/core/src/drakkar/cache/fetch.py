"""One request to a peer: whatever it does, it costs its time limit, a bounded amount of memory, and no more.

No redirect is followed and no proxy of the environment used: a card says where to ask, and nobody else. A
body that is compressed is refused unread, since it was asked for as it is.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, Literal

import httpx

from drakkar.cache.page import MAX_BODY_BYTES, BadPageError, PageReader
from drakkar.cache.rows import Cursor, Row
from drakkar.cache.thread import CacheThread
from drakkar.errors import describe
from drakkar.telemetry.metrics import ExchangeMetrics

Outcome = Literal["http_error", "timeout", "transport_error", "bad_body"]
ENDPOINT: Final = "cache_changes"

_PIECE_BYTES: Final = 128 * 1024
_KEEP_ALIVE_SECONDS: Final = 4.0
"""Shorter than servers keep idle connections, or a request would now and then meet one that is closing."""

for _name in ("httpcore", "anyio._backends._asyncio"):
    with suppress(ImportError):
        import_module(_name)  # as httpx would in the first request, and hold up the event loop for that time


class PeerRequestError(Exception):
    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class PeerClient:
    """Asks peers; one for all cycles, so that the pages of a peer come over one connection."""

    def __init__(
        self,
        thread: CacheThread,
        timeout_seconds: float,
        connections: int,
        metrics: ExchangeMetrics,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`transport` is how requests go, where they do not go over the network."""
        self._thread = thread
        self._timeout_seconds = timeout_seconds
        self._metrics = metrics
        self._transport = transport
        self._limits = httpx.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
        )
        self._client: httpx.AsyncClient | None = None

    async def page(
        self, url: str, scopes: Sequence[str], after: Cursor | None, limit: int
    ) -> tuple[list[Row], bool]:
        """The rows after `after`, in order, and whether there are more. Raises `PeerRequestError`."""
        began = asyncio.get_running_loop().time()
        outcome = None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                page = await self._ask(url, scopes, after, limit)
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

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _ask(
        self, url: str, scopes: Sequence[str], after: Cursor | None, limit: int
    ) -> tuple[list[Row], bool]:
        if self._client is None:
            # On the thread: it reads the certificates.
            self._client = await self._thread.run(self._make_client)
        params: dict[str, str | int] = {"scopes": ",".join(scopes), "limit": limit}
        if after is not None:
            params |= {"after_ms": after[0], "after_key": after[1]}
        async with self._client.stream("GET", url, params=params) as response:
            if response.status_code != 200:
                raise PeerRequestError("http_error", f"status {response.status_code}")
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise BadPageError("the body is compressed, which was not asked for")
            if _length(response.headers.get("content-length", "")) > MAX_BODY_BYTES:
                raise BadPageError(f"more than {MAX_BODY_BYTES} bytes")
            reader = PageReader(after)
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_raw():
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

    def _make_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=self._transport,
            timeout=None,  # noqa: S113  `page` has one, for the request as a whole
            trust_env=False,
            follow_redirects=False,
            limits=self._limits,
            headers={"Accept-Encoding": "identity", "Accept": "application/json", "User-Agent": "drakkar"},
        )


def _length(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
