"""An address that leads to something else than was configured: the start says so, and which option it is."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from drakkar.fleet.provider import ProviderConfigError
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.testkit import make_context
from drakkar_redis._keys import Keys
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from redis.crc import key_slot
from support.certificates import Authority
from support.log import RecordingLogger
from support.redis_servers import (
    ClusterGroup,
    RedisServer,
    SentinelGroup,
    cluster_group,
    redis_server,
    sentinel_group,
)
from support.tcp_proxy import Verb, proxy_to

SLOT = key_slot(Keys("drakkar").token.encode())


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelGroup]:
    with sentinel_group(tmp_path_factory.mktemp("sentinels"), replicas=0) as group:
        yield group


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    with cluster_group(tmp_path_factory.mktemp("cluster")) as group:
        yield group


async def refusal_of(options: dict[str, Any]) -> str:
    """What both halves say that refuse to start for good."""
    provider, backend = RedisRegistry(options), RedisLeases(options)
    try:
        with pytest.raises(ProviderConfigError, match=r"^fleet\.registry\.redis\.[^\n]+$") as one:
            await provider.start(make_card_context("worker-1"))
        with pytest.raises(ValueError, match=r"^fleet\.registry\.redis\.[^\n]+$") as two:
            await backend.start(make_context("worker-1"))
    finally:
        await provider.stop()
        await backend.stop()
    assert str(one.value) == str(two.value)
    return str(one.value)


async def warning_of(options: dict[str, Any], timeout_seconds: float = 5.0) -> str:
    """What both halves say that go on: the one has logged it, and the other is to be started again."""
    provider, backend = RedisRegistry(options), RedisLeases(options)
    log = RecordingLogger()
    try:
        await provider.start(make_card_context("worker-1", logger=log, timeout_seconds=timeout_seconds))
        with pytest.raises((ConnectionError, TimeoutError)) as failure:
            await backend.start(make_context("worker-1", timeout_seconds=timeout_seconds))
    finally:
        await provider.stop()
        await backend.stop()
    (line,) = log.named("fleet_redis_not_reached")
    for said in (line["error"], str(failure.value)):
        assert "\n" not in said
    return f"{line['error']}\n{failure.value}"


async def test_each_member_of_a_cluster_is_told_from_a_server(cluster: ClusterGroup) -> None:
    """That of the fleet's slot, too: it would do until the slot moves."""
    assert cluster.owner(SLOT) in cluster.servers
    for server in cluster.servers:
        said = await refusal_of({"url": server.url})

        assert said.startswith("fleet.registry.redis.cluster: ")
        assert said.endswith("is part of a Cluster: set it to true")


async def test_who_may_not_ask_for_a_cluster_is_told_where_the_slot_is_elsewhere(
    cluster: ClusterGroup,
) -> None:
    owner = cluster.owner(SLOT)
    for server in cluster.servers:
        server.command("ACL", "SETUSER", "poor", "on", ">hunter2", "~*", "&*", "+@all", "-cluster")
        options = {"url": server.url, "username": "poor", "password": "hunter2"}
        if server is not owner:
            assert (await refusal_of(options)).endswith("is part of a Cluster: set it to true")
            continue
        backend = RedisLeases(options)
        await backend.start(make_context("worker-1"))
        await backend.stop()


async def test_a_server_is_told_from_a_cluster(server: RedisServer) -> None:
    said = await refusal_of({"url": server.url, "cluster": True})

    assert said.startswith("fleet.registry.redis.cluster: ")
    assert said.endswith(" is not part of a Cluster")


@pytest.mark.parametrize(("end", "cluster"), [("", False), ("/1", False), ("", True)])
async def test_a_sentinel_is_told_from_a_server(end: str, cluster: bool, sentinels: SentinelGroup) -> None:
    said = await refusal_of({"url": f"redis://127.0.0.1:{sentinels.ports[0]}{end}", "cluster": cluster})

    assert said.startswith("fleet.registry.redis.url: ")
    assert said.endswith("a Sentinel belongs in sentinels, with service_name, in place of url")


