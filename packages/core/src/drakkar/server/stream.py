"""`/api/v1/events`: what the pages show, as server-sent events.

Each stream remembers the number of what it sent last, and nothing else: there is no queue, so a reader that
is slow skips versions, and one that takes nothing any more is dropped. One whose login has ended is ended.
Whoever comes back with the number of the last message that arrived (`after`, or the header `Last-Event-ID`)
gets what changed since. A stream ends at once when the server stops.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from drakkar.server.login import Tickets
from drakkar.server.snapshots import LOOK_SECONDS, Snapshots

MAX_STREAMS: Final = 64
BEAT_SECONDS: Final = 5.0
SLOW_SECONDS: Final = 15.0
"""How long a reader may take for one message."""

_RETRY_MS: Final = 1000
_AFTER: Final = {
    "name": "after",
    "in": "query",
    "description": "the id of the last message that arrived; what changed since comes first",
    "schema": {"type": "string"},
}


class EventStream(Response):
    """One reader's stream, which begins with `hello`; `after` is the number of the last message it has. It
    ends when the reader is not `welcome` any more."""

    media_type = "text/event-stream"

    def __init__(
        self,
        snapshots: Snapshots,
        hello: bytes,
        after: int,
        stopping: asyncio.Event,
        welcome: Callable[[], bool],
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._snapshots = snapshots
        self._hello = hello
        self._after = after
        self._stopping = stopping
        self._welcome = welcome

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._snapshots.watched():
            tasks = [
                asyncio.create_task(part, name="drakkar event stream")
                for part in (self._write(send), _until_gone(receive), self._until_stopped())
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        writing, gone, _ = tasks
        error = None if writing.cancelled() else writing.exception()
        if error is not None and not isinstance(error, TimeoutError):
            raise error
        if gone.cancelled():
            await _hang_up(scope, receive)

    async def _write(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await self._send(send, head)
        await self._send_body(send, b"retry: %d\n\n" % _RETRY_MS + self._hello)
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        while self._welcome():
            await self._snapshots.look()
            for number, message in self._snapshots.newer_than(self._after):
                await self._send_body(send, message)
                self._after, sent_at = number, loop.time()
            if loop.time() - sent_at >= BEAT_SECONDS:
                await self._send_body(send, self._snapshots.beat())
                sent_at = loop.time()
            await asyncio.sleep(LOOK_SECONDS)

    async def _send_body(self, send: Send, body: bytes) -> None:
        await self._send(send, {"type": "http.response.body", "body": body, "more_body": True})

    async def _send(self, send: Send, message: dict[str, object]) -> None:
        async with asyncio.timeout(SLOW_SECONDS):
            await send(message)

    async def _until_stopped(self) -> None:
        await self._stopping.wait()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _hang_up(scope: Scope, receive: Receive) -> None:
    """End the connection without waiting for what was not taken. A stream has no other end, and its reader
    knows what it has."""
    abort: Callable[[], None] = scope["state"]["abort"]
    abort()
    await _until_gone(receive)


def stream_router(snapshots: Snapshots, tickets: Tickets | None) -> APIRouter:
    router = APIRouter(prefix="/api/v1")

    @router.get(
        "/events",
        summary="What the pages show, as server-sent events",
        response_class=Response,
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            503: {"description": "Too many streams are open"},
        },
        openapi_extra={"parameters": [_AFTER]},
    )
    async def events(request: Request) -> Response:
        if snapshots.watchers >= MAX_STREAMS:
            return JSONResponse({"error": "too many pages look at this worker"}, status_code=503)
        last = request.query_params.get("after") or request.headers.get("last-event-id", "")
        number = number_in(last, snapshots.instance)
        hello = snapshots.hello(tickets is not None)
        ticket = None if tickets is None else request.cookies.get(tickets.cookie)

        def welcome() -> bool:
            # Who has no ticket that counts came with the token itself.
            return tickets is None or ticket is None or tickets.holds(ticket)

        return EventStream(snapshots, hello, number, request.state.stopping, welcome)

    return router


def number_in(last: str, instance: str) -> int:
    """The number of a message of `instance`; 0 for one of another start, and for what is no such number."""
    whose, _, number = last.partition(".")
    is_number = number.isascii() and number.isdigit() and len(number) < 16
    return int(number) if whose == instance and is_number else 0
