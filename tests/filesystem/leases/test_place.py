"""Folders that are wrong, full, read-only or gone: told as errors, never taken for a free lease."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drakkar_filesystem import make_registry
from drakkar_filesystem.leases import FilesystemLeases
from drakkar_filesystem.settings import LeaseSettings, read_lease_settings
from support.lease_folders import NAME, LeaseFolder, granted, rows_of
from support.mounts import tmpfs, unmount


async def fails(backend: FilesystemLeases, match: str) -> None:
    """Every call that needs the folder raises."""
    with pytest.raises(OSError, match=match):
        await backend.acquire(NAME)
    with pytest.raises(OSError, match=match):
        await backend.list()


async def test_folders_are_made_for_their_user_alone(fleet: LeaseFolder) -> None:
    first = await fleet.start()
    await granted(first)

    made = [fleet.path, fleet.leases, fleet.leases / ".holders", fleet.place()]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in fleet.place().iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["leases", "leases/gc", "leases/.holders"])
@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
async def test_what_should_be_a_folder_and_is_none_is_an_error(
    fleet: LeaseFolder, name: str, kind: str
) -> None:
    elsewhere = fleet.path / "elsewhere"
    elsewhere.mkdir(parents=True)
    path = fleet.path / name
    path.parent.mkdir(exist_ok=True)
    make: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(elsewhere),
        "file": lambda: path.write_bytes(b""),
        "pipe": lambda: os.mkfifo(path),
    }
    make[kind]()

    async def begin() -> None:
        first = await fleet.start()
        await first.acquire(NAME)

    with pytest.raises(OSError, match="must be a folder"):
        await begin()

    assert list(elsewhere.iterdir()) == []


async def test_a_record_of_another_user_is_an_error_and_not_free(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)
    before = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == fleet.newest().name:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return before(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)  # root may read everything

    with pytest.raises(PermissionError):
        await second.acquire(NAME)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "small", "64k") as path:
        yield path


async def test_a_full_disk_is_an_error_and_leaves_the_lease_free_for_later(small: Path) -> None:
    fleet = LeaseFolder(small / "fleet")
    first = await fleet.start()
    filler = small / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * 2**20)
    with pytest.raises(OSError, match="No space"):
        await first.acquire(NAME)

    filler.unlink()

    lease = await granted(first)
    assert {path.name for path in fleet.place().iterdir()} == {"base", str(lease.token), f".{lease.token}"}
    await fleet.stop()


async def test_a_full_disk_costs_no_lease_that_is_held(small: Path) -> None:
    """To change a record in its place takes no space."""
    fleet = LeaseFolder(small / "fleet")
    first = await fleet.start()
    lease = await granted(first)
    with pytest.raises(OSError, match="No space"):
        (small / "filler").write_bytes(b"x" * 2**20)

    assert (await first.renew([lease])).kept == [lease]
    await first.release(NAME, lease.token)
    await fleet.stop()


async def test_a_read_only_folder_is_an_error(small: Path) -> None:
    fleet = LeaseFolder(small / "fleet")
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    for backend in (first, second):
        backend._candidate._holders._close()  # else it is too busy to be remounted
    remount(small, "ro")

    for backend in (first, second):
        with pytest.raises(OSError, match="Read-only"):
            await backend.acquire("another")
    with pytest.raises(OSError, match="Read-only"):
        await first.renew([lease])
    remount(small, "rw")

    assert (await first.renew([lease])).kept == [lease]
    await fleet.stop()


def remount(path: Path, how: str) -> None:
    assert os.system(f"mount -o remount,{how} {path}") == 0


async def test_a_folder_whose_mount_has_gone_is_an_error_and_not_made_anew(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    with tmpfs(mount):
        fleet = LeaseFolder(mount / "fleet")
        first = await fleet.start()
        lease = await granted(first)
        unmount(mount)

        with pytest.raises(OSError, match="seems not to be mounted"):
            await first.acquire(NAME)
        for call in (first.list, lambda: first.renew([lease])):
            with pytest.raises(FileNotFoundError):
                await call()
        assert list(mount.iterdir()) == []
        await fleet.stop()


async def test_an_empty_mount_point_is_not_taken_for_the_folder(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    with tmpfs(mount):
        fleet = LeaseFolder(mount)
        first = await fleet.start()
        lease = await granted(first)
        unmount(mount)

        await fails(first, "seems not to be mounted")
        with pytest.raises(OSError, match="seems not to be mounted"):
            await first.renew([lease])
        assert list(mount.iterdir()) == []
        await fleet.stop()


async def test_a_file_system_without_hard_links_is_refused_at_the_start(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_keywords: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(PermissionError):
        await fleet.start()
    assert [path.name for path in fleet.leases.iterdir()] == []


async def test_a_file_system_that_copies_instead_of_linking_is_refused_at_the_start(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool) -> None:
        os.close(os.open(new, os.O_CREAT | os.O_EXCL, dir_fd=dst_dir_fd))

    monkeypatch.setattr(os, "link", copy)

    with pytest.raises(OSError, match="hard links on this file system do not lead to the same file"):
        await fleet.start()


async def test_the_listing_is_not_broken_by_what_lies_in_the_folder(fleet: LeaseFolder) -> None:
    first = await fleet.start()
    await granted(first)
    (fleet.leases / "file").write_bytes(b"x")
    os.mkfifo(fleet.leases / "pipe")
    (fleet.leases / "link").symlink_to(fleet.place())
    (fleet.leases / "empty").mkdir()
    (fleet.leases / "NoPlace").mkdir()
    (fleet.leases / "copy").mkdir()
    shutil.copy(fleet.newest(), fleet.leases / "copy" / "17")
    (fleet.leases / "x" / "18").mkdir(parents=True)

    rows = await rows_of(first)

    assert {name: (row.holder, row.token) for name, row in rows.items() if name != NAME} == {
        "copy": (None, 17),
        "x": (None, 18),
    }
    assert rows[NAME].holder == "worker-1/worker-1-1"


async def test_a_listing_of_nothing_but_errors_is_an_error(fleet: LeaseFolder) -> None:
    first = await fleet.start()
    await granted(first)
    shutil.rmtree(fleet.place())
    fleet.place().write_bytes(b"x")

    with pytest.raises(NotADirectoryError):
        await first.list()


async def test_a_ttl_that_no_contender_could_wait_for_is_refused(fleet: LeaseFolder) -> None:
    with pytest.raises(ValueError, match="lasts at most 86400 s"):
        await fleet.start(ttl_seconds=86401)


def test_the_factory_makes_a_backend_from_the_options_of_the_registry(tmp_path: Path) -> None:
    options = {"dir": str(tmp_path), "explicit": False, "prune_after_seconds": 60, "local": True}

    backend = make_registry.lease_backend(options)

    assert (backend.min_ttl_seconds, backend.fenced, backend.local) == (2, True, True)
    assert not make_registry.lease_backend({"dir": str(tmp_path)}).local
    assert read_lease_settings(options) == LeaseSettings(tmp_path, True, None)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dir": ""}, "fleet.registry.filesystem.dir is empty"),
        ({"dir": "/mnt", "local": "yes"}, "fleet.registry.filesystem.local must be true or false"),
        ({"dir": "/mnt", "boot_id": ""}, "fleet.registry.filesystem.boot_id must be a text"),
        ({"dir": "/mnt", "boot_id": 7}, "fleet.registry.filesystem.boot_id must be a text"),
        ({"dir": "/mnt", "locale": True}, "has no option 'locale', there is dir, prune_after_seconds"),
        ({"dir": "/mnt", "explicit": 1}, "fleet.registry.filesystem.explicit must be true or false"),
    ],
)
def test_options_that_do_not_hold_are_named(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=r"fleet\.registry\.filesystem") as refused:
        make_registry.lease_backend(options)

    assert told in str(refused.value)
