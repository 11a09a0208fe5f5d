"""The server at its stop: clients that do nothing, or nothing any more, cannot hold it."""

import asyncio
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.worker import Worker
from support.scripted import Script, hangs, stranger
from support.waiting import until
from support.workers import get, is_free, make_worker, other_tasks, rows

LIMIT_SECONDS = 10
"""Several times the grace that the server gives."""


@contextmanager
def connection(worker: Worker, *, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    with socket.socket() as client:
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(LIMIT_SECONDS)
        client.connect(("127.0.0.1", worker.served.port))
        client.setblocking(False)
        yield client


def open_sockets() -> set[int]:
    """The descriptors of this process that are sockets."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            if stat.S_ISSOCK(path.stat().st_mode):
                found.add(int(path.name))
    return found


async def is_closed(client: socket.socket) -> bool:
    """Whether the other side has closed the connection; reads whatever came before."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while await loop.sock_recv(client, 1 << 20):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /api/v1/wor",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf",
        b"\x16\x03\x01\x02",
    ],
    ids=["nothing", "half a request", "half a body", "no HTTP"],
)
async def test_a_client_that_sends_no_whole_request_does_not_hold_the_stop(
    script: Script, sent: bytes
) -> None:
    worker = make_worker()
    await worker.start()
    with connection(worker) as client:
        await asyncio.get_running_loop().sock_sendall(client, sent)
        await get(worker)  # the server has seen the other connection
        async with asyncio.timeout(LIMIT_SECONDS):
            await worker.stop()
        assert await is_closed(client)
    assert other_tasks() == set()


async def test_a_client_that_never_reads_does_not_hold_the_stop(script: Script) -> None:
    script.strangers = [stranger(make_card(f"worker-{n}", instance="x" * 3500)) for n in range(2, 500)]
    before = open_sockets()
    worker = make_worker()
    await worker.start()
    await until(lambda: len(worker.peers()) == 498)
    with connection(worker, receive_bytes=4096) as client:
        request = b"GET /api/v1/workers HTTP/1.1\r\nhost: a\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(client, request * 20)
        await until(lambda: any("run_asgi" in repr(task) for task in asyncio.all_tasks()))
        async with asyncio.timeout(LIMIT_SECONDS):
            await worker.stop()
        await asyncio.sleep(0)  # transports close a step after they are told
        assert open_sockets() == before | {client.fileno()}
    assert other_tasks() == set()


async def test_a_connection_that_is_kept_alive_is_closed_at_once(script: Script) -> None:
    worker = make_worker()
    await worker.start()
    with connection(worker) as client:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        assert b"200 OK" in await loop.sock_recv(client, 4096)
        began = time.monotonic()
        await worker.stop()
        assert time.monotonic() - began < 1.5  # less than the grace for requests under way
        assert await is_closed(client)


async def test_refuses_connections_after_the_stop(script: Script) -> None:
    async with make_worker() as worker:
        port = worker.served.port
        assert port is not None
        assert not is_free(port)
    assert is_free(port)


async def test_answers_while_the_store_hangs(script: Script) -> None:
    async with make_worker() as worker, make_worker("worker-2"):
        await until(lambda: len(worker.peers()) == 1)
        script.on |= dict.fromkeys(("publish", "list"), hangs)
        before = len(script.calls)
        await until(lambda: len(script.calls) > before + 2)
        async with asyncio.timeout(0.9):  # less than the time limit of the hanging call
            assert [row["worker_name"] for row in await rows(worker)] == ["worker-1", "worker-2"]
        script.on.clear()


@pytest.mark.parametrize(
    "headers", [b"x: " + b"a" * 200_000, b"\r\n".join(b"x%d: a" % n for n in range(50_000))]
)
async def test_refuses_a_request_whose_headers_are_too_large(script: Script, headers: bytes) -> None:
    async with make_worker() as worker:
        with connection(worker) as client:
            loop = asyncio.get_running_loop()
            request = b"GET /healthz HTTP/1.1\r\nhost: a\r\n" + headers + b"\r\n\r\n"
            sending = asyncio.create_task(loop.sock_sendall(client, request))
            answer = await loop.sock_recv(client, 4096)
            assert answer.startswith(b"HTTP/1.1 400")
            await asyncio.wait({sending})
            sending.exception()
        assert (await get(worker, "healthz")).status_code == 200
