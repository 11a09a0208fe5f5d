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
            if delayed is Verb.DELAY_REQUESTS and b"/kv/txn" in data:
                await asyncio.sleep(self.late_seconds)
            writer.write(data)
            await writer.drain()


P = TypeVar("P", bound=TcpProxy)


@contextmanager
def link(proxy: P) -> Iterator[P]:
    """`proxy`, started, and stopped afterwards."""
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
