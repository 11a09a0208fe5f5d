"""A folder that vanishes and comes back, and a mount that goes away under it."""

import asyncio
import shutil
from pathlib import Path

import pytest
from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit.harness import INSTANCE
from drakkar_filesystem.registry import FilesystemRegistry
from support.folders import Folder, MakeFolder, workers_of
from support.mounts import passthrough, tmpfs, unmount

NOT_MOUNTED = "the file system of this folder seems not to be mounted"


async def expect_failure(provider: FilesystemRegistry, message: str = "") -> None:
    for _ in range(2):
        with pytest.raises(OSError, match=message):
            await provider.publish(make_card("worker-1"))
        with pytest.raises(OSError):  # noqa: PT011  the message depends on what is left of the folder
            await provider.list()


@pytest.mark.parametrize("what", ["workers", "the folder", "the folder above"])
async def test_a_folder_that_vanished_is_made_again_by_the_next_publish(folder: Folder, what: str) -> None:
    folder.path = folder.path / "below"
    folder.workers = folder.path / "workers"
    providers = [await folder.start(name) for name in ("worker-1", "worker-2")]
    for name, provider in zip(("worker-1", "worker-2"), providers, strict=True):
        await provider.publish(make_card(name))
    shutil.rmtree({"workers": folder.workers, "the folder": folder.path}.get(what, folder.path.parent))

    with pytest.raises(FileNotFoundError):
        await providers[0].list()
    await providers[0].publish(make_card("worker-1"))
    assert await workers_of(providers[0]) == ["worker-1"]
    await providers[1].publish(make_card("worker-2"))

    assert await workers_of(providers[0]) == ["worker-1", "worker-2"]
    assert folder.workers.stat().st_mode & 0o777 == 0o700


async def test_workers_may_make_the_folder_at_the_same_time(tmp_path: Path, folder_at: MakeFolder) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path / "cards")
        provider = await folder.start()
        mount.hang_at("mkdir")
        publishing = asyncio.create_task(provider.publish(make_card("worker-1")))
        await asyncio.to_thread(mount.wait_until_hung)
        (mount.source / "cards" / "workers").mkdir(parents=True)
        mount.work()
        await publishing

        assert await workers_of(provider) == ["worker-1"]


async def test_only_a_publish_makes_the_folder(folder: Folder) -> None:
    provider = await folder.start()
    await provider.publish(make_card("worker-1"))
    shutil.rmtree(folder.path)

    with pytest.raises(FileNotFoundError):
        await provider.list()
    await provider.withdraw("worker-1", INSTANCE)

    assert not folder.path.exists()


async def test_the_cards_of_a_folder_that_returns_are_listed_again(folder: Folder) -> None:
    provider = await folder.start()
    await provider.publish(make_card("worker-1"))
    folder.write("worker-2.json", encode_card(make_card("worker-2")))
    assert await workers_of(provider) == ["worker-1", "worker-2"]

    away = folder.path.rename(folder.path.with_name("away"))
    with pytest.raises(FileNotFoundError):
        await provider.list()
    away.rename(folder.path)

    assert await workers_of(provider) == ["worker-1", "worker-2"]


@pytest.mark.parametrize(
    "below", [".", "cards", "a/b/c"], ids=["the mount itself", "below it", "deep below it"]
)
async def test_an_unmounted_folder_is_not_replaced_by_a_local_one(
    folder_at: MakeFolder, tmp_path: Path, below: str
) -> None:
    mount = tmp_path / "mount"
    folder = folder_at(mount / below)
    with tmpfs(mount):
        provider = await folder.start(options={"explicit": True})
        await provider.publish(make_card("worker-1"))
        assert await workers_of(provider) == ["worker-1"]
        unmount(mount)

        await expect_failure(provider, f"{NOT_MOUNTED}: '{folder.workers}'")

        assert list(mount.iterdir()) == []
        with tmpfs(mount):
            await provider.publish(make_card("worker-1"))
            assert await workers_of(provider) == ["worker-1"]


async def test_a_listing_of_an_empty_mount_point_says_what_is_wrong(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    folder = folder_at(tmp_path / "mount")
    with tmpfs(folder.path):
        provider = await folder.start(options={"explicit": True})

    with pytest.raises(OSError, match=NOT_MOUNTED):
        await provider.list()


async def test_an_unmounted_folder_that_exists_locally_too_is_not_taken_for_it(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    folder = folder_at(tmp_path / "mount")
    stray = folder.write("worker-9.json", encode_card(make_card("worker-9")), age_seconds=1e6)
    with tmpfs(folder.path):
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))
    assert stray.exists()

    for call in (lambda: provider.publish(make_card("worker-1")), provider.list):
        with pytest.raises(OSError, match=NOT_MOUNTED):
            await call()
    with pytest.raises(OSError, match=NOT_MOUNTED):
        await provider.withdraw("worker-1", INSTANCE)

    assert folder.names() == {"worker-9.json"}


async def test_a_mount_at_workers_itself_counts_too(folder_at: MakeFolder, tmp_path: Path) -> None:
    folder = folder_at(tmp_path / "fleet")
    with tmpfs(folder.workers):
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))

    await expect_failure(provider, NOT_MOUNTED)

    assert folder.names() == set()
    folder.workers.rmdir()
    await expect_failure(provider, NOT_MOUNTED)
    assert list(folder.path.iterdir()) == []


async def test_a_listing_alone_is_enough_to_know_the_place(folder_at: MakeFolder, tmp_path: Path) -> None:
    folder = folder_at(tmp_path / "mount")
    with tmpfs(folder.path):
        folder.workers.mkdir()
        provider = await folder.start()
        assert await provider.list() == []

    with pytest.raises(OSError, match=NOT_MOUNTED):
        await provider.publish(make_card("worker-1"))


async def test_a_folder_reached_by_a_link_into_a_mount_is_watched_too(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    folder = folder_at(tmp_path / "link")
    folder.path.symlink_to("mount/cards")
    with tmpfs(tmp_path / "mount"):
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))

    await expect_failure(provider, NOT_MOUNTED)

    assert list((tmp_path / "mount").iterdir()) == []


@pytest.mark.parametrize("content", [True, False], ids=["with cards", "empty"])
async def test_another_mount_in_its_place_is_a_remount(
    folder_at: MakeFolder, tmp_path: Path, content: bool
) -> None:
    folder = folder_at(tmp_path / "mount")
    with tmpfs(folder.path):
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))
        with tmpfs(folder.path):
            if content:
                folder.write("worker-2.json", encode_card(make_card("worker-2")))
                assert await workers_of(provider) == ["worker-2"]
            await provider.publish(make_card("worker-1"))
            assert await workers_of(provider) == ["worker-1", *(["worker-2"] if content else [])]


async def test_a_mount_that_comes_after_the_first_publish_is_taken_and_then_watched(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    folder = folder_at(tmp_path / "mount")
    provider = await folder.start()
    await provider.publish(make_card("worker-1"))
    with tmpfs(folder.path):
        with pytest.raises(FileNotFoundError):
            await provider.list()
        await provider.publish(make_card("worker-1"))
        assert await workers_of(provider) == ["worker-1"]

    with pytest.raises(OSError, match=NOT_MOUNTED):
        await provider.list()


async def test_a_folder_that_was_wiped_inside_its_mount_is_made_again(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    folder = folder_at(tmp_path / "mount" / "cards")
    with tmpfs(tmp_path / "mount"):
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))
        shutil.rmtree(folder.path)

        await provider.publish(make_card("worker-1"))

        assert await workers_of(provider) == ["worker-1"]
