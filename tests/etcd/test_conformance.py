"""The checks of every provider and every lease backend, over a real server."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from drakkar.fleet import testkit
from drakkar.leases import testkit as lease_testkit
from drakkar_etcd.testing import Store

READING = [testkit.check_list_shape, testkit.check_age_is_none_or_non_negative]


@pytest.mark.parametrize("check", testkit.PUBLISHING_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_publishing(check: testkit.PublishingCheck, store: Store) -> None:
    await check(store.make_provider, store.advance, 600)


@pytest.mark.parametrize("check", READING, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_reading(
    check: Callable[..., Coroutine[Any, Any, None]], store: Store
) -> None:
    await check(store.make_provider(), testkit.make_context("worker-1"))


@pytest.mark.parametrize("check", lease_testkit.LEASE_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_leases(check: lease_testkit.LeaseCheck, store: Store) -> None:
    await check(store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)
