"""TLS, with certificates on both sides."""

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from drakkar.fleet.provider import ProviderConfigError
from drakkar.fleet.testkit import make_card
from drakkar.leases.backend import Lease
from drakkar_etcd._answers import UnansweredError
from support.certificates import Authority
from support.etcd_servers import Etcd, with_tls
from support.etcd_workers import Workers
from support.servers import running


async def test_client_and_server_know_each_other_by_certificate(
    tmp_path: Path, workers: Workers, program: str
) -> None:
    with with_tls(tmp_path, program) as (server, authority, client):
        given = {
            "endpoints": [server.endpoint],
            "ca_file": authority.ca_file,
            "cert_file": client.cert_file,
            "key_file": client.key_file,
        }
        registry = await workers.registry("worker-1", given)
        await registry.publish(make_card("worker-1"))
        assert [peer.card["worker"] for peer in await registry.list()] == ["worker-1"]
        leases = await workers.leases("worker-1", given)
        assert isinstance(await leases.acquire("gc-leader"), Lease)

        for wrong, told in (
            ({"ca_file": Authority(tmp_path / "other").ca_file}, "certificate verify failed"),
            ({"ca_file": ""}, "certificate verify failed"),
            ({"endpoints": [f"https://127.0.0.2:{server.port}"]}, "127.0.0.2"),
            ({"cert_file": "", "key_file": ""}, "etcd"),
        ):
            await expect_unanswered(workers, given | wrong, told)


async def expect_unanswered(workers: Workers, given: dict[str, Any], told: str) -> None:
    registry = await workers.registry("worker-2", given, timeout_seconds=3)
    with pytest.raises(UnansweredError, match=told) as failed:
        await registry.list()
    assert "\n" not in str(failed.value)


async def test_an_authority_alone_is_enough_where_the_server_asks_for_no_certificate(
    tmp_path: Path, workers: Workers, program: str
) -> None:
    authority = Authority(tmp_path / "certificates")
    certificate = authority.issue()
    arguments = [f"--cert-file={certificate.cert_file}", f"--key-file={certificate.key_file}"]
    server = Etcd(
        tmp_path / "etcd",
        program=program,
        arguments=arguments,
        tls=ssl.create_default_context(cafile=authority.ca_file),
    )
    with running(server):
        registry = await workers.registry(
            "worker-1", {"endpoints": [server.endpoint], "ca_file": authority.ca_file}
        )
        await registry.publish(make_card("worker-1"))
        assert len(await registry.list()) == 1


@pytest.mark.parametrize(
    ("option", "content"),
    [
        (option, content)
        for option in ("ca_file", "cert_file", "key_file")
        for content in (None, "no certificate and no key")
    ],
)
async def test_a_file_that_cannot_be_used_is_told_at_the_start(
    tmp_path: Path, workers: Workers, option: str, content: str | None
) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue()
    given: dict[str, Any] = {
        "endpoints": ["https://127.0.0.1:1"],
        "ca_file": authority.ca_file,
        "cert_file": certificate.cert_file,
        "key_file": certificate.key_file,
        option: tmp_path / "wrong",
    }
    if content is not None:
        (tmp_path / "wrong").write_text(content)

    with pytest.raises(ProviderConfigError, match=rf"fleet\.registry\.etcd\.{option} cannot be used: \S+"):
        await workers.registry("worker-1", given)
    with pytest.raises(ValueError, match=rf"fleet\.registry\.etcd\.{option} cannot be used: \S+"):
        await workers.leases("worker-1", given)


async def test_a_key_that_needs_a_password_does_not_ask_for_it_on_the_terminal(
    tmp_path: Path, workers: Workers
) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue()
    key = serialization.load_pem_private_key(certificate.key_file.read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "encrypted.key").write_bytes(encrypted)

    with pytest.raises(ProviderConfigError, match=r"\.key_file cannot be used: it is encrypted"):
        await workers.registry(
            "worker-1",
            {
                "endpoints": ["https://127.0.0.1:1"],
                "cert_file": certificate.cert_file,
                "key_file": tmp_path / "encrypted.key",
            },
        )
