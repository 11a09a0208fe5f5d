"""The connection to a peer: nothing of it is left, whenever it is given up, and no name holds up others."""

import asyncio
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h11
import pytest
from drakkar.cache import connection
from drakkar.cache.connection import PeerConnection
from support.caches import Puller, a_peer, a_row, open_cache, page_of
from support.certificates import Authority
from support.scripted_server import reply, serving
from support.waiting import until

EMPTY = reply(page_of([]))


async def no_tls() -> ssl.SSLContext:
    raise AssertionError("not asked for")


class Counting:
    """A server that says nothing, and knows how many connections it has."""

    def __init__(self, listener: socket.socket) -> None:
        self.port = listener.getsockname()[1]
        self.open = self.seen = 0
        self._lock = threading.Lock()
        self._listener = listener

    def accept(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.open += 1
                self.seen += 1
            threading.Thread(target=self._hold, args=[taken], daemon=True).start()

    def _hold(self, taken: socket.socket) -> None:
        with taken, suppress(OSError):
            while taken.recv(65536):
                pass
        with self._lock:
            self.open -= 1


@contextmanager
def silent() -> Iterator[Counting]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        counting = Counting(listener)
        thread = threading.Thread(target=counting.accept, daemon=True)
        thread.start()
        yield counting
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_peer_that_says_nothing_costs_no_socket(tmp_path: Path, scheme: str) -> None:
    with silent() as server:
        async with open_cache(tmp_path) as service:
            url = f"{scheme}://127.0.0.1:{server.port}/"
            peers = [a_peer(url, f"worker-{number}") for number in range(2, 12)]
            puller = Puller(service, *peers, timeout_seconds=0.5)
            await puller.cycle()
            assert puller.outcomes() == {"timeout": 10}
            assert server.seen > 0
            await until(lambda: server.open == 0)


async def test_peers_are_asked_whatever_was_cancelled_before_and_when(tmp_path: Path) -> None:
    rng = random.Random(7)
    with silent() as server, serving(reply(page_of([a_row("a", origin_worker_id="worker-3")]))) as sound:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, timeout_seconds=60)
            client = puller.exchange._client
            for _ in range(500):
                client._timeout_seconds = rng.uniform(0, 0.004)
                puller.peers = [a_peer(f"http://127.0.0.1:{server.port}/")]
                puller.exchange._states.clear()
                await puller.cycle()
            assert puller.outcomes() == {"timeout": 500}
            client._timeout_seconds = 60
            puller.peers = [a_peer(sound.url, "worker-3")]
            await puller.cycle()
            assert await service.cache.get("a") == "x"
        await until(lambda: server.open == 0)


async def test_it_is_made_anew_when_the_peer_has_closed_it() -> None:
    with serving(EMPTY) as server:
        peer = PeerConnection(server.url, no_tls)
        for _ in range(3):
            status, headers = await peer.ask("scopes=global")
            assert (status, headers[b"connection"]) == (200, b"close")
            while await peer.piece():
                pass
        peer.close()
        peer.close()
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("path", "target"), [("", "/?q"), ("a%20b/ä", "/a%20b/%C3%A4?q"), ("a;b,c=d/+", "/a;b,c=d/+?q")]
)
async def test_the_path_of_an_address_is_kept(path: str, target: str) -> None:
    with serving(EMPTY) as server:
        peer = PeerConnection(server.url + path, no_tls)
        await peer.ask("q")
        peer.close()
    [asked] = server.requests
    assert asked.startswith(f"GET {target} HTTP/1.1\r\nHost: {server.url[7:-1]}\r\n")


async def test_others_have_their_turn_between_two_heads() -> None:
    """A peer may say `103 Early Hints` without end, and each time with as many headers as there may be."""
    hint = b"HTTP/1.1 103 Early Hints\r\n" + b"a:b\r\n" * 100 + b"\r\n"
    turns = 0
    seen = []

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def answer(send: Callable[[bytes], None]) -> None:
        send(hint * 100)
        EMPTY(send)

    with serving(answer) as server:
        peer = PeerConnection(server.url, no_tls)
        following = peer._next

        async def next_event() -> Any:
            event = await following()
            seen.append(turns)
            return event

        peer._next = next_event  # type: ignore[method-assign]
        others = asyncio.create_task(take_turns())
        assert (await peer.ask("q"))[0] == 200
        others.cancel()
        peer.close()
    assert len(set(seen)) == len(seen) == 101


async def test_a_head_that_takes_long_to_read_is_refused() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"a:b\r\n" * 12_000 + b"\r\n"
    with serving(lambda send: send(head)) as server:
        peer = PeerConnection(server.url, no_tls)
        with pytest.raises(h11.RemoteProtocolError):
            await peer.ask("q")
        peer.close()


@pytest.mark.parametrize("url", ["http://a..b/", f"http://{'x' * 64}.example/", "http://127.0.0.1:0/"])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    peer = PeerConnection(url, no_tls)
    with pytest.raises((ValueError, OSError)):
        await peer.ask("q")
    peer.close()


