"""The trials of every store, over Redis."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from drakkar_redis._keys import Keys
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from support.redis_servers import RedisServer
from support.servers import ServerProcess, running
from support.side_by_side import side_by_side
from support.store_trials import TRIALS, Trial

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


@pytest.fixture(scope="session")
def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, long: bool
) -> Iterator[Callable[[pytest.Item], None]]:
    """Each over a server of its own."""

    async def play(params: Mapping[str, Any]) -> None:
        store = RedisTrialStore(tmp_path_factory.mktemp("redis"))
        with running(store.server):
            await params["trial"](store, 50 if long else 1)

    with side_by_side(request, test_it_passes_the_trial.__name__, play) as wait:
        yield wait


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.__name__)
def test_it_passes_the_trial(
    request: pytest.FixtureRequest, trials: Callable[[pytest.Item], None], trial: Trial
) -> None:
    trials(request.node)
