"""The provider of nobody."""

from collections.abc import Awaitable, Callable

import pytest
from drakkar.fleet import testkit
from drakkar.fleet.none import NoRegistry, make_registry
from drakkar.fleet.provider import RegistryContext, RegistryProvider


@pytest.mark.parametrize("check", [testkit.check_list_shape, testkit.check_age_is_none_or_non_negative])
async def test_it_passes_the_checks_of_reading(
    check: Callable[[RegistryProvider, RegistryContext], Awaitable[None]],
) -> None:
    await check(make_registry({}), testkit.make_context("worker-1"))


async def test_it_lists_nobody_not_even_who_published() -> None:
    provider = make_registry({})
    await provider.start(testkit.make_context("worker-1"))
    card = testkit.make_card("worker-1")
    await provider.publish(card)
    assert await provider.list() == []
    await provider.withdraw("worker-1", card["instance"])
    assert await provider.list() == []
    await provider.stop()


async def test_it_is_the_same_without_a_start() -> None:
    provider: RegistryProvider = NoRegistry()
    await provider.publish({})
    assert await provider.list() == []
    await provider.stop()


def test_it_takes_any_options() -> None:
    assert isinstance(make_registry({"address": "left over from another provider"}), NoRegistry)
