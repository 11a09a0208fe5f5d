"""Ages: the file server's clock alone, and what is deleted for its age."""

import asyncio
import errno
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit.harness import INSTANCE
from drakkar_filesystem import registry
from drakkar_filesystem.registry import FilesystemRegistry, elapsed_seconds
from support.folders import NS, Folder, MakeFolder, make_older, workers_of
from support.mounts import passthrough, tmpfs

HOUR = 3600.0


async def ages(provider: FilesystemRegistry) -> dict[str, float | None]:
    return {peer.card["worker"]: peer.age_seconds for peer in await provider.list()}


def mtime(path: Path) -> float:
    return path.stat().st_mtime_ns / NS


async def test_ages_are_unknown_before_the_first_publish(folder: Folder) -> None:
    folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=1e6)
    provider = await folder.start()

    assert await ages(provider) == {"worker-2": None}
    assert (folder.workers / "worker-2.json").exists()


async def test_ages_are_unknown_after_a_publish_that_failed(folder_at: MakeFolder, tmp_path: Path) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        folder.write("worker-2.json", encode_card(make_card("worker-2")))
        provider = await folder.start()
        mount.fail_at("rename", errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            await provider.publish(make_card("worker-1"))

        assert await ages(provider) == {"worker-2": None}


async def test_an_age_is_the_distance_to_our_own_card_and_our_own_time_since(folder: Folder) -> None:
    folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=100)
    provider = await folder.start()
    await provider.publish(make_card("worker-1"))
    distance = mtime(folder.workers / "worker-1.json") - mtime(folder.workers / "worker-2.json")

    assert await ages(provider) == pytest.approx({"worker-1": 0, "worker-2": distance})
    folder.clock.now += 7.5
    assert await ages(provider) == pytest.approx({"worker-1": 7.5, "worker-2": distance + 7.5})


async def test_every_publish_is_a_new_sample(folder: Folder) -> None:
    provider = await folder.start()
    await provider.publish(make_card("worker-1"))
    folder.clock.now += 1000  # our clock runs fast: no such time passed on the server
    await provider.publish(make_card("worker-1"))

    assert (await ages(provider))["worker-1"] == 0


async def test_no_card_is_of_a_negative_age(folder: Folder) -> None:
    folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=-50)
    provider = await folder.start()
    await provider.publish(make_card("worker-1"))

    assert await ages(provider) == {"worker-1": 0, "worker-2": 0}
    folder.clock.now += 60
    assert (await ages(provider))["worker-2"] == pytest.approx(10, abs=5)


async def test_a_slow_write_makes_no_peer_look_younger(folder_at: MakeFolder, tmp_path: Path) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=100)
        provider = await folder.start()
        mount.hang_at("fsync")
        publishing = asyncio.create_task(provider.publish(make_card("worker-1")))
        await asyncio.to_thread(mount.wait_until_hung)
        folder.clock.now += 30
        mount.work()
        await publishing

        age = (await ages(provider))["worker-2"]
        assert age is not None
        assert 130 <= age < 190


async def test_what_grows_old_during_a_listing_is_that_old_at_its_end(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))
        folder.write("worker-2.json", encode_card(make_card("worker-2")))
        mount.hang_at("read", "worker-2")
        listing = asyncio.create_task(ages(provider))
        await asyncio.to_thread(mount.wait_until_hung)
        folder.clock.now += 30
        mount.work()

        assert (await listing)["worker-1"] == pytest.approx(30)


@pytest.mark.parametrize("shift_seconds", [-2 * HOUR, -HOUR, HOUR, 2 * HOUR])
async def test_a_file_server_whose_clock_is_off_changes_no_age(
    folder_at: MakeFolder, tmp_path: Path, shift_seconds: float
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount", shift_seconds=shift_seconds) as mount:
        folder = folder_at(mount.path)
        first, second = await folder.start("worker-1"), await folder.start("worker-2")
        await first.publish(make_card("worker-1"))
        make_older(folder.workers / "worker-1.json", 20)
        await second.publish(make_card("worker-2"))
        assert abs(mtime(folder.workers / "worker-2.json") - time.time()) > HOUR - 60

        assert await ages(second) == pytest.approx({"worker-1": 20, "worker-2": 0}, abs=5)
        folder.clock.now += 86400 - 60
        assert await ages(second) == pytest.approx({"worker-1": 86360, "worker-2": 86340}, abs=5)
        folder.clock.now += 50
        assert await workers_of(second) == ["worker-2"]


@pytest.mark.parametrize("lie_seconds", [-HOUR, HOUR])
async def test_the_time_of_day_of_this_host_plays_no_part(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, lie_seconds: float
) -> None:
    folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=100)
    truth, truth_ns = time.time, time.time_ns
    provider = await folder.start()

    await provider.publish(make_card("worker-1"))
    monkeypatch.setattr(time, "time", lambda: truth() + lie_seconds)
    monkeypatch.setattr(time, "time_ns", lambda: truth_ns() + round(lie_seconds * NS))
    first = await ages(provider)
    await provider.publish(make_card("worker-1"))
    second = await ages(provider)
    monkeypatch.undo()

    for listed in (first, second, await ages(provider)):
        assert listed == pytest.approx({"worker-1": 0, "worker-2": 100}, abs=5)


def test_elapsed_time_counts_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert elapsed_seconds() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=5)
    suspended = {time.CLOCK_BOOTTIME: time.monotonic() + HOUR}  # as after an hour of sleep
    monkeypatch.setattr(time, "clock_gettime", suspended.get)
    assert elapsed_seconds() == pytest.approx(time.monotonic() + HOUR, abs=5)

    monkeypatch.setattr(registry, "_BOOTTIME", None)
    assert elapsed_seconds() == pytest.approx(time.monotonic(), abs=5)


