"""Publishing: the bytes, the modes, and what is left behind when it fails."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.card import CardError, encode_card
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit.harness import INSTANCE
from support.folders import Folder, MakeFolder, workers_of
from support.mounts import fill, passthrough, tmpfs


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_card_is_stored_with_the_bytes_that_every_implementation_writes(folder: Folder) -> None:
    provider = await folder.start()
    card = make_card("worker-1", cluster="größe", features={"b": 1, "a": [1.5, None]})

    await provider.publish(card)

    assert (folder.workers / "worker-1.json").read_bytes() == encode_card(card)
    assert folder.names() == {"worker-1.json"}


async def test_folders_have_mode_0700_and_cards_0600(folder: Folder) -> None:
    folder.path = folder.path / "a" / "b"
    provider = await folder.start()

    await provider.publish(make_card("worker-1"))

    made = [folder.path.parents[1], folder.path.parent, folder.path, folder.path / "workers"]
    assert [mode(path) for path in made] == [0o700] * 4
    assert mode(folder.path / "workers" / "worker-1.json") == 0o600


async def test_a_card_that_others_may_read_is_replaced_by_one_they_may_not(folder: Folder) -> None:
    folder.write("worker-1.json", b"{}").chmod(0o644)
    provider = await folder.start()

    await provider.publish(make_card("worker-1"))

    assert mode(folder.workers / "worker-1.json") == 0o600


@pytest.mark.parametrize(
    ("worker", "file"),
    [
        ("worker-1", "worker-1.json"),
        ("Worker_1", "Worker_1.json"),
        ("search.1", "search_1.json"),
        ("../../etc/passwd", "______etc_passwd.json"),
        (".hidden", "_hidden.json"),
        ("größe", "gr__e.json"),
        ("a\nb\0c", "a_b_c.json"),
        ("\U0001f6f6", "_.json"),
    ],
)
async def test_a_file_name_has_letters_digits_and_little_else(folder: Folder, worker: str, file: str) -> None:
    provider = await folder.start(worker)

    await provider.publish(make_card(worker))

    assert folder.names() == {file}
    assert await workers_of(provider) == [worker]


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        (make_card("worker-1", x=float("nan")), "not_json"),
        (make_card("worker-1", x=float("inf")), "not_json"),
        (make_card("worker-1", x="\ud800"), "not_json"),
        (make_card("worker-1", x=b"bytes"), "not_json"),
        (make_card("worker-1", x={1: 2}), "not_json"),
        (make_card("worker-1", x="x" * 4096), "too_large"),
        ([], "not_object"),
        (make_card(""), "missing_field"),
        ({"schema": 1}, "missing_field"),
        ({"worker": 7}, "missing_field"),
    ],
)
async def test_what_is_no_card_is_refused_before_the_folder_is_touched(
    folder: Folder, card: Any, reason: str
) -> None:
    provider = await folder.start()

    with pytest.raises(CardError) as refused:
        await provider.publish(card)

    assert refused.value.reason == reason
    assert not folder.path.exists()


async def test_a_name_too_long_for_a_file_is_an_error_that_names_it(folder: Folder) -> None:
    provider = await folder.start("w" * 300)

    with pytest.raises(OSError, match=r"File name too long: '.*/workers/\.www") as failed:
        await provider.publish(make_card("w" * 300))

    assert failed.value.errno == errno.ENAMETOOLONG
    assert folder.names() == set()


async def test_the_longest_name_that_fits_is_published(folder: Folder) -> None:
    longest = "w" * (255 - len(f"..json.{INSTANCE}.tmp"))
    provider = await folder.start(longest)

    await provider.publish(make_card(longest))

    assert await workers_of(provider) == [longest]


async def test_a_link_in_the_place_of_the_card_is_replaced_and_its_target_left_alone(
    folder: Folder, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    folder.workers.mkdir(parents=True)
    (folder.workers / "worker-1.json").symlink_to(target)
    provider = await folder.start()

    await provider.publish(make_card("worker-1"))

    assert target.read_text() == "mine"
    assert not (folder.workers / "worker-1.json").is_symlink()


async def test_a_folder_in_the_place_of_the_card_is_an_error_and_no_temporary_file_stays(
    folder: Folder,
) -> None:
    (folder.workers / "worker-1.json").mkdir(parents=True)
    provider = await folder.start()

    with pytest.raises(IsADirectoryError, match=r"workers/worker-1\.json"):
        await provider.publish(make_card("worker-1"))

    assert folder.names() == {"worker-1.json"}


async def test_a_temporary_file_of_an_earlier_try_does_not_stand_in_the_way(
    folder: Folder, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    provider = await folder.start()
    temporary = f".worker-1.json.{INSTANCE}.tmp"
    folder.write(temporary, b"half a ca")

    await provider.publish(make_card("worker-1"))
    assert folder.names() == {"worker-1.json"}

    (folder.workers / temporary).symlink_to(target)
    await provider.publish(make_card("worker-1"))
    assert folder.names() == {"worker-1.json"}
    assert target.read_text() == "mine"


async def test_two_processes_of_one_name_use_different_temporary_files(folder: Folder) -> None:
    provider = await folder.start("worker-1", "aaaaaaaaaaaaaaaa")
    other = ".worker-1.json.bbbbbbbbbbbbbbbb.tmp"
    folder.write(other, b"half a ca")

    await provider.publish(make_card("worker-1"))

    assert folder.names() == {"worker-1.json", other}


async def test_a_full_disk_leaves_the_old_card_and_no_temporary_file_and_is_got_over(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with tmpfs(tmp_path / "small", "64k") as small:
        folder = folder_at(small)
        provider = await folder.start()
        card = make_card("worker-1", x="x" * 3000)
        await provider.publish(card)
        filling = fill(small)

        for _ in range(3):
            with pytest.raises(OSError, match="No space left") as failed:
                await provider.publish(make_card("worker-1", x="y" * 3000))
            assert failed.value.errno == errno.ENOSPC
            assert folder.names() == {"worker-1.json"}
        assert [peer.card for peer in await provider.list()] == [card]

        filling.unlink()
        await provider.publish(card | {"state": "draining"})
        assert [peer.card["state"] for peer in await provider.list()] == ["draining"]


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
async def test_a_failure_at_any_step_leaves_the_old_card_and_no_temporary_file(
    folder_at: MakeFolder, tmp_path: Path, operation: Any
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start()
        await provider.publish(make_card("worker-1", state="starting"))
        mount.fail_at(operation, errno.EDQUOT)

        with pytest.raises(OSError, match=r"Disk quota exceeded: '.*/workers/") as failed:
            await provider.publish(make_card("worker-1"))

        assert failed.value.errno == errno.EDQUOT
        assert folder.names() == {"worker-1.json"}
        assert [peer.card["state"] for peer in await provider.list()] == ["starting"]
        mount.work()
        await provider.publish(make_card("worker-1"))
        assert [peer.card["state"] for peer in await provider.list()] == ["running"]


async def test_a_card_is_on_the_disk_before_it_takes_its_place(folder_at: MakeFolder, tmp_path: Path) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(timeout_seconds=2)
        mount.hang_at("fsync")

        with pytest.raises(TimeoutError):
            await provider.publish(make_card("worker-1"))

        (only,) = (mount.source / "workers").iterdir()
        assert only.name == f".worker-1.json.{INSTANCE}.tmp"
        assert only.read_bytes() == encode_card(make_card("worker-1"))
        mount.work()


async def test_nothing_stays_open_between_two_calls(folder: Folder) -> None:
    def open_files() -> list[str]:
        here = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]  # noqa: PTH208
        return [os.readlink(link) for link in here if os.path.lexists(link)]  # noqa: PTH115

    provider = await folder.start()
    await provider.publish(make_card("worker-1"))
    folder.write("worker-2.json", "{")
    await provider.list()
    await provider.withdraw("worker-1", INSTANCE)

    assert [path for path in open_files() if str(folder.path) in path] == []
