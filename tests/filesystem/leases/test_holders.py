"""The locked file of a process: what proves its death on this host, and what does not."""

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from drakkar_filesystem import _holders
from support.folders import make_older
from support.lease_folders import NAME, TTL, LeaseFolder, granted, refused


def holder_file(fleet: LeaseFolder, instance: str = "worker-1-1") -> Path:
    return fleet.leases / ".holders" / instance


def is_free(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def die(backend: Any) -> None:
    """What the kernel does to its lock at the end of a process."""
    fcntl.flock(backend._candidate._holders._file, fcntl.LOCK_UN)


async def test_a_record_names_a_file_that_its_holder_has_locked(fleet: LeaseFolder) -> None:
    first = await fleet.start()
    assert not is_free(holder_file(fleet))
    await granted(first)

    found = holder_file(fleet).stat()
    record = fleet.record()
    assert (record["instance"], record["device"], record["inode"]) == (
        "worker-1-1",
        found.st_dev,
        found.st_ino,
    )
    assert record["boot_id"] == _holders.read_boot_id()


async def test_a_dead_holder_is_followed_at_once(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    await refused(second)

    die(first)

    assert await second.wait([NAME], 60) == {NAME}
    assert (await granted(second)).token == lease.token + 1


@pytest.mark.parametrize("field", ["boot_id", "device", "inode"])
@pytest.mark.parametrize("value", ["other", None])
async def test_a_free_lock_proves_nothing_unless_all_of_it_matches(
    fleet: LeaseFolder, field: str, value: str | None
) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)
    other = None if value is None else "another-host" if field == "boot_id" else 7
    fleet.newest().write_text(json.dumps({**fleet.record(), field: other}))

    die(first)

    assert (await refused(second)).retry_after_seconds == TTL
    fleet.clock.now += TTL
    await granted(second)


async def test_a_missing_file_proves_nothing(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)
    holder_file(fleet).unlink()

    await refused(second)


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
async def test_another_file_in_its_place_proves_nothing(fleet: LeaseFolder, kind: str) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)
    path = holder_file(fleet)
    path.rename(path.with_name("moved"))
    if kind == "file":
        path.touch()
    elif kind == "link":
        path.symlink_to("moved")
        die(first)
    else:
        os.mkfifo(path)

    await refused(second)


async def test_a_held_lock_prevents_nothing(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)
    await refused(second)
    assert not is_free(holder_file(fleet))

    fleet.clock.now += TTL

    await granted(second)


async def test_contenders_that_look_at_once_do_not_take_each_other_for_the_holder(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)
    die(first)

    with holder_file(fleet).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        await granted(second)


async def test_where_locks_are_not_there_leases_go_by_time_alone(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    assert fleet.record()["inode"] is None

    assert (await first.renew([lease])).kept == [lease]
    await refused(second)


async def test_where_every_lock_succeeds_leases_go_by_time_alone(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)

    assert (await first.renew([lease])).kept == [lease]
    await refused(second)


async def test_a_holder_whose_descriptors_were_all_closed_gives_up_its_leases(fleet: LeaseFolder) -> None:
    """Programs do that when they become daemons. Others may take it for dead from then on."""
    first = await fleet.start()
    leases = [await granted(first, f"gc-{number}") for number in range(3)]
    holders = first._candidate._holders

    stranger = holders._file
    other = os.open(fleet.path, os.O_RDONLY)
    os.dup2(other, stranger)  # another file has its number now
    os.close(other)

    assert (await first.renew(leases)).lost == leases
    again = await granted(first, "gc-0")
    assert again.token == leases[0].token + 1
    assert (await first.renew([again])).kept == [again]
    assert not is_free(holder_file(fleet))
    os.fstat(stranger)  # not closed by us
    os.close(stranger)


async def test_a_file_that_was_deleted_is_made_anew_with_the_next_grant(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    old = await granted(first, "old")
    shutil.rmtree(fleet.leases / ".holders")
    assert (await first.renew([old])).kept == [old]

    await granted(first, "new")
    die(first)

    await granted(second, "new")
    await refused(second, "old")


async def test_a_stop_with_nothing_held_deletes_the_file(fleet: LeaseFolder) -> None:
    first = await fleet.start()
    lease = await granted(first)
    await first.release(NAME, lease.token)

    await first.stop()

    assert not holder_file(fleet).exists()


async def test_a_stop_with_a_lease_held_is_no_proof_of_death(fleet: LeaseFolder) -> None:
    """A run that would not end may still be at work under it, until the process ends."""
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)

    await first.stop()

    assert not is_free(holder_file(fleet))
    await refused(second)
    os.close(_holders._kept.pop())
    await granted(second)


async def test_files_of_processes_long_gone_are_deleted_at_a_start(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    gone, recent = holder_file(fleet, "gone"), holder_file(fleet, "recent")
    for path in (gone, recent):
        path.touch()
    make_older(gone, 2 * 86400 + 60)
    make_older(holder_file(fleet), 2 * 86400 + 60)

    await fleet.start("worker-2")

    assert {path.name for path in gone.parent.iterdir()} == {"recent", "worker-1-1", "worker-2-1"}
    assert (await granted(first)).name == NAME


async def test_a_renewal_tells_that_the_file_is_in_use(fleet: LeaseFolder) -> None:
    first = await fleet.start()
    lease = await granted(first)
    make_older(holder_file(fleet), 86400)

    await first.renew([lease])

    assert holder_file(fleet).stat().st_mtime > fleet.place().stat().st_mtime - 60


async def test_a_twin_with_the_same_instance_has_no_file_of_its_own(fleet: LeaseFolder) -> None:
    first, twin = await fleet.start("worker-1", "same"), await fleet.start("worker-2", "same")
    third = await fleet.start("worker-3")
    await granted(first)
    await granted(twin, "other")
    assert fleet.record("other")["inode"] is None

    die(first)

    await granted(third)
    await refused(third, "other")
