"""The checks of every provider, over a folder."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet import testkit
from drakkar_filesystem.testing import Store

READING = [testkit.check_list_shape, testkit.check_age_is_none_or_non_negative]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store({"dir": str(tmp_path / "fleet")})


@pytest.mark.parametrize("check", testkit.PUBLISHING_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_publishing(check: testkit.PublishingCheck, store: Store) -> None:
    await check(store.make_provider, store.advance, 600)


@pytest.mark.parametrize("check", READING, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_reading(
    check: Callable[..., Coroutine[Any, Any, None]], store: Store
) -> None:
    await check(store.make_provider(), testkit.make_context("worker-1"))