async def test_a_server_is_told_from_a_sentinel(server: RedisServer) -> None:
    said = await refusal_of({"sentinels": [f"127.0.0.1:{server.port}"], "service_name": "fleet-master"})

    assert said.startswith("fleet.registry.redis.sentinels: ")
    assert "is no Sentinel" in said


async def test_sentinels_that_do_not_know_the_service_may_come_to_know_it(sentinels: SentinelGroup) -> None:
    said = await warning_of({**sentinels.options, "service_name": "another"})

    for line in said.splitlines():
        assert line.count("has no master of that service_name") == 3
        assert line.startswith("another of the Sentinels ")


async def test_a_login_that_sentinels_refuse_is_not_taken_for_that_to_the_server(
    sentinels: SentinelGroup,
) -> None:
    options = {**sentinels.options, "sentinel_username": "nobody", "sentinel_password": "hunter2"}

    said = await refusal_of(options)

    assert said.startswith("fleet.registry.redis.sentinel_username, sentinel_password: ")
    assert "hunter2" not in said


@asynccontextmanager
async def cutting_server(
    seconds: float, *, reset: bool, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """The port of one that understands nothing of what it gets, and cuts the connection after `seconds`."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        await asyncio.sleep(seconds)
        if reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("seconds", [0, 0.2])
async def test_a_new_connection_that_is_cut_is_a_reason_to_think_of_tls(seconds: float, reset: bool) -> None:
    async with cutting_server(seconds, reset=reset) as port:
        for options, told in (
            ({"url": f"redis://127.0.0.1:{port}"}, "; if it wants TLS, begin url with rediss://"),
            ({"url": f"rediss://127.0.0.1:{port}"}, "; if there is no TLS, begin url with redis://"),
            (
                {"sentinels": [f"127.0.0.1:{port}"], "service_name": "fleet-master"},
                "; if it wants TLS, set ca_file)",
            ),
        ):
            for line in (await warning_of(options)).splitlines():
                assert line.endswith(told), line


@pytest.mark.parametrize("reset", [True, False])
async def test_a_new_connection_that_is_cut_after_the_handshake_is_not_for_want_of_tls(
    reset: bool, authority: Authority
) -> None:
    """As by a server that wants a certificate, when the cut comes before its word for it."""
    certificate = authority.issue()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.cert_file, certificate.key_file)
    async with cutting_server(0, reset=reset, tls=tls) as port:
        options = {"url": f"rediss://localhost:{port}", "ca_file": str(authority.ca_file)}
        for line in (await warning_of(options)).splitlines():
            assert line.endswith("; if it wants a certificate, see fleet.registry.redis.cert_file"), line


async def test_a_port_without_tls_and_one_with_it_are_told_apart(
    server: RedisServer, authority: Authority, tls_port: int
) -> None:
    to_plain = {"url": f"rediss://localhost:{server.port}", "ca_file": str(authority.ca_file)}
    for line in (await warning_of(to_plain, timeout_seconds=1)).splitlines():
        assert line.endswith("did not answer within 0.9 s; if there is no TLS, begin url with redis://")
    for line in (await warning_of({"url": f"redis://localhost:{tls_port}"})).splitlines():
        assert line.endswith("; if it wants TLS, begin url with rediss://")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_port(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    certificate = authority.issue()
    arguments = (
        *("--tls-cert-file", certificate.cert_file, "--tls-key-file", certificate.key_file),
        *("--tls-ca-cert-file", authority.ca_file, "--tls-auth-clients", "no"),
    )
    login = {"ssl": True, "ssl_ca_certs": str(authority.ca_file)}
    with redis_server(tmp_path_factory.mktemp("tls"), *arguments, tls=True, login=login) as server:
        yield server.port


async def test_a_server_that_has_answered_is_not_asked_about_tls_when_it_goes(server: RedisServer) -> None:
    with proxy_to(server.port) as proxy:
        backend = RedisLeases({"url": f"redis://127.0.0.1:{proxy.port}"})
        await backend.start(make_context("worker-1"))
        proxy.set(Verb.LOSE_REPLIES)
        try:
            with pytest.raises(ConnectionError, match=r"(?i)closed|reset|lost") as failure:
                await backend.list()
        finally:
            await backend.stop()

    assert "TLS" not in str(failure.value)
