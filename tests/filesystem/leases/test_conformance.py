"""The checks of every lease backend, over a folder."""

from pathlib import Path

import pytest
from drakkar.leases import testkit
from drakkar_filesystem.testing import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store({"dir": str(tmp_path / "fleet")})


@pytest.mark.parametrize("check", testkit.LEASE_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_leases(check: testkit.LeaseCheck, store: Store) -> None:
    await check(store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)