async def test_a_provider_without_a_clock_takes_that_of_the_host(folder: Folder) -> None:
    provider = FilesystemRegistry({"dir": str(folder.path)})

    assert provider._clock is elapsed_seconds


async def test_ages_are_unknown_on_a_file_system_that_no_sample_was_taken_of(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    """After a remount the same path may be on another server, with another clock."""
    folder = folder_at(tmp_path / "mount")
    with tmpfs(folder.path):
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))
        with tmpfs(folder.path):
            folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=1e6)

            assert await ages(provider) == {"worker-2": None}

            folder.write("worker-2.json", encode_card(make_card("worker-2")))
            await provider.publish(make_card("worker-1"))
            assert (await ages(provider))["worker-2"] == pytest.approx(0, abs=5)


@pytest.mark.parametrize(("options", "context"), [({"prune_after_seconds": 600}, 86400), ({}, 600)])
async def test_a_card_is_deleted_when_it_is_older_than_prune_after_seconds(
    folder: Folder, options: dict[str, Any], context: float
) -> None:
    provider = await folder.start(prune_after_seconds=context, options=options)
    await provider.publish(make_card("worker-1"))
    folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=601)
    folder.write("worker-3.json", encode_card(make_card("worker-3")), age_seconds=590)

    assert await workers_of(provider) == ["worker-1", "worker-3"]
    assert folder.names() == {"worker-1.json", "worker-3.json"}


async def test_an_old_card_is_kept_until_there_is_a_sample(folder: Folder) -> None:
    provider = await folder.start(prune_after_seconds=600)
    folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=601)
    temporary = folder.write(".worker-3.json.0123.tmp", "", age_seconds=601)

    assert await workers_of(provider) == ["worker-2"]
    assert temporary.exists()

    await provider.publish(make_card("worker-1"))
    assert await workers_of(provider) == ["worker-1"]
    assert folder.names() == {"worker-1.json"}


async def test_an_old_card_that_is_published_again_meanwhile_stays(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(prune_after_seconds=600)
        await provider.publish(make_card("worker-1"))
        old = folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=601)
        mount.hang_at("read", "worker-2")
        listing = asyncio.create_task(workers_of(provider))
        await asyncio.to_thread(mount.wait_until_hung)
        new = mount.source / "workers" / "new"
        new.write_bytes(encode_card(make_card("worker-2")))
        new.rename(mount.source / "workers" / "worker-2.json")
        mount.work()
        await listing

        assert old.exists()
        assert await workers_of(provider) == ["worker-1", "worker-2"]


async def test_a_card_that_may_not_be_deleted_is_not_listed_either(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(prune_after_seconds=600)
        await provider.publish(make_card("worker-1"))
        folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=601)
        mount.fail_at("unlink", errno.EPERM)

        assert await workers_of(provider) == ["worker-1"]

        mount.work()
        assert await workers_of(provider) == ["worker-1"]
        assert folder.names() == {"worker-1.json"}


async def test_what_is_no_card_is_never_deleted(folder: Folder, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(encode_card(make_card("linked")))
    make_older(target, 1e6)
    provider = await folder.start(prune_after_seconds=600)
    await provider.publish(make_card("worker-1"))
    folder.write("broken.json", "{", age_seconds=1e6)
    folder.write("large.json", " " * 5000, age_seconds=1e6)
    folder.write("copy.json", encode_card(make_card("worker-9")), age_seconds=1e6)
    folder.write("stranger.json", "{}", age_seconds=1e6)
    folder.write("notes.txt", "notes", age_seconds=1e6)
    folder.write(".hidden.json", encode_card(make_card("hidden")), age_seconds=1e6)
    (folder.workers / "linked.json").symlink_to(target)
    (folder.workers / ".linked.json.0123.tmp").symlink_to(target)
    (folder.workers / ".folder.tmp").mkdir()
    os.mknod(folder.workers / ".pipe.tmp", stat.S_IFIFO | 0o600)
    for name in ("linked.json", ".linked.json.0123.tmp", ".folder.tmp", ".pipe.tmp"):
        make_older(folder.workers / name, 1e6)
    before = folder.names()

    await provider.list()

    assert folder.names() == before
    assert target.exists()


async def test_temporary_files_are_deleted_when_they_are_as_old_as_that(folder: Folder) -> None:
    provider = await folder.start(prune_after_seconds=600)
    await provider.publish(make_card("worker-1"))
    folder.write(".worker-2.json.aaaaaaaaaaaaaaaa.tmp", "{", age_seconds=601)
    folder.write(".worker-2.json.bbbbbbbbbbbbbbbb.tmp", "{", age_seconds=590)
    folder.write("worker-2.json.tmp", "{", age_seconds=601)

    assert await workers_of(provider) == ["worker-1"]

    assert folder.names() == {"worker-1.json", ".worker-2.json.bbbbbbbbbbbbbbbb.tmp", "worker-2.json.tmp"}
    folder.clock.now += 20
    await provider.list()
    assert folder.names() == {"worker-1.json", "worker-2.json.tmp"}


async def test_a_worker_whose_card_was_deleted_for_its_age_comes_back(folder: Folder) -> None:
    provider, other = await folder.start(), await folder.start("worker-2", prune_after_seconds=600)
    await provider.publish(make_card("worker-1"))
    make_older(folder.workers / "worker-1.json", 700)
    await other.publish(make_card("worker-2"))
    assert await workers_of(other) == ["worker-2"]

    await provider.publish(make_card("worker-1", INSTANCE, features={"x": 1}))

    assert [peer.card for peer in await other.list() if peer.card["worker"] == "worker-1"] == [
        make_card("worker-1", INSTANCE, features={"x": 1})
    ]
