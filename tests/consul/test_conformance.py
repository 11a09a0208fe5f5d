"""The checks of every provider and every lease backend, over a real agent."""

import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

import pytest
from drakkar.fleet import testkit
from drakkar.leases import testkit as lease_testkit
from drakkar_consul.testing import Store
from support.consul_servers import agent
from support.side_by_side import side_by_side

READING = [testkit.check_list_shape, testkit.check_age_is_none_or_non_negative]


@pytest.mark.parametrize("check", testkit.PUBLISHING_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_publishing(check: testkit.PublishingCheck, store: Store) -> None:
    await check(store.make_provider, store.advance, 600)


@pytest.mark.parametrize("check", READING, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_reading(
    check: Callable[..., Coroutine[Any, Any, None]], store: Store
) -> None:
    await check(store.make_provider(), testkit.make_context("worker-1"))


@pytest.fixture(scope="session")
def lease_checks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[pytest.Item], None]]:
    """They wait for real sessions to run out, so they do that together."""
    with agent(tmp_path_factory.mktemp("consul-leases")) as server:

        async def play(params: Mapping[str, Any]) -> None:
            store = Store({"address": server.address, "prefix": f"fleet-{secrets.token_hex(4)}"})
            await params["check"](store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)

        with side_by_side(request, test_it_passes_the_checks_of_leases.__name__, play) as wait_for:
            yield wait_for


@pytest.mark.parametrize("check", lease_testkit.LEASE_CHECKS, ids=lambda check: check.__name__)
def test_it_passes_the_checks_of_leases(
    request: pytest.FixtureRequest,
    lease_checks: Callable[[pytest.Item], None],
    check: lease_testkit.LeaseCheck,
) -> None:
    lease_checks(request.node)
