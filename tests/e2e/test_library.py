"""Workers as a library, on the filesystem provider: in one process and one event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from drakkar.errors import ConfigError
from drakkar.settings import load_settings
from drakkar.worker import Worker
from support.log import RecordingLogger
from support.mounts import bound, passthrough, tmpfs, unmount
from support.supervised import Job
from support.waiting import until
from support.workers import free_port, get, is_free, make_worker, other_tasks, rows, settings

NAMES = ["worker-1", "worker-2", "worker-3"]


def file_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("drakkar")]


def has_peers(worker: Worker, number: int) -> bool:
    return len(worker.peers()) == number


def failing(worker: Worker) -> set[str]:
    """The operations of the registry that fail now."""
    health = worker.registry_health()
    assert health is not None
    return {*health.failing}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def cards(folder: Path) -> list[str]:
    workers = folder / "fleet" / "workers"
    return names_in(workers) if workers.is_dir() else []


def leases(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("**/leases/[a-z]*")]


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    yield
    assert other_tasks() == set()
    await until(lambda: file_threads() == [])


def worker_in(folder: Path, name: str, log: RecordingLogger | None = None, **overrides: str) -> Worker:
    return make_worker(name, "filesystem", log=log, storage__dir=str(folder), **overrides)


async def test_three_workers_with_a_storage_folder_alone_see_each_other_and_leave_nothing(
    tmp_path: Path,
) -> None:
    settings = load_settings(
        environ={"DK_STORAGE__DIR": str(tmp_path), "DK_FLEET__REGISTRY__REFRESH_SECONDS": "0.2"}
    )
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Worker(settings, environ={})) for _ in range(3)]
        names = sorted(worker.name for worker in workers)
        assert len(set(names)) == 3
        for worker in workers:
            await until(partial(has_peers, worker, 2))
            assert {row["worker_name"]: row["online"] for row in await rows(worker)} == dict.fromkeys(
                names, True
            )
        assert len(cards(tmp_path)) == 3
        assert len(file_threads()) == 3
    assert cards(tmp_path) == []
    assert not any(is_free(port) is False for port in (worker.served.port or 0 for worker in workers))


async def test_without_a_folder_there_is_no_registry(tmp_path: Path) -> None:
    log = RecordingLogger()
    async with make_worker("worker-1", "filesystem", log=log) as worker:  # its storage.dir is empty
        assert [row["worker_name"] for row in await rows(worker)] == ["worker-1"]
        assert (await get(worker, "readyz")).json()["registry"] is None
        assert file_threads() == []
    assert [(level, event) for level, event, _ in log.lines] == [
        ("warning", "fleet_registry_disabled_no_dir")
    ]


async def test_a_shared_folder_is_enough(tmp_path: Path) -> None:
    async with make_worker("worker-1", "filesystem", shared__dir=str(tmp_path)):
        await until(lambda: cards(tmp_path) == ["worker-1.json"])


async def test_without_the_server_there_is_no_card(tmp_path: Path) -> None:
    log = RecordingLogger()
    async with worker_in(tmp_path, "worker-1", log, ui__enabled="false") as worker:
        assert worker.url is None
    assert [event for _, event, _ in log.lines] == ["fleet_registry_disabled_no_ui"]
    assert names_in(tmp_path) == []


def leading_in(folder: Path, name: str, job: Job, log: RecordingLogger, **overrides: str) -> Worker:
    values = settings("filesystem", worker_name=name, storage__dir=str(folder), **overrides)
    return Worker(values, workers=[job.worker()], environ={}, logger=log)


async def test_without_the_server_leases_are_those_of_the_configured_provider(tmp_path: Path) -> None:
    """Rule 15 of leases: not those of the provider `none`, which is what such a worker has for cards."""
    log = RecordingLogger()
    async with leading_in(tmp_path, "worker-1", Job(), log, ui__enabled="false") as worker:
        await until(lambda: list(worker.leader_for()) == ["gc"])
        assert leases(tmp_path) == ["gc-leader"]


async def test_while_the_folder_cannot_be_used_nothing_leads(tmp_path: Path) -> None:
    """Rule 15 of leases: a registry that failed to start, and what takes its place, never changes them."""
    log, job = RecordingLogger(), Job()
    (tmp_path / "fleet").write_text("")
    async with leading_in(tmp_path, "worker-1", job, log) as worker:
        await until(lambda: len(log.named("lease_backend_start_failed")) >= 2)
        assert job.starts == []
        (tmp_path / "fleet").unlink()
        await until(lambda: list(worker.leader_for()) == ["gc"])
        assert leases(tmp_path) == ["gc-leader"]


@pytest.mark.parametrize("kind", ["a file", "below a file", "a link to nowhere"])
async def test_a_folder_that_was_set_and_cannot_be_used_leaves_nothing_behind(
    tmp_path: Path, kind: str
) -> None:
    port = free_port()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere/at/all")
    path = (
        tmp_path / {"a file": "file", "below a file": "file/below", "a link to nowhere": "link/below"}[kind]
    )
    if kind == "a link to nowhere":
        (tmp_path / "nowhere").write_text("")
    worker = make_worker(
        "worker-1", "filesystem", ui__port=str(port), fleet__registry__filesystem__dir=str(path)
    )
    with pytest.raises(ConfigError, match=r"^fleet\.registry\.filesystem\.dir: cannot use "):
        await worker.start()
    assert is_free(port)
    assert names_in(tmp_path) == ["file", "link", *(["nowhere"] if kind == "a link to nowhere" else [])]


async def test_a_start_that_is_cancelled_at_any_time_leaves_no_card_and_no_task(tmp_path: Path) -> None:
    for delay_seconds in (n * 0.005 for n in range(40)):
        worker = worker_in(tmp_path, "worker-1")
        starting = asyncio.create_task(worker.start())
        await asyncio.wait({starting}, timeout=delay_seconds)
        if starting.done():
            await worker.stop()
            return
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        assert cards(tmp_path) == []
        assert other_tasks() == set()
    pytest.fail("it never had the time to start")


async def test_goes_on_while_the_folder_hangs(tmp_path: Path) -> None:
    with passthrough(tmp_path / "server", tmp_path / "mount") as mount:
        worker = worker_in(mount.path, "worker-1", fleet__registry__timeout_seconds="0.5")
        async with worker_in(mount.path, "worker-2", fleet__registry__timeout_seconds="0.5"), worker:
            await until(lambda: len(worker.peers()) == 1)
            mount.hang()
            # Nothing ends the hanging: an event loop that waited for it would not come back.
            await until(lambda: failing(worker) == {"publish", "list"})
            assert [row["worker_name"] for row in await rows(worker)] == ["worker-1", "worker-2"]
            mount.work()
            await until(lambda: failing(worker) == set())


async def test_an_outage_costs_the_peers_nothing_but_their_age(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    with tmpfs(tmp_path / "server") as server, bound(server, mount):
        async with worker_in(mount, "worker-1") as worker, worker_in(mount, "worker-2"):
            await until(lambda: len(worker.peers()) == 1)
            unmount(mount)
            await until(lambda: failing(worker) == {"publish", "list"})
            first = worker.peers()[0].age_seconds
            await until(lambda: (worker.peers()[0].age_seconds or 0) > (first or 0) + 0.5)
            with bound(server, mount):
                await until(lambda: (worker.peers()[0].age_seconds or 9) < 0.4)
                await until(lambda: failing(worker) == set())


async def test_a_store_that_comes_back_empty_is_filled_again(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    with tmpfs(mount):
        async with worker_in(mount, "worker-1") as worker, worker_in(mount, "worker-2"):
            await until(lambda: len(worker.peers()) == 1)
            unmount(mount)
            await until(lambda: failing(worker) == {"publish", "list"})
            with tmpfs(mount):  # its peer is told as gone until that one's next heartbeat
                await until(lambda: failing(worker) == set() and len(worker.peers()) == 1)
                assert cards(mount) == ["worker-1.json", "worker-2.json"]
