"""Agents that the tests of one run share, and a part of them for each test."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from drakkar_consul.testing import Store
from support.consul_servers import Consul, agent
from support.side_by_side import side_by_side

LEASE_TEST: Final = "test_it_passes_the_checks_of_leases"


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


@pytest.fixture(scope="session")
def lease_checks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[pytest.Item], None]]:
    with agent(tmp_path_factory.mktemp("consul-leases")) as server:

        async def play(params: Mapping[str, Any]) -> None:
            store = Store({"address": server.address, "prefix": f"fleet-{secrets.token_hex(4)}"})
            await params["check"](store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)

        with side_by_side(request, LEASE_TEST, play) as wait_for:
            yield wait_for


@pytest.fixture(scope="session", autouse=True)
def begin_what_takes_long(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    if any(isinstance(item, pytest.Function) and item.originalname == LEASE_TEST for item in items):
        request.getfixturevalue("lease_checks")
