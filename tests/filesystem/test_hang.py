"""A folder that hangs, for real: the process that serves it is stopped."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit.harness import INSTANCE
from drakkar_filesystem.registry import FilesystemRegistry
from support.folders import Folder, MakeFolder, child, workers_of
from support.mounts import Operation, passthrough
from support.waiting import until


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "drakkar-filesystem"]


async def expect_no_answer(provider: FilesystemRegistry) -> None:
    """Every call ends by its time limit."""
    for call in (
        provider.list,
        lambda: provider.publish(make_card("worker-1")),
        lambda: provider.withdraw("worker-1", INSTANCE),
    ):
        with pytest.raises(TimeoutError, match="did not answer within"):
            await call()


async def test_calls_end_by_their_time_limit_and_the_folder_is_used_again_without_a_restart(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(timeout_seconds=0.5)
        await provider.publish(make_card("worker-1"))

        for _ in range(2):
            mount.hang()
            await expect_no_answer(provider)
            mount.work()
            await provider.publish(make_card("worker-1", state="draining"))
            assert [peer.card["state"] for peer in await provider.list()] == ["draining"]

        assert folder.names() == {"worker-1.json"}


async def test_nothing_piles_up_while_the_folder_hangs(tmp_path: Path, folder_at: MakeFolder) -> None:
    def in_use() -> tuple[int, int, int, int]:
        descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        return len(threads()), provider._thread._jobs.qsize(), len(asyncio.all_tasks()), descriptors

    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        provider = await folder_at(mount.path).start(timeout_seconds=0.02)
        mount.hang()
        await expect_no_answer(provider)
        first = in_use()

        for _ in range(30):
            await expect_no_answer(provider)

        assert in_use() == first
        assert first[:3] == (1, 0, 1)


async def test_stopping_waits_for_nothing_and_the_thread_ends_when_the_folder_answers(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        provider = await folder_at(mount.path).start(timeout_seconds=0.05)
        mount.hang()
        await expect_no_answer(provider)
        (thread,) = threads()

        await provider.stop()

        assert thread.is_alive()
        mount.work()
        await until(lambda: not thread.is_alive())


@pytest.mark.parametrize("operation", ["create", "write", "fsync"])
async def test_a_publish_that_was_given_up_has_no_effect_later(
    tmp_path: Path, folder_at: MakeFolder, operation: Operation
) -> None:
    """Else it could bring back the card of a worker whose withdrawal was given up as well."""
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(timeout_seconds=1)
        await provider.publish(make_card("worker-1", state="running"))
        mount.hang_at(operation)
        with pytest.raises(TimeoutError):
            await provider.publish(make_card("worker-1", state="draining"))
        mount.work()

        assert [peer.card["state"] for peer in await provider.list()] == ["running"]
        assert folder.names() == {"worker-1.json"}


async def test_a_withdrawal_comes_after_the_publish_that_was_given_up(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(timeout_seconds=1)
        mount.hang_at("rename")
        with pytest.raises(TimeoutError):
            await provider.publish(make_card("worker-1"))

        withdrawing = asyncio.create_task(provider.withdraw("worker-1", INSTANCE))
        await asyncio.sleep(0)
        mount.work()
        await withdrawing

        assert await provider.list() == []
        assert folder.names() == set()


async def test_a_publish_that_was_given_up_does_not_go_through_the_rest_of_its_steps(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        folder.workers.mkdir()
        provider = await folder.start(timeout_seconds=1)
        mount.hang_at("create")
        with pytest.raises(TimeoutError):
            await provider.publish(make_card("worker-1"))
        mount.hang_at("write")
        mount.go_on()

        assert await provider.list() == []
        assert not mount.is_hung()


async def test_a_publish_that_was_given_up_makes_no_folder(tmp_path: Path, folder_at: MakeFolder) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        provider = await folder_at(mount.path / "cards").start(timeout_seconds=0.3)
        mount.hang()
        with pytest.raises(TimeoutError):
            await provider.publish(make_card("worker-1"))
        mount.work()

        await provider.withdraw("worker-1", INSTANCE)  # runs after the one that was given up

        assert list(mount.source.iterdir()) == []


async def test_a_listing_that_was_given_up_deletes_nothing(tmp_path: Path, folder_at: MakeFolder) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(timeout_seconds=1, prune_after_seconds=600)
        await provider.publish(make_card("worker-1"))
        folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=1e6)
        folder.write(".worker-2.json.0123.tmp", "", age_seconds=1e6)
        mount.hang_at("read", "worker-2")
        with pytest.raises(TimeoutError):
            await provider.list()
        mount.work()

        await provider.withdraw("worker-9", INSTANCE)

        assert folder.names() == {"worker-1.json", "worker-2.json", ".worker-2.json.0123.tmp"}
        assert await workers_of(provider) == ["worker-1"]


async def test_a_listing_that_was_given_up_at_the_last_look_deletes_nothing(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(timeout_seconds=2, prune_after_seconds=600)
        await provider.publish(make_card("worker-1"))
        folder.write("worker-2.json", encode_card(make_card("worker-2")), age_seconds=1e6)
        mount.hang_at("open", "worker-2")
        listing = asyncio.create_task(provider.list())
        await asyncio.to_thread(mount.wait_until_hung)
        mount.hang_at("open", "worker-2")
        mount.go_on()
        with pytest.raises(TimeoutError):
            await listing
        mount.work()

        await provider.withdraw("worker-9", INSTANCE)

        assert folder.names() == {"worker-1.json", "worker-2.json"}


async def test_a_listing_that_was_given_up_deletes_no_temporary_file(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(timeout_seconds=1, prune_after_seconds=600)
        await provider.publish(make_card("worker-1"))
        folder.write(".worker-2.json.0123.tmp", "", age_seconds=1e6)
        mount.hang_at("getattr", ".tmp")
        with pytest.raises(TimeoutError):
            await provider.list()
        mount.work()

        await provider.withdraw("worker-9", INSTANCE)

        assert folder.names() == {"worker-1.json", ".worker-2.json.0123.tmp"}


async def test_a_withdrawal_that_was_given_up_deletes_nothing(tmp_path: Path, folder_at: MakeFolder) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        provider = await folder.start(timeout_seconds=1)
        await provider.publish(make_card("worker-1"))
        mount.hang_at("read")
        with pytest.raises(TimeoutError):
            await provider.withdraw("worker-1", INSTANCE)
        mount.work()

        assert await workers_of(provider) == ["worker-1"]


async def test_a_folder_whose_server_died_is_an_error_and_a_new_mount_is_taken(
    tmp_path: Path, folder_at: MakeFolder
) -> None:
    folder = folder_at(tmp_path / "mount")
    with passthrough(tmp_path / "source", folder.path) as mount:
        provider = await folder.start()
        await provider.publish(make_card("worker-1"))
        mount.die()

        for _ in range(2):
            with pytest.raises(OSError, match="Transport endpoint is not connected"):
                await provider.list()
            with pytest.raises(OSError, match="Transport endpoint is not connected"):
                await provider.publish(make_card("worker-1"))

    with passthrough(tmp_path / "source", folder.path):
        assert await workers_of(provider) == ["worker-1"]
        await provider.publish(make_card("worker-1"))


TICKING = """
import asyncio, sys
from drakkar.fleet.testkit import make_card, make_context
from drakkar_filesystem.registry import FilesystemRegistry

