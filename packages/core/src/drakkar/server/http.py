"""The HTTP server inside somebody else's event loop: no signal handlers, no log configuration, a bounded
stop."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_GRACE_SECONDS: Final = 2
"""How long requests that are under way at the stop may take to end; a stream never does by itself."""


class _EmbeddedServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the program that we are part of


class _SilentProtocol(H11Protocol):
    """Without an access log. Uvicorn's own switch would take the handlers off the logger `uvicorn.access`,
    which may be in use by the program that we are part of."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # uvicorn's arguments, whatever they become
        super().__init__(*args, **kwargs)
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}


class HttpServer:
    """Serves `app` on a listening socket, which it owns from then on.

    A handler that would not end by itself finds in the state of its request `stopping`, an event that is set
    when the server stops, and `abort`, which ends its connection at once.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._stopping = asyncio.Event()

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"]["stopping"] = self._stopping
            await app(scope, receive, send)

        self._server = _EmbeddedServer(
            uvicorn.Config(
                serve,
                http=_SilentProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_SECONDS + 1,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when requests are answered."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="drakkar server")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RuntimeError("the HTTP server ended while it started")
            await asyncio.sleep(0.005)  # uvicorn has no event for it

    async def stop(self) -> None:
        """Close the listener, let requests under way end for `_GRACE_SECONDS`, close what is left."""
        self._server.should_exit = True
        self._stopping.set()
        if self._task is None:
            self._listener.close()
            return
        await asyncio.wait({self._task}, timeout=_GRACE_SECONDS)
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()  # a client that never reads; its handler ends as after a disconnect
        await asyncio.wait({self._task}, timeout=_GRACE_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task})
