"""Withdrawing: our own card and no other."""

import asyncio
import errno
from pathlib import Path

import pytest
from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit.harness import INSTANCE, OTHER_INSTANCE
from support.folders import Folder, MakeFolder, workers_of
from support.mounts import passthrough


async def test_it_deletes_the_card_and_leaves_nothing(folder: Folder) -> None:
    provider = await folder.start()
    await provider.publish(make_card("worker-1"))

    await provider.withdraw("worker-1", INSTANCE)

    assert folder.names() == set()
    assert await provider.list() == []


async def test_it_may_be_repeated(folder: Folder) -> None:
    provider = await folder.start()
    await provider.publish(make_card("worker-1"))

    await provider.withdraw("worker-1", INSTANCE)
    await provider.withdraw("worker-1", INSTANCE)

    assert folder.names() == set()


async def test_it_needs_no_folder_and_makes_none(folder: Folder) -> None:
    provider = await folder.start()

    await provider.withdraw("worker-1", INSTANCE)
    assert not folder.path.exists()

    folder.path.mkdir()
    await provider.withdraw("worker-1", INSTANCE)
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        encode_card(make_card("worker-1", OTHER_INSTANCE)),
        encode_card(make_card("worker-1", "")),
        encode_card({"schema": 1, "worker": "worker-1", "cluster": "", "url": "http://192.0.2.1/"}),
        encode_card(make_card("worker-1") | {"instance": 7}),
        encode_card(make_card("worker-2")),
        encode_card({"instance": INSTANCE}),
        b"",
        b"{",
        b"[]",
        b" " * 5000,
    ],
)
async def test_it_leaves_alone_what_is_not_its_own_card(folder: Folder, content: bytes) -> None:
    path = folder.write("worker-1.json", content)
    provider = await folder.start()

    await provider.withdraw("worker-1", INSTANCE)

    assert path.read_bytes() == content


async def test_it_leaves_the_card_of_a_name_that_shares_the_file(folder: Folder) -> None:
    first, second = await folder.start("search.1"), await folder.start("search:1")
    await first.publish(make_card("search.1"))
    await second.publish(make_card("search:1"))

    await first.withdraw("search.1", INSTANCE)
    assert await workers_of(second) == ["search:1"]

    await second.withdraw("search:1", INSTANCE)
    assert folder.names() == set()


async def test_it_leaves_a_link_and_its_target(folder: Folder, tmp_path: Path) -> None:
    target = tmp_path / "target.json"
    target.write_bytes(encode_card(make_card("worker-1")))
    folder.workers.mkdir(parents=True)
    (folder.workers / "worker-1.json").symlink_to(target)
    provider = await folder.start()

    await provider.withdraw("worker-1", INSTANCE)

    assert target.exists()
    assert (folder.workers / "worker-1.json").is_symlink()


async def test_it_never_deletes_a_card_that_another_process_wrote_meanwhile(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))
        mount.hang_at("read", "worker-1.json")
        withdrawing = asyncio.create_task(provider.withdraw("worker-1", INSTANCE))
        await asyncio.to_thread(mount.wait_until_hung)
        theirs = mount.source / "workers" / "new"
        theirs.write_bytes(encode_card(make_card("worker-1", OTHER_INSTANCE)))
        theirs.rename(mount.source / "workers" / "worker-1.json")
        mount.work()
        await withdrawing

        assert [peer.card["instance"] for peer in await provider.list()] == [OTHER_INSTANCE]


@pytest.mark.parametrize(
    ("operation", "number"), [("open", errno.EACCES), ("read", errno.EIO), ("unlink", errno.EROFS)]
)
async def test_a_card_that_cannot_be_withdrawn_is_an_error_that_names_it(
    folder_at: MakeFolder, tmp_path: Path, operation: str, number: int
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))
        mount.fail_at(operation, number)  # type: ignore[arg-type]  # the parameters above are some of these

        with pytest.raises(OSError, match=r"workers/worker-1\.json'") as failed:
            await provider.withdraw("worker-1", INSTANCE)

        assert failed.value.errno == number
        mount.work()
        await provider.withdraw("worker-1", INSTANCE)
        assert folder.names() == set()
