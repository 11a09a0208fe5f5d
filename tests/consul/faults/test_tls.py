"""TLS, with certificates of both sides by an authority that the system does not know."""

import asyncio
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from drakkar.fleet.testkit import make_card, make_context
from drakkar_consul._client import ConsulClient, ConsulError
from drakkar_consul.registry import ConsulRegistry
from drakkar_consul.settings import read_settings
from support.certificates import Authority, Certificate
from support.consul_servers import Consul, with_tls

Secured = tuple[Consul, Authority, Certificate]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with with_tls(tmp_path_factory.mktemp("consul-tls")) as made:
        yield made


async def published(options: dict[str, object]) -> list[str]:
    provider = ConsulRegistry(options)
    try:
        await provider.start(make_context("worker-1"))
        await provider.publish(make_card("worker-1"))
        return [peer.card["worker"] for peer in await provider.list()]
    finally:
        await provider.stop()


def all_options(secured: Secured) -> dict[str, object]:
    server, authority, certificate = secured
    return {
        "address": server.address,
        "ca_file": str(authority.ca_file),
        "cert_file": str(certificate.cert_file),
        "key_file": str(certificate.key_file),
    }


async def test_it_shows_its_certificate_and_looks_at_that_of_the_agent(secured: Secured) -> None:
    assert await published(all_options(secured)) == ["worker-1"]


@pytest.mark.parametrize("missing", ["ca_file", "cert_file"])
async def test_it_fails_without_either(secured: Secured, missing: str) -> None:
    options = all_options(secured)
    del options[missing]
    if missing == "cert_file":
        del options["key_file"]

    with pytest.raises(ConsulError, match=rf"; see fleet\.registry\.consul\.{missing}$"):
        await published(options)


async def test_it_does_not_trust_another_authority(secured: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")

    with pytest.raises(
        ConsulError, match=r"certificate verify failed.*; see fleet\.registry\.consul\.ca_file$"
    ):
        await published({**all_options(secured), "ca_file": str(other.ca_file)})


@pytest.mark.parametrize("key", ["ca_file", "cert_file", "key_file"])
def test_a_file_that_is_no_certificate_is_named_by_its_option(
    secured: Secured, tmp_path: Path, key: str
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("garbage")
    shown = "cert_file" if key == "key_file" else key

    with pytest.raises(ValueError, match=rf"fleet\.registry\.consul\.{shown} .*cannot be used"):
        ConsulRegistry({**all_options(secured), key: str(bad)})


@pytest.mark.parametrize("key", ["ca_file", "cert_file", "key_file"])
def test_a_file_that_is_not_there_is_named_with_its_path(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match="cannot be used") as refused:
        ConsulRegistry({**all_options(secured), key: "none.pem"})

    path = tmp_path / "none.pem"
    assert (
        str(refused.value) == f"fleet.registry.consul.{key} cannot be used: {path}: No such file or directory"
    )


def test_a_key_with_a_passphrase_is_named_and_asks_nobody_for_it(secured: Secured, tmp_path: Path) -> None:
    _, _, certificate = secured
    key = serialization.load_pem_private_key(certificate.key_file.read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "encrypted.key").write_bytes(encrypted)

    with pytest.raises(ValueError, match=r"fleet\.registry\.consul\.key_file cannot be used: .*is encrypted"):
        ConsulRegistry({**all_options(secured), "key_file": str(tmp_path / "encrypted.key")})


def test_a_stop_amid_a_blocking_query_leaves_no_connection_open(secured: Secured) -> None:
    """The agent says no good-bye to a connection while it is busy with the query."""

    async def cut_off() -> None:
        client = ConsulClient(read_settings(all_options(secured)), connections=1)
        try:
            index = (await client.tree("drakkar/")).index
            await client.tree_after("drakkar/", index - 1, 30)  # so that there is a connection
            async with asyncio.timeout(0.5):
                await client.tree_after("drakkar/", index, 30)
        finally:
            await client.close()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(TimeoutError):
            asyncio.run(cut_off())
        gc.collect()

    assert [str(warning.message) for warning in caught] == []


def test_files_are_not_looked_at_before_a_half_is_made(secured: Secured) -> None:
    assert read_settings({**all_options(secured), "ca_file": "/does/not/exist"}).tls
