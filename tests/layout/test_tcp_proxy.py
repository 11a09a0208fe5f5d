"""The network that the tests of the stores fail on command does what its verbs say."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from support.tcp_proxy import TcpProxy, Verb, proxy_to


@pytest.fixture
def server() -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each message with itself; its port, and what has arrived."""
    arrived: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(100):
                    arrived.append(data)
                    connection.sendall(data)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[connection], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1], arrived
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def arrived(server: tuple[int, list[bytes]]) -> list[bytes]:
    return server[1]


@pytest.fixture
def proxy(server: tuple[int, list[bytes]]) -> Iterator[TcpProxy]:
    with proxy_to(server[0]) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: TcpProxy) -> Iterator[socket.socket]:
    with connect(proxy) as client:
        yield client


def connect(proxy: TcpProxy) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    client.sendall(b"hello")
    assert client.recv(100) == b"hello"
    return client


def silent(client: socket.socket, seconds: float) -> bool:
    client.settimeout(seconds)
    try:
        client.recv(100)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)
    return False


@pytest.mark.parametrize("verb", [Verb.DELAY_REQUESTS, Verb.DELAY_REPLIES])
def test_a_delay_holds_the_direction_that_it_names(
    proxy: TcpProxy, client: socket.socket, arrived: list[bytes], verb: Verb
) -> None:
    proxy.set(verb, 0.5)
    began = time.monotonic()
    client.sendall(b"late")
    assert silent(client, 0.2)
    assert (b"late" in arrived) is (verb is Verb.DELAY_REPLIES)
    assert client.recv(100) == b"late"
    assert time.monotonic() - began >= 0.5


def test_a_lost_reply_was_a_request_that_arrived(
    proxy: TcpProxy, client: socket.socket, arrived: list[bytes]
) -> None:
    proxy.set(Verb.LOSE_REPLIES)
    client.sendall(b"once")
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    assert b"once" in arrived


def test_a_black_hole_holds_all_until_it_ends(
    proxy: TcpProxy, client: socket.socket, arrived: list[bytes]
) -> None:
    proxy.set(Verb.BLACK_HOLE)
    client.sendall(b"later")
    assert silent(client, 0.2)
    assert b"later" not in arrived
    proxy.set(Verb.PASS)
    assert client.recv(100) == b"later"


def test_a_cut_resets_what_there_is_and_lets_new_connections_in(
    proxy: TcpProxy, client: socket.socket
) -> None:
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    connect(proxy).close()
    assert proxy.accepted == 2


def test_a_refusal_lasts_until_the_verb_changes(proxy: TcpProxy, client: socket.socket) -> None:
    proxy.set(Verb.REFUSE)
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.set(Verb.PASS)
    connect(proxy).close()
