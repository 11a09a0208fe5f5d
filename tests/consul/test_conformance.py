"""The checks of every provider and every lease backend, over a real agent."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from drakkar.fleet import testkit
from drakkar.leases import testkit as lease_testkit
from drakkar_consul.testing import Store

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
def test_it_passes_the_checks_of_leases(
    request: pytest.FixtureRequest,
    lease_checks: Callable[[pytest.Item], None],
    check: lease_testkit.LeaseCheck,
) -> None:
    """They wait for real sessions to run out, and began to do that with the first test of all."""
    lease_checks(request.node)
