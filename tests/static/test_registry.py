"""The registry of a fixed list, and the package around it."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from drakkar.fleet import plugins, testkit
from drakkar.fleet.card import check_card
from drakkar.fleet.provider import PeerCard
from drakkar.fleet.testkit.harness import SilentLogger
from drakkar_static.testing import Store

OPTIONS: dict[str, Any] = {
    "peers": [
        {"name": "worker-1", "cluster": "search", "url": "http://192.0.2.1:8080/"},
        {"name": "worker-2", "url": "https://192.0.2.2/"},
    ]
}
LISTED = [
    PeerCard(
        {"schema": 1, "worker": "worker-1", "cluster": "search", "url": "http://192.0.2.1:8080/"},
        age_seconds=None,
    ),
    PeerCard(
        {"schema": 1, "worker": "worker-2", "cluster": "", "url": "https://192.0.2.2/"}, age_seconds=None
    ),
]


@pytest.mark.parametrize(
    "check", [testkit.check_list_shape, testkit.check_age_is_none_or_non_negative], ids=lambda c: c.__name__
)
@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["no peers", "two peers"])
async def test_it_passes_the_checks_of_reading(check: Callable[..., Any], options: dict[str, Any]) -> None:
    await check(Store(options).make_provider(), testkit.make_context("worker-1"))


async def test_it_lists_every_peer_with_an_unknown_age() -> None:
    provider = Store(OPTIONS).make_provider()
    await provider.start(testkit.make_context("worker-3"))
    assert await provider.list() == LISTED
    await provider.stop()


async def test_its_cards_hold_as_cards() -> None:
    for peer in await Store(OPTIONS).make_provider().list():
        check_card(peer.card)


async def test_publishing_and_withdrawing_change_nothing() -> None:
    provider = Store(OPTIONS).make_provider()
    await provider.start(testkit.make_context("worker-1"))
    await provider.publish(testkit.make_card("worker-1", state="draining"))
    await provider.publish(testkit.make_card("worker-9"))
    assert await provider.list() == LISTED
    await provider.withdraw("worker-1", testkit.make_card("worker-1")["instance"])
    assert await provider.list() == LISTED
    await provider.stop()


async def test_options_changed_later_change_no_listing() -> None:
    options = {"peers": [dict(OPTIONS["peers"][0])]}
    provider = Store(options).make_provider()
    options["peers"][0]["url"] = "http://changed/"
    options["peers"].append(OPTIONS["peers"][1])
    assert await provider.list() == LISTED[:1]


async def test_core_finds_it_by_its_name() -> None:
    provider = plugins.make_provider("static", OPTIONS, SilentLogger())
    assert await provider.list() == LISTED


def test_it_imports_nothing_of_core_but_the_two_contracts() -> None:
    script = (
        "import sys, drakkar_static\n"
        "early = sorted(name for name in sys.modules if name.startswith('drakkar_static.'))\n"
        "drakkar_static.make_registry({'peers': []})\n"
        "print(early, *sorted(name for name in sys.modules if name.startswith('drakkar.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "drakkar.fleet", "drakkar.fleet.card", "drakkar.fleet.provider"]
