"""What broke other people's fleets, tried over Consul.

The servers of these tests let sessions end sooner than others do; they end as any session does, by real time.
"""

import asyncio
import secrets
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from drakkar_consul._names import place_of
from drakkar_consul.leases import ConsulLeases
from drakkar_consul.registry import ConsulRegistry
from support import store_trials
from support.consul_servers import QUICK_SESSIONS, Consul, agent
from support.side_by_side import side_by_side

PREFIX = "fleet"


class ConsulTrials:
    """Satisfies `store_trials.TrialStore`."""

    ttl_seconds = 4.0
    late_seconds = 1.0

    def __init__(self, server: Consul) -> None:
        self.server: Consul = server
        self.port = server.port

    def make_backend(self, port: int) -> ConsulLeases:
        backend = ConsulLeases(self._options(port))
        backend.min_ttl_seconds = 1.0
        return backend

    def make_provider(self, port: int) -> ConsulRegistry:
        return ConsulRegistry(self._options(port))

    async def overwrite(self, name: str) -> None:
        record = '{"holder": "worker-9/0123456789abcdef", "name": "gc-leader"}'
        await asyncio.to_thread(self.server.put, _lease(name), record)

    async def delete(self, name: str) -> None:
        await asyncio.to_thread(self.server.delete, _lease(name))

    async def spoil(self, name: str) -> None:
        await asyncio.to_thread(self.server.put, _lease(name), b"\xff{")

    async def plant(self, cards: Mapping[str, bytes]) -> None:
        for worker, data in cards.items():
            key = urllib.parse.quote(f"{PREFIX}/cards/{place_of(worker)}")
            await asyncio.to_thread(self.server.put, key, data)

    async def forget(self) -> None:
        def forget() -> None:
            for session in self.server.sessions():
                self.server.destroy(session["ID"])
            self.server.delete("?recurse")

        await asyncio.to_thread(forget)

    def restart(self, keep_data: bool) -> None:
        self.server.kill()
        if not keep_data:
            self.server.lose_data()
        self.server.start()

    def _options(self, port: int) -> dict[str, object]:
        return {"address": f"127.0.0.1:{port}", "prefix": PREFIX}


def _lease(name: str) -> str:
    return f"{PREFIX}/leases/{place_of(name)}"


@pytest.fixture(scope="session")
def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, long: bool
) -> Iterator[Callable[[pytest.Item], None]]:
    """Each over a server of its own."""

    async def play(params: Mapping[str, Any]) -> None:
        with agent(tmp_path_factory.mktemp(f"consul-{secrets.token_hex(4)}"), QUICK_SESSIONS) as server:
            await params["trial"](ConsulTrials(server), 50 if long else 1)

    with side_by_side(request, test_it_passes_the_trial.__name__, play) as wait:
        yield wait


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trial", store_trials.TRIALS, ids=lambda trial: trial.__name__)
def test_it_passes_the_trial(
    request: pytest.FixtureRequest,
    trials: Callable[[pytest.Item], None],
    trial: store_trials.Trial,
) -> None:
    trials(request.node)
