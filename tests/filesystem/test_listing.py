"""Listing: two good cards come back whatever lies beside them, and what is bad is named once."""

import asyncio
import errno
import json
import os
import resource
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.card import MAX_CARD_BYTES, encode_card
from drakkar.fleet.testkit import make_card
from drakkar_filesystem.registry import FilesystemRegistry
from support.folders import Folder, MakeFolder, workers_of
from support.log import RecordingLogger
from support.mounts import passthrough

GOOD = ["worker-1", "worker-2"]


@pytest.fixture
async def provider(folder: Folder) -> FilesystemRegistry:
    """One that is not among the good cards, which are in the folder."""
    for worker in GOOD:
        folder.write(f"{worker}.json", encode_card(make_card(worker)))
    return await folder.start("worker-3")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 8))  # /dev/random


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        there = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{there}/{path.name}")  # the path itself may be too long for a socket
        os.close(there)


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50_000_000)


NO_FILES: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "pipe": make_pipe,
    "device": make_device,
    "socket": make_socket,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to a good card": lambda path: path.symlink_to("worker-1.json"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
}

CONTENTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not_json"),
    "truncated": (encode_card(make_card("bad"))[:-5], "not_json"),
    "spaces": (b"   ", "not_json"),
    "nul bytes": (b"\0" * 400, "not_json"),
    "null": (b"null", "not_object"),
    "array": (b"[]", "not_object"),
    "number": (b"3", "not_object"),
    "string": (b'"worker"', "not_object"),
    "4,000 digits": (b'{"worker":"bad","a":' + b"9" * 4000 + b"}", ""),
    "5,000 digits": (b'{"a":' + b"9" * 5000 + b"}", "too_large"),
    "4,090 brackets": (b"[" * 2045 + b"]" * 2045, "not_json"),
    "100,000 brackets": (b"[" * 50_000 + b"]" * 50_000, "too_large"),
    "invalid UTF-8": (b'{"a":"\xff"}', "not_json"),
    "byte-order mark": (b"\xef\xbb\xbf" + encode_card(make_card("bad")), "not_json"),
    "UTF-16": (encode_card(make_card("bad")).decode().encode("utf-16"), "not_json"),
    "NaN": (b'{"a":NaN}', "not_json"),
    "1e999": (b'{"a":1e999}', "not_json"),
    "lone surrogate": (b'{"a":"\\ud800"}', "not_json"),
    "two objects": (b"{}{}", "not_json"),
    "4,096 bytes": (json.dumps(make_card("bad")).encode().ljust(MAX_CARD_BYTES), ""),
    "4,097 bytes": (json.dumps(make_card("bad")).encode().ljust(MAX_CARD_BYTES + 1), "too_large"),
}


@pytest.mark.parametrize("kind", NO_FILES)
async def test_what_is_no_plain_file_is_left_out(
    folder: Folder, provider: FilesystemRegistry, kind: str
) -> None:
    NO_FILES[kind](folder.workers / "bad.json")

    for _ in range(3):
        assert await workers_of(provider) == GOOD

    assert folder.rejected() == {"bad.json": "not_a_file"}


@pytest.mark.parametrize("kind", CONTENTS)
async def test_a_file_is_left_out_for_what_it_holds(
    folder: Folder, provider: FilesystemRegistry, kind: str
) -> None:
    data, reason = CONTENTS[kind]
    folder.write("bad.json", data)

    for _ in range(3):
        listed = [peer.card.get("worker", "bad") for peer in await provider.list()]
        assert sorted(listed) == ([] if reason else ["bad"]) + GOOD

    assert folder.rejected() == ({"bad.json": reason} if reason else {})


