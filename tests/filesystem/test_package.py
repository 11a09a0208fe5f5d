"""The package from outside: its factory, and the store that it offers to test kits."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import drakkar_filesystem
import pytest
from drakkar.fleet.testkit import make_card, make_context
from drakkar_filesystem import make_registry
from drakkar_filesystem.registry import FilesystemRegistry
from drakkar_filesystem.testing import Store
from support.folders import workers_of


def test_the_entry_point_names_the_factory() -> None:
    (point,) = entry_points(group="drakkar.registry_providers", name="filesystem")

    assert point.load() is make_registry
    assert drakkar_filesystem.__all__ == ["make_registry"]


def test_the_factory_makes_a_provider_outside_of_an_event_loop_and_touches_nothing(tmp_path: Path) -> None:
    assert isinstance(make_registry({"dir": str(tmp_path / "fleet")}), FilesystemRegistry)

    assert list(tmp_path.iterdir()) == []


def test_the_registry_is_imported_when_one_is_made() -> None:
    script = "import sys, drakkar_filesystem; print([name for name in sys.modules if 'drakkar' in name])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['drakkar_filesystem']"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store({"dir": str(tmp_path / "fleet"), "explicit": False}, prune_after_seconds=60)


async def test_providers_of_a_store_share_its_cards_and_its_age_of_pruning(store: Store) -> None:
    first, second = store.make_provider(), store.make_provider()
    for name, provider in (("worker-1", first), ("worker-2", second)):
        await provider.start(make_context(name))
        await provider.publish(make_card(name))
    assert await workers_of(first) == ["worker-1", "worker-2"]

    store.advance(61)
    await second.publish(make_card("worker-2"))

    assert await workers_of(second) == ["worker-2"]
    for provider in (first, second):
        await provider.stop()


async def test_a_store_makes_cards_older_and_nothing_else(store: Store, tmp_path: Path) -> None:
    provider = store.make_provider()
    store.advance(10)
    await provider.start(make_context("worker-1"))
    await provider.publish(make_card("worker-1"))
    workers = tmp_path / "fleet" / "workers"
    (tmp_path / "target").touch()
    (workers / "link.json").symlink_to(tmp_path / "target")
    (workers / "folder.json").mkdir()
    (workers / ".worker-2.json.0123.tmp").touch()
    before = {path: os.stat(path).st_mtime_ns for path in workers.iterdir()}  # noqa: PTH116  follows the link

    store.advance(10.5)

    moved = {path.name for path, then in before.items() if os.stat(path).st_mtime_ns != then}  # noqa: PTH116
    assert moved == {"worker-1.json"}
    (age,) = [peer.age_seconds for peer in await provider.list()]
    assert age == pytest.approx(10.5, abs=2)
    await provider.stop()


def test_a_store_refuses_options_that_do_not_hold() -> None:
    with pytest.raises(ValueError, match=r"fleet\.registry\.filesystem\.dir is empty"):
        Store({})
