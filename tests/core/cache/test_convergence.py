"""Five workers that write the same keys, fail, start again and lose pages: in the end all have the same."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from drakkar.cache.exchange import Exchange, ExchangeTiming
from drakkar.cache.files import file_of
from drakkar.cache.rows import Row, wins
from drakkar.cache.service import CacheService, CacheTiming
from drakkar.fleet.service import Peer
from drakkar.server.peer_api import peer_router
from drakkar.telemetry.metrics import ExchangeMetrics
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from support.caches import flush
from support.clock import FakeClock
from support.log import RecordingLogger

WORKERS = [f"worker-{number}" for number in range(1, 6)]
CLUSTERS = ["", "", "", "other", "other"]
KEYS = ["a", "b", "c|/?&ä", "名" * 200, "e", "f"]
STEPS = 120


class Network:
    """Brings requests to the workers, and loses some."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.losing = 0.0
        self.apps: dict[str, FastAPI] = {}

    def connect(self, url: str) -> "Wire":
        return Wire(self, url)


class Wire:
    """A connection over it."""

    def __init__(self, network: Network, url: str) -> None:
        self.network, self.url = network, httpx.URL(url)
        self.body = b""

    async def ask(self, query: str) -> tuple[int, dict[bytes, bytes]]:
        rng, losing = self.network.rng, self.network.losing
        app = self.network.apps.get(self.url.host)
        if app is None or rng.random() < losing / 2:
            raise ConnectionError("nobody there")
        request = httpx.Request("GET", self.url.copy_with(query=query.encode()))
        answer = await httpx.ASGITransport(app=app).handle_async_request(request)
        self.body = await answer.aread()
        if rng.random() < losing:
            self.body = self.body[: rng.randrange(len(self.body))]
        return answer.status_code, {}

    async def piece(self) -> bytes:
        body, self.body = self.body, b""
        return body

    def close(self) -> None:
        self.body = b""


class Node:
    """One worker: its file outlives its process."""

    def __init__(self, name: str, cluster: str, folder: Path, fleet: "Fleet") -> None:
        self.name, self.cluster, self.folder, self.fleet = name, cluster, folder, fleet
        self.clock = FakeClock()
        self.log = RecordingLogger()
        self.instance = 0
        self.shows_marks = True
        self.service: CacheService
        self.exchange: Exchange

    async def start(self) -> None:
        self.instance += 1
        self.service = CacheService(
            self.name,
            self.folder,
            CacheTiming(max_memory_entries=3),
            serves=True,
            on_marks=lambda: None,
            clock=self.clock,
            logger=self.log,
        )
        await self.service.start()
        self.exchange = Exchange(
            self.cluster,
            ExchangeTiming(page_size=self.fleet.rng.choice([1, 2, 3, 500]), timeout_seconds=60),
            self.service.thread,
            peers=lambda: [node.card() for node in self.fleet.listed if node is not self],
            store=self.service.keep,
            clock=self.clock,
            logger=self.log,
            metrics=ExchangeMetrics(CollectorRegistry()),
            connect=self.fleet.network.connect,
        )
        app = FastAPI()
        app.include_router(peer_router(self.service))
        self.fleet.network.apps[self.name] = app

    async def stop(self, *, killed: bool = False) -> None:
        del self.fleet.network.apps[self.name]
        if killed:
            self.service.cache.changed.clear()
        await self.service.stop()
        assert killed or self.log.named("cache_changes_lost") == []

    def lose_file(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()
        assert not file_of(self.folder, self.name).exists()

    def card(self) -> Peer:
        card: dict[str, Any] = {
            "worker": self.name,
            "cluster": self.cluster,
            "url": f"http://{self.name}/",
            "state": "running",
        }
        if self.shows_marks:
            card |= {"instance": str(self.instance), "features": self.service.features()}
        return Peer(card, 1.0, "online")

    async def rows(self) -> dict[str, Row]:
        store = self.service._store
        assert store is not None
        found = await self.service.thread.run(lambda: store._db.execute("SELECT * FROM rows").fetchall())
        return {row[0]: Row._make(row) for row in found}


class Fleet:
    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.network = Network(rng)
        self.nodes = [
            Node(name, cluster, folder / name, self) for name, cluster in zip(WORKERS, CLUSTERS, strict=True)
        ]
        self.listed = list(self.nodes)
        self.newest: dict[str, Row] = {}
        """Of each key the row that wins over all that were ever on a disk."""

        self.count = 0

    async def note(self, node: Node) -> None:
        for key, row in (await node.rows()).items():
            known = self.newest.get(key)
            if known is None or wins(row, known):
                self.newest[key] = row

    def set(self, node: Node) -> None:
        self.count += 1
        node.service.cache.set(self.rng.choice(KEYS), self.count, scope="global")

    async def step(self, node: Node, others: dict[str, Callable[[Node], None]]) -> None:
        rng = self.rng
        often = ["set", "set", "set", "cycle", "cycle", "cycle"]
        what = rng.choice([*often, "flush", "time", "clock", "restart", "kill", "peers", "marks", *others])
        if what == "set":
            self.set(node)
        elif what == "flush":
            await flush(node.service)
        elif what == "cycle":
            self.network.losing = rng.choice([0, 0.3])
            await node.exchange.cycle()
        elif what == "time":
            for each in self.nodes:
                each.clock.step_wall(rng.choice([0, 0.001, 5]))
        elif what == "clock":
            node.clock.step_wall(rng.choice([-100, -0.002, 0.001, 100]))
        elif what in ("restart", "kill"):
            await node.stop(killed=what == "kill")
            await node.start()
        elif what == "peers":
            self.listed = rng.sample(self.nodes, rng.randint(0, len(self.nodes)))
        elif what == "marks":
            node.shows_marks = not node.shows_marks
        else:
            others[what](node)
        await self.note(node)

    async def quiet(self) -> None:
        """Nobody writes any more, everybody is listed and answers."""
        self.network.losing = 0
        self.listed = list(self.nodes)
        for node in self.nodes:
            await flush(node.service)
            await self.note(node)
        for _ in range(40):  # who failed sits out up to sixteen
            for node in self.nodes:
                await node.exchange.cycle()


@asynccontextmanager
async def fleet(folder: Path, rng: random.Random) -> AsyncIterator[Fleet]:
    made = Fleet(folder, rng)
    for node in made.nodes:
        await node.start()
    try:
        yield made
    finally:
        for node in made.nodes:
            await node.stop()


SEEDS = 8
LONG_SEEDS = 400


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(LONG_SEEDS if metafunc.config.getoption("--long") else SEEDS))


