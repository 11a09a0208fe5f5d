"""The checks of every provider and of every lease backend, over a real server."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from drakkar.fleet import testkit as fleet_testkit
from drakkar.leases import testkit as lease_testkit
from drakkar_redis.testing import Store
from support.redis_servers import RedisServer

READING = [fleet_testkit.check_list_shape, fleet_testkit.check_age_is_none_or_non_negative]


@pytest.fixture
def store(server: RedisServer) -> Store:
    return Store({"url": server.url})


@pytest.mark.parametrize("check", fleet_testkit.PUBLISHING_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_publishing(check: fleet_testkit.PublishingCheck, store: Store) -> None:
    await check(store.make_provider, store.advance, 600)


@pytest.mark.parametrize("check", READING, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_reading(
    check: Callable[..., Coroutine[Any, Any, None]], store: Store
) -> None:
    await check(store.make_provider(), fleet_testkit.make_context("worker-1"))


@pytest.mark.parametrize("check", lease_testkit.LEASE_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_leases(check: lease_testkit.LeaseCheck, store: Store) -> None:
    await check(store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)