async def test_all_kinds_of_bad_files_together_are_named_once_each(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    for number, make in enumerate(NO_FILES.values()):
        make(folder.workers / f"kind-{number}.json")
    bad = {kind: case for kind, case in CONTENTS.items() if case[1]}
    for number, (data, _) in enumerate(bad.values()):
        folder.write(f"content-{number}.json", data)
    make_large(folder.workers / "large.json")

    for _ in range(3):
        assert await workers_of(provider) == GOOD

    assert len(folder.rejected()) == len(NO_FILES) + len(bad) + 1
    assert folder.log.level_of("fleet_card_invalid") == "warning"


async def test_a_large_file_is_not_read(folder: Folder, provider: FilesystemRegistry) -> None:
    make_large(folder.workers / "bad.json")

    assert await workers_of(provider) == GOOD

    assert folder.rejected() == {"bad.json": "too_large"}


async def test_a_device_named_like_a_card_is_never_opened(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    """Opening this one fails with `ENXIO`, which would be told as another reason than a look at its type."""
    os.mknod(folder.workers / "bad.json", stat.S_IFBLK | 0o600, os.makedev(240, 255))
    path = folder.workers / "bad.json"
    with pytest.raises(OSError, match="No such device"):
        path.open("rb")
    before = path.lstat().st_atime_ns

    assert await workers_of(provider) == GOOD

    assert folder.rejected() == {"bad.json": "not_a_file"}
    assert path.lstat().st_atime_ns == before


async def test_a_copy_of_a_card_is_no_second_row(folder: Folder, provider: FilesystemRegistry) -> None:
    folder.write("backup.json", (folder.workers / "worker-1.json").read_bytes())

    assert await workers_of(provider) == GOOD

    assert folder.rejected() == {"backup.json": "wrong_name"}


async def test_a_name_that_no_worker_has_its_card_under_is_no_card(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    folder.write("search.1.json", encode_card(make_card("search.1")))
    folder.write("search_1.json", encode_card(make_card("search.1")))

    assert await workers_of(provider) == ["search.1", *GOOD]

    assert folder.rejected() == {"search.1.json": "wrong_name"}


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ({}, "missing_field"),
        ({"schema": 1}, "missing_field"),
        ({"worker": ""}, "empty_field"),
        ({"worker": 7}, "wrong_type"),
        ({"worker": None}, "wrong_type"),
        ({"worker": ["worker-1"]}, "wrong_type"),
    ],
)
async def test_a_card_that_names_no_worker_is_told_by_its_file(
    folder: Folder, provider: FilesystemRegistry, card: dict[str, Any], reason: str
) -> None:
    folder.write("bad.json", json.dumps(card))

    assert await workers_of(provider) == GOOD

    assert folder.rejected() == {"bad.json": reason}


async def test_a_card_of_another_version_is_listed_with_all_its_fields(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    card = make_card("worker-4", schema=2, state="dreaming", x_new={"a": [1, None]})
    folder.write("worker-4.json", encode_card(card))

    assert card in [peer.card for peer in await provider.list()]


async def test_of_a_repeated_key_the_last_value_counts(folder: Folder, provider: FilesystemRegistry) -> None:
    folder.write("worker-4.json", b'{"worker":"nobody","worker":"worker-4"}')

    assert await workers_of(provider) == [*GOOD, "worker-4"]


@pytest.mark.parametrize(
    "name",
    [".worker-4.json", ".json", "worker-4.json~", "worker-4.JSON", "worker-4", "worker-4.json.bak", "json"],
)
async def test_files_of_other_names_are_none_of_its_business(
    folder: Folder, provider: FilesystemRegistry, name: str
) -> None:
    folder.write(name, encode_card(make_card("worker-4")))

    assert await workers_of(provider) == GOOD

    assert folder.rejected() == {}
    assert name in folder.names()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\nb\rc.json", r"a\nb\rc.json"),
        (b"\xff\xfe.json", r"\udcff\udcfe.json"),
        ("größe.json".encode(), "größe.json"),
        ("\u202ebad\u2028.json".encode(), r"\u202ebad\u2028.json"),
        (b"\x1b[31mred.json", r"\x1b[31mred.json"),
        (b"n" * 250 + b".json", "n" * 250 + ".json"),
        (b"%s {x} \\.json", "%s {x} \\.json"),
    ],
)
async def test_a_file_may_have_any_name(
    folder: Folder, provider: FilesystemRegistry, name: bytes, shown: str
) -> None:
    (folder.workers / os.fsdecode(name)).write_bytes(b"{")

    assert await workers_of(provider) == GOOD

    assert folder.rejected() == {shown: "not_json"}
    json.dumps(folder.log.lines, ensure_ascii=False).encode()


