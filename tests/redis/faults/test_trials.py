"""The trials of every store, over Redis."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from drakkar_redis._keys import Keys
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from support.redis_servers import RedisServer
from support.servers import ServerProcess, running
from support.store_trials import ALONE, SIDE_BY_SIDE, Trial, side_by_side

KEYS = Keys("drakkar")


class RedisTrialStore:
    """A server that writes every change to its disk before it answers."""

    ttl_seconds = 2.0
    late_seconds = 0.5

    def __init__(self, folder: Path) -> None:
        self._server = RedisServer(folder, "--appendonly", "yes", "--appendfsync", "always")
        self._folder = folder
        self.port = self._server.port
        self.server: ServerProcess = self._server.process

    def make_backend(self, port: int) -> RedisLeases:
        return RedisLeases({"url": f"redis://127.0.0.1:{port}"})

    def make_provider(self, port: int) -> RedisRegistry:
        return RedisRegistry({"url": f"redis://127.0.0.1:{port}"})

    async def overwrite(self, name: str) -> None:
        self.command("SET", KEYS.lease(name), "77:77:2000:worker-9/0123456789abcdef")

    async def delete(self, name: str) -> None:
        self.command("DEL", KEYS.lease(name))

    async def spoil(self, name: str) -> None:
        self.command("DEL", KEYS.lease(name))
        self.command("HSET", KEYS.lease(name), "\x00", "garbage")

    async def plant(self, cards: Mapping[str, bytes]) -> None:
        for name, data in cards.items():
            self.command("HSET", KEYS.cards, name, data)

    async def forget(self) -> None:
        self.command("FLUSHALL")

    def restart(self, keep_data: bool) -> None:
        self.server.kill()
        if not keep_data:
            for path in sorted(self._folder.rglob("appendonlydir/*")):
                path.unlink()
        self.server.start()

    def command(self, *words: str | bytes) -> Any:
        return self._server.command(*words)


@contextmanager
def running_store(folder: Path) -> Iterator[RedisTrialStore]:
    store = RedisTrialStore(folder)
    with running(store.server):
        yield store


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("trial", ALONE, ids=lambda trial: trial.__name__)
async def test_it_passes_the_trial(trial: Trial, tmp_path: Path, long: bool) -> None:
    with running_store(tmp_path) as store:
        await trial(store, 50 if long else 1)


@pytest.mark.timeout(1000)
async def test_it_passes_the_trials_that_mostly_wait(tmp_path: Path, long: bool) -> None:
    await side_by_side(SIDE_BY_SIDE, lambda name: running_store(tmp_path / name), 50 if long else 1)
