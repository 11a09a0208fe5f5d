"""What broke other people's fleets, tried over etcd."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from drakkar_etcd._wire import Folder, decoded
from drakkar_etcd.leases import EtcdLeases
from drakkar_etcd.registry import EtcdRegistry
from support import store_trials
from support.etcd_servers import Etcd, single
from support.side_by_side import side_by_side

ONE_SERVER_IN_A_GATE = True
PREFIX = "/fleet"


class EtcdTrials:
    """Satisfies `store_trials.TrialStore`."""

    ttl_seconds = 3.0
    late_seconds = 1.0

    def __init__(self, server: Etcd) -> None:
        self.server: Etcd = server
        self.port = server.port

    def make_backend(self, port: int) -> EtcdLeases:
        return EtcdLeases(self._options(port))

    def make_provider(self, port: int) -> EtcdRegistry:
        return EtcdRegistry(self._options(port))

    async def overwrite(self, name: str) -> None:
        self.server.put(_lease(name), '{"base": 1, "holder": "worker-9/0123456789abcdef", "ttl": 30}')

    async def delete(self, name: str) -> None:
        self.server.delete(_lease(name))

    async def spoil(self, name: str) -> None:
        self.server.put(_lease(name), b"\xff{", lease=self._lease_of(name))

    async def plant(self, cards: Mapping[str, bytes]) -> None:
        for worker, data in cards.items():
            key = decoded(Folder(f"{PREFIX}/cards/").key(worker)).decode()
            await asyncio.to_thread(self.server.put, key, data)

    async def forget(self) -> None:
        for lease in self.server.leases():
            self.server.revoke(lease)
        self.server.delete_all()

    def restart(self, keep_data: bool) -> None:
        self.server.kill()
        if not keep_data:
            self.server.lose_data()
        self.server.start()

    def _lease_of(self, name: str) -> int:
        """So that what is put there lives as long as its holder does."""
        found = self.server.get(_lease(name))
        return 0 if found is None else int(found.get("lease", 0))

    def _options(self, port: int) -> dict[str, object]:
        return {"endpoints": [f"http://127.0.0.1:{port}"], "prefix": PREFIX}


def _lease(name: str) -> str:
    return f"{PREFIX}/leases/{name}"


@pytest.fixture(scope="session")
def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, long: bool
) -> Iterator[Callable[[pytest.Item], None]]:
    """Each over a server of its own."""

    async def play(params: Mapping[str, Any]) -> None:
        with single(tmp_path_factory.mktemp("etcd"), params["program"]) as server:
            await params["trial"](EtcdTrials(server), 50 if long else 1)

    with side_by_side(request, test_it_passes_the_trial.__name__, play) as wait:
        yield wait


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trial", store_trials.TRIALS, ids=lambda trial: trial.__name__)
def test_it_passes_the_trial(
    request: pytest.FixtureRequest,
    trials: Callable[[pytest.Item], None],
    program: str,
    trial: store_trials.Trial,
) -> None:
    trials(request.node)
