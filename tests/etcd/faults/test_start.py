"""What is at the address when a worker starts: nothing of it may keep the worker out for good."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.testkit import make_card
from support.etcd_servers import Etcd, add_users, single
from support.etcd_workers import Workers
from support.log import RecordingLogger
from support.scripted_server import reply, resetting, serving
from support.servers import free_ports

TIMEOUT_SECONDS = 1.5
LOGIN = {"username": "fleet", "password": "fleet"}


@contextmanager
def at(url: str) -> Iterator[str]:
    yield url


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server of something else; None: one that shows a page."""
    with serving(reply(b"<h1>Hm?</h1>", "404 Not Found") if answer is None else _sending(answer)) as server:
        yield server.url.rstrip("/")


def _sending(answer: bytes) -> Callable[[Callable[[bytes], None]], None]:
    return lambda send: send(answer)


PLACES: dict[str, tuple[Callable[[], AbstractContextManager[str]], str]] = {
    "nobody": (lambda: at("http://127.0.0.1:1"), "Connection refused"),
    "no such host": (lambda: at("http://no-such-host.invalid:2379"), "http://no-such-host.invalid:2379: "),
    "no HTTP": (lambda: answering(b"-ERR unknown command 'POST'\r\n"), "http://127.0.0.1:"),
    "ends at once": (lambda: answering(b""), "Server disconnected, is it https:// there?"),
    "no words": (
        lambda: answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        "is there an etcd at this address? See fleet.registry.etcd.endpoints",
    ),
    "a page": (
        lambda: answering(None),
        "is there an etcd at this address? See fleet.registry.etcd.endpoints",
    ),
}


@pytest.mark.parametrize("login", [{}, LOGIN], ids=["without a login", "with a login"])
@pytest.mark.parametrize("place", PLACES)
async def test_a_worker_starts_whatever_is_at_the_address_and_says_what(
    workers: Workers, place: str, login: dict[str, str]
) -> None:
    make, told = PLACES[place]
    log = RecordingLogger()
    with make() as endpoint:
        given = {"endpoints": [endpoint], **login}
        registry = await workers.registry("worker-1", given, logger=log, timeout_seconds=TIMEOUT_SECONDS)

        (line,) = log.named("etcd_unreachable")
        assert endpoint in line["error"]
        assert told in line["error"]
        assert "ssl:default" not in line["error"]
        with pytest.raises(OSError, match="etcd"):
            await registry.publish(make_card("worker-1"))


@pytest.mark.parametrize("login", [{}, LOGIN], ids=["without a login", "with a login"])
async def test_a_worker_that_started_before_its_server_is_in_the_fleet_when_it_comes(
    tmp_path: Path, workers: Workers, program: str, login: dict[str, str]
) -> None:
    server = Etcd(tmp_path, program=program, ports=free_ports(2), arguments=["--bcrypt-cost=4"])
    given: dict[str, Any] = {"endpoints": [server.endpoint], "prefix": "/fleet", **login}
    registry = await workers.registry("worker-1", given, timeout_seconds=TIMEOUT_SECONDS)
    try:
        server.start()
        if login:
            add_users(server, "/fleet/")

        await registry.publish(make_card("worker-1"))

        assert [peer.card["worker"] for peer in await registry.list()] == ["worker-1"]
    finally:
        server.kill()


@pytest.mark.parametrize("login", [{}, LOGIN], ids=["without a login", "with a login"])
async def test_a_port_for_other_members_is_told_as_a_wrong_endpoint_and_not_as_a_login(
    tmp_path: Path, workers: Workers, program: str, login: dict[str, str]
) -> None:
    port, peer_port = free_ports(2)
    server = Etcd(tmp_path, program=program, ports=[port, peer_port])
    log = RecordingLogger()
    server.start()
    try:
        await workers.registry(
            "worker-1", {"endpoints": [f"http://127.0.0.1:{peer_port}"], **login}, logger=log
        )
    finally:
        server.kill()

    (line,) = log.named("etcd_unreachable")
    assert line["error"].endswith("is there an etcd at this address? See fleet.registry.etcd.endpoints")


@pytest.mark.parametrize("login", [{}, LOGIN], ids=["without a login", "with a login"])
async def test_https_to_a_server_of_plain_http_says_so(
    tmp_path: Path, workers: Workers, program: str, login: dict[str, str]
) -> None:
    log = RecordingLogger()
    with single(tmp_path, program) as server:
        given = {"endpoints": [f"https://127.0.0.1:{server.port}"], **login}
        await workers.registry("worker-1", given, logger=log)

    (line,) = log.named("etcd_unreachable")
    assert f"https://127.0.0.1:{server.port}: no TLS handshake, is it https:// there?" in line["error"]


@pytest.mark.parametrize("login", [{}, LOGIN], ids=["without a login", "with a login"])
async def test_a_handshake_that_is_cut_off_is_told_as_none(workers: Workers, login: dict[str, str]) -> None:
    """So it looks when a server of plain http gives up before its answer could be read."""
    log = RecordingLogger()
    with resetting() as port:
        await workers.registry("worker-1", {"endpoints": [f"https://127.0.0.1:{port}"], **login}, logger=log)

    (line,) = log.named("etcd_unreachable")
    assert f"https://127.0.0.1:{port}: no TLS handshake, is it https:// there?" in line["error"]