async def test_a_peer_may_answer_at_any_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `localhost` of two protocols, or a name with an address of a network that leads nowhere."""
    monkeypatch.setattr(connection, "_NEXT_ADDRESS_SECONDS", 0.1)
    with serving(EMPTY) as server, socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        port = int(server.url.rsplit(":")[-1].strip("/"))
        addresses = [("127.0.0.1", 1), full.getsockname(), ("127.0.0.1", port), ("127.0.0.1", 2)]

        def look_up(host: str, *_: object, **keys: Any) -> list[Any]:
            if keys.get("flags"):
                raise socket.gaierror
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        peer = PeerConnection("http://worker-2.example/", no_tls)
        assert (await peer.ask("q"))[0] == 200
        peer.close()
        for one in waiting:
            one.close()
    assert "Host: worker-2.example\r\n" in server.requests[0]


@pytest.mark.parametrize("name", ["127.0.0.1", "worker-2"])
async def test_certificates_are_checked(tmp_path: Path, name: str) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert_file, certificate.key_file)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def trust() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(authority.ca_file))

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    peer = PeerConnection(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", trust)
    if name == "127.0.0.1":
        assert (await peer.ask("q"))[0] == 200
        assert await peer.piece() == b"ok"
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            await peer.ask("q")
    peer.close()
    server.close()


async def test_what_was_sent_too_much_is_not_the_next_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left.add(writer)
        with suppress(EOFError, OSError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked = head.split(b" ")[1]
                writer.write(2 * (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(asked), asked)))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        left.discard(writer)

    left = set[asyncio.StreamWriter]()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        peer = PeerConnection(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", no_tls)
        for number in range(3):
            await peer.ask(f"{number}")
            assert await peer.piece() == f"/?{number}".encode()
            assert await peer.piece() == b""
        peer.close()
        await until(lambda: not left)


async def test_names_are_resolved_again_once_the_system_has_threads_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with serving(EMPTY) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        with monkeypatch.context() as lacking:
            lacking.setattr(threading.Thread, "start", fails)
            for _ in range(100):
                with pytest.raises(RuntimeError, match="new thread"):
                    await PeerConnection(url, no_tls).ask("q")
        peer = PeerConnection(url, no_tls)
        assert (await peer.ask("q"))[0] == 200
        peer.close()


async def test_what_comes_before_the_handshake_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is on the way can send it, without any certificate."""
    authority = Authority(tmp_path)
    certificate = authority.issue("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert_file, certificate.key_file)
    has_sent = threading.Event()

    def serve(listener: socket.socket) -> None:
        taken, _ = listener.accept()
        taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        has_sent.set()
        with suppress(OSError), context.wrap_socket(taken, server_side=True) as secured:
            secured.recv(65536)
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue")
            secured.recv(1)

    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def takes_a_while(*arguments: Any, **options: Any) -> Any:
        made = await connect(*arguments, **options)
        await until(has_sent.is_set)
        for _ in range(5):
            await asyncio.sleep(0)
        return made

    async def trust() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(authority.ca_file))

    monkeypatch.setattr(loop, "create_connection", takes_a_while)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener], daemon=True)
        thread.start()
        peer = PeerConnection(f"https://127.0.0.1:{listener.getsockname()[1]}/", trust)
        with suppress(ssl.SSLError):  # to refuse it all is as good
            assert (await peer.ask("q"))[0] == 200
            assert await peer.piece() == b"true"
        peer.close()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


HANGING_NAMES = """
import asyncio, socket, sys, threading
from pathlib import Path
from support.caches import Puller, a_peer, a_row, open_cache, page_of
from support.scripted_server import reply, serving

look_up = socket.getaddrinfo
asked = []
def hangs(host, *args, **keys):
    if host.endswith(".invalid") and not keys.get("flags"):
        asked.append(host)
        threading.Event().wait()
    return look_up(host, *args, **keys)
socket.getaddrinfo = hangs

async def main():
    with serving(reply(page_of([a_row("a")]))) as sound:
        async with open_cache(Path(sys.argv[1])) as service:
            names = [f"worker-{number}" for number in range(100, 200)]
            peers = [a_peer(f"http://{name}.invalid/", name) for name in names]
            puller = Puller(service, *peers, timeout_seconds=0.1)
            await puller.cycle()
            puller.exchange._client._timeout_seconds = 60
            puller.peers = [a_peer(sound.url)]
            await puller.cycle(2)
            assert await service.cache.get("a") == "x", "peers by address are asked all the same"
    print(len(asked), await asyncio.to_thread(lambda: "others have their threads"))

asyncio.run(main())
"""


async def test_names_that_hang_take_nobodys_threads_and_delay_no_end(tmp_path: Path) -> None:
    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", HANGING_NAMES, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    ended = await asyncio.to_thread(run)
    assert (ended.returncode, ended.stderr) == (0, "")
    hanging, _, text = ended.stdout.partition(" ")
    assert text == "others have their threads\n"
    assert 32 < int(hanging) <= 64, "more than there are threads for others, and not ever more"
