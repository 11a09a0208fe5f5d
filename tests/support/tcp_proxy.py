"""A network that fails on command: a TCP proxy to put in front of one process alone.

It runs in a thread of its own, so that a test that blocks does not hold up the network.
"""

import asyncio
import enum
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from support.servers import free_ports


class Verb(enum.Enum):
    """What becomes of what is under way."""

    PASS = enum.auto()
    DELAY_REQUESTS = enum.auto()
    """Held for some seconds on the way to the server."""

    DELAY_REPLIES = enum.auto()
    """The server has them at once; its answers are held for some seconds."""

    LOSE_REPLIES = enum.auto()
    """The server has the request; the connection is cut when it answers."""

    BLACK_HOLE = enum.auto()
    """Nothing arrives on either side until the verb changes, as when a cable is out."""

    REFUSE = enum.auto()
    """Connections are cut, and nobody listens any more."""


class TcpProxy:
    """Listens on a port of loopback and forwards to another. Its methods may be called from any thread."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        [self.port] = free_ports(1)
        self.accepted = 0
        """How many connections were made so far."""

        self._verb = Verb.PASS
        self._seconds = 0.0
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, asyncio.StreamWriter | None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy")

    def start(self) -> None:
        self._thread.start()
        self._run(self._listen())

    def stop(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set(self, verb: Verb, seconds: float = 0.0) -> None:
        """From now on, and for what is held at this moment: `PASS` lets it go."""
        self._run(self._set(verb, seconds))

    def cut(self) -> None:
        """Reset every connection there is; new ones are as the verb says."""
        self._run(self._cut())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _set(self, verb: Verb, seconds: float) -> None:
        self._verb, self._seconds = verb, seconds
        self._changed.set()
        self._changed = asyncio.Event()
        if verb is Verb.REFUSE:
            await self._refuse()
        elif self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _refuse(self) -> None:
        if self._server is not None:
            for listening in self._server.sockets:
                self._loop.remove_reader(listening.fileno())
            await self._take_turns()  # a server that is closed while it accepts somebody leaves a socket open
            self._server.close()
            self._server = None
        await self._cut()

    async def _end(self) -> None:
        await self._refuse()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        await self._take_turns()  # so that transports which were closed let go of their sockets

    async def _cut(self) -> None:
        await self._take_turns()
        links = dict(self._links)
        for task, ends in links.items():
            for writer in filter(None, ends):
                reset(writer)
            task.cancel()
        if links:
            await asyncio.wait(links)

    async def _take_turns(self) -> None:
        """Let what was accepted a moment ago become a link."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = (writer, None)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._link(task, reader, writer)
        finally:
            for end in filter(None, self._links.pop(task)):
                end.close()

    async def _link(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._links[task] = (writer, up_writer)
        pumps = [
            asyncio.create_task(self._pump(reader, up_writer, Verb.DELAY_REQUESTS)),
            asyncio.create_task(self._pump(up_reader, writer, Verb.DELAY_REPLIES)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delayed: Verb) -> None:
        """Forward in one direction until either side ends; in order, each piece after its own delay."""
        while data := await reader.read(65536):
            arrived = self._loop.time()
            while (held := self._held(delayed, arrived)) is None or held > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(held):
                        await self._changed.wait()
            if self._verb is Verb.LOSE_REPLIES and delayed is Verb.DELAY_REPLIES:
                reset(writer)
                return
            writer.write(data)
            await writer.drain()

    def _held(self, delayed: Verb, arrived: float) -> float | None:
        """For how much longer a piece is held; None: until the verb changes."""
        if self._verb is Verb.BLACK_HOLE:
            return None
        return arrived + self._seconds - self._loop.time() if self._verb is delayed else 0.0


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection at once, and let the other side see that it was cut."""
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is not None and not writer.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextmanager
def proxy_to(port: int) -> Iterator[TcpProxy]:
    """A proxy in front of a port of this machine, passing everything at first."""
    proxy = TcpProxy(port)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