async def test_a_worker_may_have_the_longest_name_that_a_file_can_have(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    folder.write("n" * 250 + ".json", encode_card(make_card("n" * 250)))

    assert await workers_of(provider) == ["n" * 250, *GOOD]


async def test_thousands_of_strange_files_are_survived_and_not_all_named(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    for number in range(3000):
        (folder.workers / f"bad-{number:04}.json").touch()
        (folder.workers / f"other-{number}").touch()

    for _ in range(3):
        assert await workers_of(provider) == GOOD

    assert len(folder.rejected()) == 1024
    assert folder.log.named("fleet_card_invalid_names_full") == [{"names": 1024}]


async def test_the_event_loop_goes_on_while_many_files_are_named(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    for number in range(1000):
        (folder.workers / f"bad-{number}.json").touch()
    named_at_tick: set[int] = set()

    class Logger(RecordingLogger):
        def warning(self, event: str, **fields: Any) -> None:
            named_at_tick.add(ticks)

    ticks = 0
    provider._logger = Logger()
    listing = asyncio.create_task(provider.list())
    while not listing.done():
        ticks += 1
        await asyncio.sleep(0)

    assert len(named_at_tick) > 10


async def test_a_file_that_was_bad_is_listed_once_it_is_good(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    folder.write("worker-4.json", b"")
    assert await workers_of(provider) == GOOD

    folder.write("worker-4.json", encode_card(make_card("worker-4")))
    assert await workers_of(provider) == [*GOOD, "worker-4"]

    folder.write("worker-4.json", b"{")
    assert await workers_of(provider) == GOOD
    assert folder.rejected() == {"worker-4.json": "not_json"}


async def test_an_unchanged_file_is_opened_but_not_read_again(folder_at: MakeFolder, tmp_path: Path) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        folder.write("worker-1.json", encode_card(make_card("worker-1")))
        folder.write("bad.json", b"{")
        folder.write("large.json", b" " * 5000)
        provider = await folder.start("worker-3")
        assert await workers_of(provider) == ["worker-1"]

        mount.fail_at("read", errno.EIO)
        assert await workers_of(provider) == ["worker-1"]

        folder.write("worker-1.json", encode_card(make_card("worker-1", state="draining")))
        assert await workers_of(provider) == []
        assert folder.rejected()["worker-1.json"] == "unreadable"
        mount.work()
        assert [peer.card["state"] for peer in await provider.list()] == ["draining"]


@pytest.mark.parametrize(
    "change",
    [
        lambda path, new: path.write_bytes(new),
        lambda path, new: (path.with_name("new").write_bytes(new), path.with_name("new").rename(path)),
        lambda path, new: (path.unlink(), path.write_bytes(new)),
    ],
    ids=["written in place", "renamed into place", "deleted and made anew"],
)
async def test_a_change_of_the_same_size_and_time_is_seen(
    folder: Folder, provider: FilesystemRegistry, change: Callable[[Path, bytes], Any]
) -> None:
    path = folder.workers / "worker-1.json"
    await provider.list()
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    change(path, encode_card(make_card("worker-1", state="RUNNING")))
    os.utime(path, ns=times)

    states = {peer.card["worker"]: peer.card["state"] for peer in await provider.list()}

    assert states == {"worker-1": "RUNNING", "worker-2": "running"}


async def test_a_file_that_vanishes_is_forgotten(folder: Folder, provider: FilesystemRegistry) -> None:
    folder.write("bad.json", b"{")
    await provider.list()
    (folder.workers / "worker-1.json").unlink()
    (folder.workers / "bad.json").unlink()

    assert await workers_of(provider) == ["worker-2"]

    assert provider._cards is not None
    assert set(provider._cards._files) == {"worker-2.json"}


async def test_a_known_card_that_the_scan_of_the_folder_missed_is_looked_for(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    """A file system may leave out a name that is replaced while the folder is read."""
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        for worker in GOOD:
            folder.write(f"{worker}.json", encode_card(make_card(worker)))
        provider = await folder.start("worker-3")
        assert await workers_of(provider) == GOOD
        mount.hide("worker-2.json")

        assert await workers_of(provider) == GOOD

        (mount.source / "workers" / "worker-2.json").unlink()
        assert await workers_of(provider) == ["worker-1"]


@pytest.mark.parametrize("types", [True, False], ids=["types told", "types not told"])
async def test_a_file_that_vanishes_while_it_is_looked_at_is_ignored(
    folder_at: MakeFolder, tmp_path: Path, types: bool
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount", types=types) as mount:
        folder = folder_at(mount.path)
        for worker in GOOD:
            folder.write(f"{worker}.json", encode_card(make_card(worker)))
        provider = await folder.start("worker-3")
        mount.fail_at("open", errno.ENOENT, "worker-1.json")

        assert await workers_of(provider) == ["worker-2"]

        assert folder.rejected() == {}
        mount.work()
        assert await workers_of(provider) == GOOD


async def test_a_file_system_that_tells_no_types_is_asked(folder_at: MakeFolder, tmp_path: Path) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount", types=False) as mount:
        folder = folder_at(mount.path)
        folder.write("worker-1.json", encode_card(make_card("worker-1")))
        for number, make in enumerate(NO_FILES.values()):
            make(mount.source / "workers" / f"kind-{number}.json")
        provider = await folder.start("worker-3")

        assert await workers_of(provider) == ["worker-1"]

        assert set(folder.rejected().values()) == {"not_a_file"}
        assert len(folder.rejected()) == len(NO_FILES)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a good card", "dangling link"])
async def test_a_file_that_is_something_else_when_it_is_opened_is_no_file(
    tmp_path: Path, kind: str, folder_at: MakeFolder
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        for worker in [*GOOD, "worker-4"]:
            folder.write(f"{worker}.json", encode_card(make_card(worker)))
        provider = await folder.start("worker-3")
        mount.hang_at("getattr", "worker-4.json")
        listing = asyncio.create_task(workers_of(provider))
        await asyncio.to_thread(mount.wait_until_hung)
        path = mount.source / "workers" / "worker-4.json"
        path.unlink()
        NO_FILES[kind](path)
        mount.work()

        assert await listing == GOOD
        assert folder.rejected() == {"worker-4.json": "not_a_file"}


async def test_a_card_that_was_replaced_while_it_was_read_is_read_again(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        for worker in GOOD:
            folder.write(f"{worker}.json", encode_card(make_card(worker)))
        provider = await folder.start("worker-3")
        mount.fail_at("read", errno.ESTALE, "worker-1.json", times=1)

        assert await workers_of(provider) == GOOD

        assert folder.rejected() == {}


async def test_a_file_that_is_damaged_is_unreadable_and_costs_only_itself(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        for worker in [*GOOD, "worker-4"]:
            folder.write(f"{worker}.json", encode_card(make_card(worker)))
        provider = await folder.start("worker-3")
        mount.fail_at("read", errno.EIO, "worker-4.json")

        for _ in range(2):
            assert await workers_of(provider) == GOOD

        assert folder.rejected() == {"worker-4.json": "unreadable"}


@pytest.mark.parametrize("operation", ["open", "read", "readdir"])
async def test_a_store_that_gives_nothing_but_errors_is_an_error_not_an_empty_list(
    folder_at: MakeFolder, tmp_path: Path, operation: Any
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        for worker in GOOD:
            folder.write(f"{worker}.json", encode_card(make_card(worker)))
        provider = await folder.start("worker-3")
        mount.fail_at(operation, errno.EIO)

        for _ in range(2):
            with pytest.raises(OSError, match=r"Input/output error: '.*/workers'"):
                await provider.list()

        mount.work()
        assert await workers_of(provider) == GOOD
        assert folder.rejected() == {}


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.ETIMEDOUT, errno.EMFILE, errno.EHOSTDOWN])
async def test_an_error_that_is_not_about_one_card_ends_the_listing(
    folder_at: MakeFolder, tmp_path: Path, number: int
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        for worker in GOOD:
            folder.write(f"{worker}.json", encode_card(make_card(worker)))
        provider = await folder.start("worker-3")
        mount.fail_at("open", number, "worker-2.json")

        with pytest.raises(OSError, match="workers") as failed:
            await provider.list()

        assert failed.value.errno == number
        assert folder.rejected() == {}


async def test_a_process_out_of_file_descriptors_gets_an_error_not_a_short_list(
    folder: Folder, provider: FilesystemRegistry
) -> None:
    outcomes: list[object] = []
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    hogs: list[int] = []
    # Above what the test run has open anyway, so that there is room for enough of them.
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 50, limit[1]))
    try:
        with suppress(OSError):
            while True:
                hogs.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(5):
            try:
                outcomes.append(await workers_of(provider))
            except OSError as error:
                outcomes.append(error.errno)
            os.close(hogs.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        for hog in hogs:
            os.close(hog)

    assert outcomes[0] == errno.EMFILE
    assert outcomes[-1] == GOOD
    assert [outcome for outcome in outcomes if outcome not in (errno.EMFILE, GOOD)] == []
    assert folder.rejected() == {}


async def test_a_missing_folder_is_an_error_not_an_empty_list(folder: Folder) -> None:
    provider = await folder.start()

    with pytest.raises(FileNotFoundError, match=str(folder.path)):
        await provider.list()

    folder.path.mkdir()
    with pytest.raises(FileNotFoundError, match=str(folder.workers)):
        await provider.list()
    assert list(folder.path.iterdir()) == []


async def test_an_empty_folder_is_an_empty_list(folder: Folder) -> None:
    folder.workers.mkdir(parents=True)
    provider = await folder.start()

    assert await provider.list() == []


async def test_a_card_of_another_name_in_our_own_file_is_told_once(folder: Folder) -> None:
    ours, theirs = await folder.start("search.1"), await folder.start("search:1")
    await ours.publish(make_card("search.1"))
    assert await workers_of(ours) == ["search.1"]
    assert folder.log.named("fleet_card_file_shared") == []

    for _ in range(2):
        await theirs.publish(make_card("search:1"))
        assert await workers_of(ours) == ["search:1"]
        await ours.publish(make_card("search.1"))

    assert folder.log.named("fleet_card_file_shared") == [
        {"file": "search_1.json", "worker": "search.1", "other": "search:1"}
    ]
    assert folder.log.level_of("fleet_card_file_shared") == "warning"
    assert folder.rejected() == {}
