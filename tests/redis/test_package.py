"""The package from outside: its factory, and the store that it offers to test kits."""

import subprocess
import sys
from importlib.metadata import entry_points

import drakkar_redis
import pytest
from drakkar.fleet.testkit import make_card, make_context
from drakkar_redis import make_registry
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from drakkar_redis.testing import Store
from support.redis_servers import RedisServer


def test_the_entry_point_names_the_factory() -> None:
    (point,) = entry_points(group="drakkar.registry_providers", name="redis")

    assert point.load() is make_registry
    assert drakkar_redis.__all__ == ["make_registry"]


def test_the_factory_makes_both_halves_outside_of_an_event_loop_and_opens_nothing() -> None:
    options = {"url": "redis://127.0.0.1:1"}

    assert isinstance(make_registry(options), RedisRegistry)
    assert isinstance(make_registry.lease_backend(options), RedisLeases)


def test_a_half_is_imported_when_one_is_made() -> None:
    script = "import sys, drakkar_redis; print([name for name in sys.modules if 'redis' in name])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['drakkar_redis']"


async def test_a_store_makes_cards_older_and_prunes_at_its_age(server: RedisServer) -> None:
    store = Store({"url": server.url}, prune_after_seconds=60)
    provider = store.make_provider()
    await provider.start(make_context("worker-1"))
    await provider.publish(make_card("worker-1"))

    await store.advance(30)

    (age,) = [peer.age_seconds for peer in await provider.list()]
    assert age == pytest.approx(30, abs=5)
    await store.advance(31)
    assert await provider.list() == []
    await provider.stop()


def test_a_store_refuses_options_that_do_not_hold() -> None:
    with pytest.raises(ValueError, match=r"fleet\.registry\.redis\.url is missing"):
        Store({})


async def test_a_half_that_was_not_started_says_so_and_can_be_stopped() -> None:
    provider, backend = RedisRegistry({"url": "redis://host"}), RedisLeases({"url": "redis://host"})

    with pytest.raises(RuntimeError, match="has not been started"):
        await provider.list()
    with pytest.raises(RuntimeError, match="has not started"):
        await backend.list()
    await provider.stop()
    await backend.stop()
