"""Reading what a server sends, however much or little that is."""

import socket
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from drakkar_etcd._answers import UnansweredError

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""An answer, or a line of a watch, that is longer is not read to its end: whoever is at an address must not
fill our memory."""

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


async def body_of(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        _check_length(body)
    return bytes(body)


async def lines_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    left = bytearray()
    async for piece in response.content.iter_any():
        first, *lines = piece.split(b"\n")
        left += first
        _check_length(left)
        for line in lines:
            yield bytes(left)
            left = bytearray(line)
    if left:  # 3.4 ends an error without a line break
        yield bytes(left)


def _check_length(read: bytearray) -> None:
    if len(read) > MAX_ANSWER_BYTES:
        raise UnansweredError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")


def notice_dead_peers(response: aiohttp.ClientResponse) -> None:
    """Have the kernel look whether the other end is still there; a stream alone would never tell."""
    connection = response.connection
    sock = connection.transport.get_extra_info("socket") if connection and connection.transport else None
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if (option := getattr(socket, name, None)) is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
