"""The cache as a part of the worker: who has it, and when it is opened, written and closed."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drakkar.cache.files import file_of
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext
from drakkar.worker import Worker
from support.caches import a_row, page_of
from support.log import RecordingLogger
from support.scripted import Script, fails, hangs, scripted_plugin, stranger
from support.scripted_server import reply, serving
from support.waiting import until
from support.workers import get, settings

CACHE = {"cache.enabled": "true", "cache.flush_interval_seconds": "0.05"}
QUICK = CACHE | {"fleet.cache_exchange.interval_seconds": "0.1"}


def caching(folder: Path | str, *, log: RecordingLogger | None = None, jobs: Any = (), **more: str) -> Worker:
    keys = {"storage.dir": str(folder), "supervisor.leases.provider": "none"} | QUICK
    keys |= {key.replace("__", "."): text for key, text in more.items()}
    logger = log if log is not None else RecordingLogger()
    return Worker(
        settings("scripted", worker_name="worker-1", **keys), workers=jobs, environ={}, logger=logger
    )


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """The store behind the provider `scripted`."""
    with scripted_plugin(tmp_path, monkeypatch) as script:
        yield script


class Job:
    """Keeps what it was given; sets a value when it is cancelled."""

    def __init__(self) -> None:
        self.deps: Dependencies | None = None
        self.running = asyncio.Event()

    def build(self, deps: Dependencies) -> "Job":
        self.deps = deps
        return self

    async def run(self, ctx: RunContext) -> None:
        assert self.deps is not None
        self.running.set()
        try:
            await asyncio.Event().wait()
        finally:
            if self.deps.cache is not None:
                self.deps.cache.set("last", "words", scope="cluster")


async def test_there_is_none_by_default(script: Script, tmp_path: Path) -> None:
    job = Job()
    worker = caching(tmp_path / "s", jobs=[BackgroundWorker("job", job.build)], cache__enabled="false")
    assert worker.cache is None
    async with worker:
        await job.running.wait()
        assert worker.cache is None
        assert job.deps is not None
        assert job.deps.cache is None
    assert not (tmp_path / "s").exists()


async def test_background_workers_have_the_one_of_the_worker(script: Script, tmp_path: Path) -> None:
    job = Job()
    async with caching(tmp_path / "s", jobs=[BackgroundWorker("job", job.build)]) as worker:
        await job.running.wait()
        assert job.deps is not None
        assert worker.cache is not None
        assert job.deps.cache is worker.cache


async def test_what_a_run_sets_as_it_ends_is_kept(script: Script, tmp_path: Path) -> None:
    job = Job()
    async with caching(
        tmp_path / "s", jobs=[BackgroundWorker("job", job.build)], cache__flush_interval_seconds="3600"
    ):
        await job.running.wait()
    async with caching(tmp_path / "s") as worker:
        assert worker.cache is not None
        assert await worker.cache.get("last") == "words"


async def test_the_cache_is_written_before_the_card_goes(script: Script, tmp_path: Path) -> None:
    closed: list[bool] = []
    worker = caching(tmp_path / "s", cache__flush_interval_seconds="3600")

    def look() -> None:
        assert worker.cache is not None
        closed.append(worker.cache.closed and not worker.cache.changed)

    async with worker:
        assert worker.cache is not None
        worker.cache.set("a", 1)
        await until(lambda: script.workers() == ["worker-1"])
        script.on["withdraw"] = look
    assert closed == [True]


async def test_a_start_that_fails_closes_the_file(script: Script, tmp_path: Path) -> None:
    script.on["start"] = hangs
    worker = caching(tmp_path / "s")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await worker.start()
    script.on.clear()
    log = RecordingLogger()
    async with caching(tmp_path / "s", log=log):
        pass
    assert log.named("cache_file_replaced") == []


async def test_a_bad_file_costs_what_was_in_it_and_a_line(script: Script, tmp_path: Path) -> None:
    path = file_of(tmp_path, "worker-1")
    path.write_bytes(b"garbage" * 1000)
    log = RecordingLogger()
    async with caching(tmp_path, log=log) as worker:
        assert worker.state == "running"
        assert worker.cache is not None
        worker.cache.set("a", 1)
    [line] = log.named("cache_file_replaced")
    assert line["file"] == str(path)


async def test_a_folder_that_cannot_be_made_costs_the_disk_alone(script: Script, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = RecordingLogger()
    async with caching(tmp_path / "file" / "s", log=log) as worker:
        assert worker.cache is not None
        worker.cache.set("a", 1)
        assert await worker.cache.get("a") == 1
        assert (await get(worker, "api/v1/peer/cache/changes?scopes=cluster")).status_code == 404
    assert len(log.named("cache_file_failed")) == 1


async def test_a_silent_peer_delays_no_stop(script: Script, tmp_path: Path) -> None:
    with serving(lambda send: time.sleep(20)) as server:
        script.strangers = [stranger(peer_card(server.url))]
        async with caching(tmp_path / "s", fleet__cache_exchange__timeout_seconds="30") as worker:
            await until(lambda: bool(server.requests))
            began = time.monotonic()
            await worker.stop()
            assert time.monotonic() - began < 15


async def test_peers_are_asked_while_the_registry_cannot_be_read(script: Script, tmp_path: Path) -> None:
    """A store that cannot be reached is not a fleet of nobody."""
    with serving(reply(page_of([a_row("a")])), reply(page_of([]))) as server:
        script.strangers = [stranger(peer_card(server.url))]
        async with caching(tmp_path / "s") as worker:
            await until(lambda: len(worker.peers()) == 1)
            script.on |= dict.fromkeys(("publish", "list"), fails(OSError("gone")))
            asked = len(server.requests)
            await until(lambda: len(server.requests) > asked + 3)
            assert worker.cache is not None
            assert await worker.cache.get("a") == "x"


async def test_the_exchange_may_be_off_while_the_cache_is_on(script: Script, tmp_path: Path) -> None:
    with serving(reply(page_of([a_row("a")]))) as server:
        script.strangers = [stranger(peer_card(server.url))]
        async with caching(tmp_path / "s", fleet__cache_exchange__enabled="false") as worker:
            await until(lambda: script.calls.count("list") > 5)
            assert worker.cache is not None
            worker.cache.set("a", 1, scope="global")
    assert server.requests == []


async def test_without_the_server_it_is_kept_and_not_shared(script: Script, tmp_path: Path) -> None:
    for value in (None, 1):
        async with caching(tmp_path / "s", ui__enabled="false") as worker:
            assert worker.cache is not None
            assert await worker.cache.get("a") == value
            worker.cache.set("a", 1, scope="global")


def peer_card(url: str) -> dict[str, Any]:
    return {"schema": 1, "worker": "worker-2", "cluster": "", "url": url, "state": "running"}
