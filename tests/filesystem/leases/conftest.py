"""A folder for the leases of one test."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from drakkar_filesystem import _holders
from support.lease_folders import LeaseFolder


@pytest.fixture(autouse=True)
def nothing_stays_locked() -> Iterator[None]:
    """The locks of what was stopped with a lease in hand last as long as the process: here, as the test."""
    yield
    while _holders._kept:
        os.close(_holders._kept.pop())


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[LeaseFolder]:
    """A folder that does not exist yet."""
    fleet = LeaseFolder(tmp_path / "fleet")
    yield fleet
    await fleet.stop()
