"""A folder for the leases of one test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.lease_folders import LeaseFolder


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[LeaseFolder]:
    """A folder that does not exist yet."""
    fleet = LeaseFolder(tmp_path / "fleet")
    yield fleet
    await fleet.stop()
