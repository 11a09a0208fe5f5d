"""An agent as a follower that was cut off shows it, and a network that holds up one request: a proxy for HTTP
in front of a real agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class StaleReads:
    """Forwards each request on a connection of its own, but for what it was told of."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.old: dict[str, bytes] = {}
        """By path, what is answered to a GET that does not ask for what is certain."""

        self.port = 0
        self.held_up = asyncio.Event()
        """Set once a request is being held up."""

        self._holds_up = b""
        self._go_on = asyncio.Event()
        self._delivered = asyncio.Event()

    async def answer_now(self, path: str) -> dict[str, bytes]:
        """What the agent answers to a GET of `path`, to be put into `old` later."""
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        return {path: await self._forward(request.encode())}

    def hold_up(self, word: bytes) -> None:
        """Keep the next request in which `word` is from the agent until `deliver`."""
        self._holds_up = word

    async def deliver(self) -> None:
        """Let it through; return when the agent has answered it."""
        self._go_on.set()
        await self._delivered.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = await reader.readexactly(_length(head))
                method, target = head.split(b" ")[:2]
                path, _, query = target.decode().partition("?")
                if method == b"GET" and path in self.old and "consistent" not in query:
                    writer.write(self.old[path])
                    continue
                if self._holds_up and self._holds_up in body:
                    self._holds_up = b""
                    self.held_up.set()
                    await self._go_on.wait()
                    await self._forward(head + body)
                    self._delivered.set()
                    return
                writer.write(await self._forward(head + body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            return head + await reader.readexactly(_length(head))
        finally:
            writer.close()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


@asynccontextmanager
async def stale_reads(target_port: int) -> AsyncIterator[StaleReads]:
    made = StaleReads(target_port)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made