async def main():
    provider = FilesystemRegistry({"dir": sys.argv[1], "explicit": False})
    await provider.start(make_context("worker-1", timeout_seconds=60))
    calls = {
        "list": provider.list,
        "publish": lambda: provider.publish(make_card("worker-1")),
        "withdraw": lambda: provider.withdraw("worker-1", make_card("worker-1")["instance"]),
    }
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while call := (await reader.readline()).decode().strip():
        task = asyncio.ensure_future(calls[call]())
        told = asyncio.ensure_future(reader.readline())  # it hangs
        ticks = 0
        while ticks < 200:
            await asyncio.sleep(0.001)
            ticks += told.done() and not task.done()
        print("ticked", flush=True)
        await task
        print("done", flush=True)
    await provider.stop()

asyncio.run(main())
"""


@pytest.mark.parametrize("types", [True, False], ids=["types told", "types not told"])
async def test_the_event_loop_goes_on_wherever_a_call_hangs(tmp_path: Path, types: bool) -> None:
    """In a process of its own: a call that holds the interpreter's lock would stop this one for good."""
    hangs: list[tuple[str, Operation, str]] = [
        *(("list", operation, "worker-1.json") for operation in ("getattr", "open", "read")),
        *(("list", operation, "workers") for operation in ("getattr", "readdir")),
        *(("publish", operation, ".tmp") for operation in ("create", "write", "fsync", "rename")),
        *(("withdraw", operation, "worker-1.json") for operation in ("getattr", "open", "unlink")),
    ]
    with passthrough(tmp_path / "source", tmp_path / "mount", types=types) as mount:
        async with child(TICKING, mount.path) as process:
            assert await process.line() == "ready"
            for call, operation, name in hangs:
                Folder(mount.source).write("worker-1.json", encode_card(make_card("worker-1")))
                mount.hang_at(operation, name)
                await process.answer(call)
                await asyncio.to_thread(mount.wait_until_hung)
                await process.answer("it hangs")
                assert await process.line() == "ticked", (call, operation)
                mount.work()
                assert await process.line() == "done", (call, operation)
            await process.answer()
            assert await process.status() == 0


EXITING = """
import asyncio, sys
from drakkar.fleet.testkit import make_card, make_context
from drakkar_filesystem.registry import FilesystemRegistry

async def main():
    provider = FilesystemRegistry({"dir": sys.argv[1], "explicit": False})
    await provider.start(make_context("worker-1", timeout_seconds=0.3))
    await provider.publish(make_card("worker-1"))
    print("ready", flush=True)
    sys.stdin.readline()
    for call in (provider.list, lambda: provider.withdraw("worker-1", make_card("worker-1")["instance"])):
        try:
            await call()
        except TimeoutError:
            print("timed out", flush=True)
    await provider.stop()

asyncio.run(main())
"""


async def test_a_process_ends_while_its_folder_hangs(tmp_path: Path) -> None:
    """The kernel waits for an answer to a request that the server of a FUSE folder has taken already; so the
    server here has not."""
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        async with child(EXITING, mount.path) as process:
            assert await process.line() == "ready"
            mount.hang()
            await process.answer()
            assert await process.line() == "timed out"
            assert await process.line() == "timed out"
            assert await process.status() == 0
            assert mount.is_hung()
