"""Starting: an explicit folder must work, a derived one is best effort."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.provider import ProviderConfigError
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit.harness import INSTANCE, SilentLogger
from drakkar_filesystem import make_registry
from support.folders import Folder, MakeFolder, workers_of
from support.mounts import fill, passthrough, tmpfs

EXPLICIT = {"explicit": True}


async def test_an_explicit_folder_is_made_and_left_empty(folder: Folder) -> None:
    await folder.start(options=EXPLICIT)

    assert folder.names() == set()


async def test_a_folder_is_explicit_when_nothing_is_said(folder: Folder) -> None:
    provider = make_registry({"dir": str(folder.path)})
    folder._providers.append(provider)

    await provider.start(Bare())  # type: ignore[arg-type]  # that is the point

    assert folder.names() == set()


async def test_a_derived_folder_is_not_looked_at(folder: Folder) -> None:
    await folder.start()

    assert not folder.path.exists()


def is_a_file(path: Path) -> None:
    path.rmdir()
    path.write_text("a file")


def is_below_a_file(path: Path) -> None:
    path.rmdir()
    is_a_file(path.parent)


def workers_is_a_link(path: Path) -> None:
    (path / "elsewhere").mkdir()
    (path / "workers").symlink_to("elsewhere")


def workers_is_a_file(path: Path) -> None:
    (path / "workers").write_text("a file")


UNUSABLE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file": (is_a_file, "Not a directory"),
    "below a file": (is_below_a_file, "Not a directory"),
    "workers is a link": (workers_is_a_link, "it must be a folder, not a file and not a link"),
    "workers is a file": (workers_is_a_file, "it must be a folder, not a file and not a link"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
async def test_an_explicit_folder_that_cannot_be_used_stops_the_worker(folder: Folder, kind: str) -> None:
    folder.path = folder.path / "below"
    folder.path.mkdir(parents=True)
    spoil, why = UNUSABLE[kind]
    spoil(folder.path)

    with pytest.raises(ProviderConfigError) as refused:
        await folder.start(options=EXPLICIT)

    told = str(refused.value)
    assert told.startswith(f"fleet.registry.filesystem.dir: cannot use {folder.path}: {why}: /")
    assert told.isprintable()


@pytest.mark.parametrize("kind", UNUSABLE)
async def test_a_derived_folder_that_cannot_be_used_fails_call_by_call_until_it_can(
    folder: Folder, kind: str
) -> None:
    folder.path = folder.path / "below"
    folder.path.mkdir(parents=True)
    UNUSABLE[kind][0](folder.path)
    provider = await folder.start()

    for _ in range(2):
        with pytest.raises(OSError, match=str(folder.path.parent)):
            await provider.publish(make_card("worker-1"))
        with pytest.raises(OSError, match=str(folder.path.parent)):
            await provider.list()

    for path in (folder.path / "workers", folder.path, folder.path.parent):
        if path.is_symlink() or path.is_file():
            path.unlink()
    await provider.publish(make_card("worker-1"))
    assert await workers_of(provider) == ["worker-1"]


async def test_nothing_is_read_or_deleted_where_a_link_named_workers_leads(
    folder_at: MakeFolder, folder: Folder, tmp_path: Path
) -> None:
    other = folder_at(tmp_path / "other")
    old = other.write("worker-2.json", '{"worker":"worker-2"}', age_seconds=1e6)
    left = other.write(".worker-2.json.0123.tmp", "", age_seconds=1e6)
    provider = await folder.start(prune_after_seconds=600)
    await provider.publish(make_card("worker-1"))
    await provider.withdraw("worker-1", INSTANCE)
    folder.workers.rmdir()
    folder.workers.symlink_to(other.workers)

    message = f"it must be a folder, not a file and not a link: '{folder.workers}'"
    with pytest.raises(NotADirectoryError, match=message):
        await provider.publish(make_card("worker-1"))
    with pytest.raises(NotADirectoryError, match=message):
        await provider.list()
    with pytest.raises(NotADirectoryError, match=message):
        await provider.withdraw("worker-2", INSTANCE)

    assert old.exists()
    assert left.exists()
    assert other.names() == {"worker-2.json", ".worker-2.json.0123.tmp"}


async def test_the_folder_itself_may_be_reached_by_a_link(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    folder.path.symlink_to("real")
    provider = await folder.start(options=EXPLICIT)

    await provider.publish(make_card("worker-1"))

    assert (tmp_path / "real" / "workers" / "worker-1.json").exists()


async def test_a_link_that_leads_to_nothing_yet_is_followed_when_the_folder_is_made(
    folder: Folder, tmp_path: Path
) -> None:
    folder.path.symlink_to("real/fleet")
    provider = await folder.start(options=EXPLICIT)

    await provider.publish(make_card("worker-1"))

    assert (tmp_path / "real" / "fleet" / "workers" / "worker-1.json").exists()


@pytest.mark.parametrize(
    ("operation", "number", "why"),
    [
        ("mkdir", errno.EACCES, "Permission denied"),
        ("create", errno.EROFS, "Read-only file system"),
        ("write", errno.ENOSPC, "No space left on device"),
        ("fsync", errno.EIO, "Input/output error"),
    ],
)
async def test_an_explicit_folder_must_take_files(
    folder_at: MakeFolder, tmp_path: Path, operation: Any, number: int, why: str
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        mount.fail_at(operation, number)

        with pytest.raises(
            ProviderConfigError, match=rf"^fleet\.registry\.filesystem\.dir: .*{why}: .*/workers"
        ):
            await folder.start(options=EXPLICIT)

        assert list(mount.source.rglob(".*")) == []


async def test_a_full_disk_stops_a_worker_with_an_explicit_folder(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with tmpfs(tmp_path / "small", "16k") as small:
        folder = folder_at(small)
        folder.workers.mkdir()
        fill(small)

        with pytest.raises(ProviderConfigError, match=r"\.dir: cannot use .*: No space left on device: /"):
            await folder.start(options=EXPLICIT)

        assert folder.names() == set()


async def test_an_explicit_folder_that_does_not_answer_stops_the_worker_in_time(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        mount.hang()

        with pytest.raises(ProviderConfigError) as refused:
            await folder.start(options=EXPLICIT, timeout_seconds=0.5)

        told = str(refused.value)
        assert told.startswith(f"fleet.registry.filesystem.dir: cannot use {mount.path}: ")
        assert told.endswith("did not answer within 0.45 s")
        assert told.isprintable()


async def test_a_folder_that_answers_too_late_is_left_without_a_probe(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        mount.hang_at("fsync")
        with pytest.raises(ProviderConfigError, match="did not answer"):
            await folder.start(options=EXPLICIT, timeout_seconds=1)
        mount.work()
        again = await folder.start(options=EXPLICIT)

        await again.publish(make_card("worker-1"))

        assert folder.names() == {"worker-1.json"}


async def test_a_derived_folder_that_does_not_answer_lets_the_worker_start(
    folder_at: MakeFolder, tmp_path: Path
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        folder = folder_at(mount.path)
        mount.hang()
        provider = await folder.start(timeout_seconds=0.5)

        with pytest.raises(TimeoutError, match=r"/workers did not answer within 0\.45 s"):
            await provider.publish(make_card("worker-1"))

        mount.work()
        await provider.publish(make_card("worker-1"))


async def test_the_message_of_a_strange_path_is_one_line(folder: Folder) -> None:
    folder.path = folder.path / "a\nb"
    folder.path.parent.write_text("a file")

    with pytest.raises(ProviderConfigError) as refused:
        await folder.start(options=EXPLICIT)

    assert r"/a\nb: Not a directory" in str(refused.value)
    assert str(refused.value).isprintable()


class Bare:
    """The context of an implementation that knows nothing of ours."""

    worker = "worker-1"
    instance = INSTANCE
    cluster = ""
    logger = SilentLogger()
    options: dict[str, Any] = {}  # noqa: RUF012  stands for a frozen field


async def test_a_context_without_our_fields_will_do(folder: Folder) -> None:
    provider = folder.make()
    await provider.start(Bare())  # type: ignore[arg-type]  # that is the point

    await provider.publish(make_card("worker-1"))
    folder.write("worker-2.json", '{"worker":"worker-2"}', age_seconds=86390)
    folder.write("worker-3.json", '{"worker":"worker-3"}', age_seconds=86410)

    assert await workers_of(provider) == ["worker-1", "worker-2"]


async def test_calls_before_the_start_and_after_the_stop_are_refused(folder: Folder) -> None:
    provider = folder.make()
    for call in (provider.list, lambda: provider.publish(make_card("worker-1"))):
        with pytest.raises(RuntimeError, match="not been started"):
            await call()

    provider = await folder.start()
    await provider.stop()
    for call in (provider.list, lambda: provider.publish(make_card("worker-1"))):
        with pytest.raises(RuntimeError, match="not running"):
            await call()


async def test_stopping_twice_or_without_a_start_is_fine(folder: Folder) -> None:
    provider = folder.make()

    await provider.stop()
    await provider.stop()
