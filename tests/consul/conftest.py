"""Agents that the tests of one run share, and a part of them for each test."""

import secrets
from collections.abc import Iterator

import pytest
from drakkar_consul.testing import Store
from support.consul_servers import Consul, agent


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consul]:
    """For tests that do it no harm."""
    with agent(tmp_path_factory.mktemp("consul")) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """That no other test has."""
    return f"fleet-{secrets.token_hex(4)}"


@pytest.fixture
def options(server: Consul, prefix: str) -> dict[str, object]:
    return {"address": server.address, "prefix": prefix}


@pytest.fixture
def store(options: dict[str, object]) -> Store:
    return Store(options)
