"""The cache of real workers: what a killed one keeps, and what one learns of another."""

import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from drakkar.cache.files import file_of
from support.commands import install
from support.processes import Fleet, WorkerProcess, stop_all, wait_for

FLUSH_SECONDS = 0.3
CACHE = {
    "cache.enabled": True,
    "cache.flush_interval_seconds": FLUSH_SECONDS,
    "fleet.cache_exchange.interval_seconds": 0.3,
    "workers": "counter",
}
MODULE = '''
import asyncio, json, os, time
from drakkar.supervisor.worker import BackgroundWorker


class Counter:
    """Counts on from what the cache has, and tells what it sees of the counters of others."""

    def __init__(self, deps):
        self.cache, self.name = deps.cache, deps.settings.worker_name

    async def run(self, ctx):
        count = await self.cache.get(f"count|{self.name}") or 0
        with open(os.environ["COUNTER_LOG"] + self.name, "a", buffering=1) as log:
            log.write(json.dumps({"began_with": count}) + "\\n")
            try:
                while True:
                    count += 1
                    self.cache.set(f"count|{self.name}", count, scope="cluster")
                    seen = {n: await self.cache.get(f"count|worker-{n}") for n in (1, 2, 3)}
                    log.write(json.dumps({"count": count, "at": time.monotonic(), "seen": seen}) + "\\n")
                    await asyncio.sleep(0.01)
            finally:
                self.cache.set("last", count)
                log.write(json.dumps({"last": count}) + "\\n")


counter = BackgroundWorker("counter", Counter, skip_lease=True)
'''


class Counters:
    """A fleet of workers that count, and what they have written down."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self.log = folder / "log-"
        site = folder / "site"
        install(site, "counter", {}, {"counter_job.py": MODULE}, {"counter": "counter_job:counter"})
        self.environment = {"PYTHONPATH": str(site), "COUNTER_LOG": str(self.log)}

    def start(self, *names: str, **settings: object) -> list[WorkerProcess]:
        keys = CACHE | {key.replace("__", "."): value for key, value in settings.items()}
        workers = [self.fleet.launch(name, keys, quick=True, **self.environment) for name in names]
        for worker in workers:
            worker.wait_until_it_runs()
        return workers

    def lines(self, name: str, key: str) -> list[dict[str, Any]]:
        """Those that it has written and that have `key`; the last one may be cut off."""
        path = Path(f"{self.log}{name}")
        found = []
        for text in path.read_text().splitlines() if path.exists() else ():
            try:
                found.append(json.loads(text))
            except ValueError:
                continue
        return [line for line in found if key in line]

    def wait_for_counts(self, name: str, number: int) -> None:
        wait_for(lambda: len(self.lines(name, "count")) > number, what="counting")

    def began_with(self, name: str, run: int) -> int:
        """What the cache had when the job began for the `run`th time."""
        wait_for(lambda: len(self.lines(name, "began_with")) >= run, what="beginning")
        count: int = self.lines(name, "began_with")[run - 1]["began_with"]
        return count

    def seen(self, name: str) -> dict[str, int | None]:
        """The counts of all, as this one last saw them."""
        counts = self.lines(name, "seen")
        seen: dict[str, int | None] = counts[-1]["seen"] if counts else {}
        return seen


@pytest.fixture
def counters(fleet: Fleet, tmp_path: Path) -> Counters:
    return Counters(fleet, tmp_path)


def test_each_worker_reads_what_the_others_set(counters: Counters) -> None:
    names = ("worker-1", "worker-2", "worker-3")
    workers = counters.start(*names)

    def all_see_all() -> bool:
        return all(all(counters.seen(name).values()) and counters.seen(name) for name in names)

    wait_for(all_see_all, what="everybody seeing everybody's count")
    before = dict(counters.seen("worker-1"))
    wait_for(
        lambda: all((counters.seen("worker-1")[n] or 0) > (before[n] or 0) for n in before),
        what="seeing them go on",
    )
    assert stop_all(workers) == [0, 0, 0]
    assert [worker.events("fleet_peer_request_failed") for worker in workers] == [[], [], []]


def test_a_killed_worker_loses_the_last_interval_at_most(counters: Counters, long: bool) -> None:
    for _ in range(10 if long else 2):
        ran = len(counters.lines("worker-1", "began_with"))
        [worker] = counters.start("worker-1")
        counters.wait_for_counts("worker-1", len(counters.lines("worker-1", "count")) + 200)
        worker.kill()
        killed_at = time.monotonic()
        [worker] = counters.start("worker-1")
        began_with = counters.began_with("worker-1", ran + 2)
        kept = [
            line["count"]
            for line in counters.lines("worker-1", "count")
            if line["at"] < killed_at - FLUSH_SECONDS - 0.7  # a busy machine writes late
        ]
        assert began_with >= max(kept)
        assert worker.stop() == 0


def test_a_clean_stop_loses_nothing(counters: Counters) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        [worker] = counters.start("worker-1", cache__flush_interval_seconds=3600)
        counters.wait_for_counts("worker-1", 20)
        assert worker.stop(number) == 0
        last = counters.lines("worker-1", "last")[-1]["last"]
        ran = len(counters.lines("worker-1", "began_with"))
        [worker] = counters.start("worker-1")
        assert counters.began_with("worker-1", ran + 1) == last
        assert worker.stop() == 0


@contextmanager
def locked(path: Path) -> Iterator[None]:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    yield
    db.close()


@pytest.mark.parametrize("how", ["damaged", "locked"])
def test_a_worker_runs_whatever_is_with_its_file(counters: Counters, fleet: Fleet, how: str) -> None:
    [worker] = counters.start("worker-1")
    counters.wait_for_counts("worker-1", 20)
    assert worker.stop() == 0
    path = file_of(fleet.folder, "worker-1")
    if how == "damaged":
        path.write_bytes(b"garbage" * 1000)
        [worker] = counters.start("worker-1")
    else:
        with locked(path):
            [worker] = counters.start("worker-1")
    [line] = worker.events("cache_file_replaced")
    assert (line["file"], line["reason"]) == (str(path), how)
    assert Path(line["set_aside"]).exists()
    assert counters.began_with("worker-1", 2) == 0
    assert worker.stop() == 0


def test_a_worker_that_was_frozen_goes_on_sharing(counters: Counters) -> None:
    one, other = counters.start("worker-1", "worker-2")
    wait_for(lambda: bool(counters.seen("worker-1").get("2")), what="seeing the other one")
    other.send(signal.SIGSTOP)
    wait_for(lambda: one.online()["worker-2"] is False, what="noticing that it is silent")
    assert one.get("healthz").status_code == 200
    other.send(signal.SIGCONT)
    before = counters.seen("worker-1")["2"]
    wait_for(lambda: counters.seen("worker-1")["2"] != before, what="seeing the other one go on")
    assert stop_all([one, other]) == [0, 0]


def test_the_file_is_readable_by_others_only_between_runs(counters: Counters, fleet: Fleet) -> None:
    [worker] = counters.start("worker-1")
    counters.wait_for_counts("worker-1", 20)
    path = file_of(fleet.folder, "worker-1")
    assert path.stat().st_mode & 0o777 == 0o600
    assert worker.stop() == 0
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM rows").fetchone() == (2,)
    db.close()
