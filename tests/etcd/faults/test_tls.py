"""TLS, with certificates on both sides."""

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from drakkar.fleet.testkit import make_card
from drakkar.leases.backend import Lease
from drakkar_etcd import make_registry
from drakkar_etcd._answers import UnansweredError
from support.certificates import Authority
from support.commands import DRAKKAR, LIMIT_SECONDS
from support.etcd_servers import Etcd, with_tls
from support.etcd_workers import Workers
from support.servers import running

NO_FILES = {"ca_file": "", "cert_file": "", "key_file": ""}


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
            (
                {"ca_file": Authority(tmp_path / "other").ca_file},
                r"certificate verify failed.*; see fleet\.registry\.etcd\.ca_file$",
            ),
            ({"ca_file": ""}, r"certificate verify failed.*; see fleet\.registry\.etcd\.ca_file$"),
            ({"endpoints": [f"https://127.0.0.2:{server.port}"]}, "127.0.0.2"),
            ({"cert_file": "", "key_file": ""}, r"; see fleet\.registry\.etcd\.cert_file$"),
            (
                {"endpoints": [f"http://127.0.0.1:{server.port}"], **NO_FILES},
                r"is it https:// there\? See fleet\.registry\.etcd\.endpoints$",
            ),
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
def test_a_file_that_cannot_be_used_is_told_when_a_half_is_made(
    tmp_path: Path, option: str, content: str | None
) -> None:
    """So that `drakkar config check` tells it, too."""
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

    for make in (make_registry, make_registry.lease_backend):
        with pytest.raises(ValueError, match=rf"fleet\.registry\.etcd\.{option} cannot be used: ") as told:
            make(given)
        assert f"cannot be used: {tmp_path / 'wrong'}: " in str(told.value)
        assert str(told.value).isprintable()


def test_check_tells_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    wrong = {
        "DK_FLEET__REGISTRY__PROVIDER": "etcd",
        "DK_FLEET__REGISTRY__ETCD__ENDPOINTS": "https://127.0.0.1:1",
        "DK_FLEET__REGISTRY__ETCD__CA_FILE": str(tmp_path / "none.pem"),
    }
    ended = subprocess.run(
        [DRAKKAR, "config", "check"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "DK_STORAGE__DIR": "", **wrong},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )

    assert ended.returncode == 2
    assert (
        f"fleet.registry.etcd.ca_file cannot be used: {tmp_path / 'none.pem'}: No such file" in ended.stderr
    )
    assert len(ended.stderr.splitlines()) == 1


def test_a_key_that_needs_a_password_does_not_ask_for_it_on_the_terminal(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue()
    key = serialization.load_pem_private_key(certificate.key_file.read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "encrypted.key").write_bytes(encrypted)

    with pytest.raises(ValueError, match=r"\.key_file cannot be used: \S+: it is encrypted"):
        make_registry(
            {
                "endpoints": ["https://127.0.0.1:1"],
                "cert_file": certificate.cert_file,
                "key_file": tmp_path / "encrypted.key",
            }
        )
