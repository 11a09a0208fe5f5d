"""The checks of lease backends that assign, over assignments that are all to one worker."""

import pytest
from drakkar.leases import testkit
from drakkar_static.testing import Store


@pytest.mark.parametrize("check", testkit.ASSIGNED_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_assigned_leases(check: testkit.LeaseCheck) -> None:
    store = Store({})
    await check(store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)
