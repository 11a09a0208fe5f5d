"""The package from outside: its factory, and the store that it offers to test kits."""

import subprocess
import sys
from importlib.metadata import entry_points

import drakkar_consul
import pytest
from drakkar.fleet.testkit import make_card, make_context
from drakkar_consul import make_registry
from drakkar_consul.leases import ConsulLeases
from drakkar_consul.registry import ConsulRegistry
from drakkar_consul.testing import Store


def test_the_entry_point_names_the_factory() -> None:
    (point,) = entry_points(group="drakkar.registry_providers", name="consul")

    assert point.load() is make_registry
    assert drakkar_consul.__all__ == ["make_registry"]


def test_the_factory_makes_both_halves_outside_of_an_event_loop_and_opens_nothing() -> None:
    options = {"address": "127.0.0.1:1"}

    assert isinstance(make_registry(options), ConsulRegistry)
    assert isinstance(make_registry.lease_backend(options), ConsulLeases)


def test_a_half_is_imported_when_one_is_made() -> None:
    script = "import sys, drakkar_consul; print([name for name in sys.modules if 'consul' in name])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['drakkar_consul']"


async def test_a_store_makes_cards_older_and_prunes_at_its_age(options: dict[str, object]) -> None:
    store = Store(options, prune_after_seconds=60)
    provider = store.make_provider()
    await provider.start(make_context("worker-1"))
    await provider.publish(make_card("worker-1"))
    assert len(await provider.list()) == 1  # else it may be seen to change only after the jump

    store.advance(30)

    (age,) = [peer.age_seconds for peer in await provider.list()]
    assert age == pytest.approx(30, abs=5)
    store.advance(31)
    assert await provider.list() == []
    await provider.stop()


def test_a_store_refuses_options_that_do_not_hold() -> None:
    with pytest.raises(ValueError, match=r"fleet\.registry\.consul\.prefix is empty"):
        Store({"prefix": ""})