async def test_all_come_to_have_the_row_that_wins_over_all_others(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with fleet(tmp_path, rng) as workers:
        for _ in range(STEPS):
            await workers.step(rng.choice(workers.nodes), {})
        await workers.quiet()
        for node in workers.nodes:
            assert await node.rows() == workers.newest, node.name
            for key, row in workers.newest.items():
                assert await node.service.cache.get(key) == int(row.value)


async def test_after_deletions_and_lost_files_what_is_set_last_reaches_all(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)

    def delete(node: Node) -> None:
        node.service.cache.delete(rng.choice(KEYS))

    async with fleet(tmp_path, rng) as workers:
        for _ in range(STEPS):
            node = rng.choice(workers.nodes)
            await workers.step(node, {"delete": delete, "delete again": delete})
            if rng.random() < 0.05:
                await node.stop(killed=True)
                node.lose_file()
                node.clock.step_wall(-100)
                node.shows_marks = True  # else only the hourly new beginning helps
                await node.start()
        for node in workers.nodes:
            await flush(node.service)
            await workers.note(node)
        latest = max((row.updated_at_ms for row in workers.newest.values()), default=0)
        last: dict[str, int] = {}
        for key in KEYS:
            node = rng.choice(workers.nodes)
            node.clock.step_wall(max(0, latest / 1000 + 1 - node.clock.wall().timestamp()))
            workers.count += 1
            node.service.cache.set(key, workers.count, scope="global")
            last[key] = workers.count
        for node in workers.nodes:
            node.shows_marks = True  # one that cannot tell that it began anew is read anew after 120 cycles
        await workers.quiet()
        for node in workers.nodes:
            assert {key: await node.service.cache.get(key) for key in KEYS} == last, node.name


async def test_a_cluster_row_stays_in_its_cluster(tmp_path: Path) -> None:
    async with fleet(tmp_path, random.Random(0)) as workers:
        for node in workers.nodes:
            node.service.cache.set(node.name, 1, scope="cluster")
        await workers.quiet()
        for node in workers.nodes:
            same = {other.name for other in workers.nodes if other.cluster == node.cluster}
            assert {*await node.rows()} == same
