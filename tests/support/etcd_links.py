"""Networks that fail for some requests to etcd alone."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from support.tcp_proxy import TcpProxy, Verb


class DeafWatch(TcpProxy):
    """While `deaf`, no event of a watch gets through; everything else does."""

    deaf = False

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delayed: Verb) -> None:
        while data := await reader.read(65536):
            if not (self.deaf and b'"events"' in data):
                writer.write(data)
                await writer.drain()


class LateTransactions(TcpProxy):
    """Transactions sent while `late_seconds` is above 0 arrive that much later, whatever became of whoever
    sent them; everything else passes."""

    late_seconds = 0.0

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delayed: Verb) -> None:
        while data := await reader.read(65536):
            late_seconds = self.late_seconds if delayed is Verb.DELAY_REQUESTS and b"/kv/txn" in data else 0
            await asyncio.sleep(late_seconds)
            writer.write(data)
            await writer.drain()
            if late_seconds:  # etcd drops the request of a client that hangs up at once
                await asyncio.sleep(0.2)


P = TypeVar("P", bound=TcpProxy)


@contextmanager
def link(proxy: P) -> Iterator[P]:
    """`proxy`, started, and stopped afterwards."""
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
