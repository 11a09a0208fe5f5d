"""Three real workers on a real server, under the witness: the leader is killed, the server restarted.

A store is a row of `STORES`, and everything here is tried on each.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import witness
from support.consul_servers import Consul
from support.etcd_servers import Etcd
from support.processes import Fleet, WorkerProcess, stop_all, until_all_see, wait_for
from support.redis_servers import RedisServer
from support.servers import ServerProcess, running

NAMES = ["worker-1", "worker-2", "worker-3"]
SLACK_SECONDS = 10.0
"""For a machine that is busy with other things."""


@dataclass(frozen=True)
class Store:
    """A server that keeps its data over a restart, and how workers are told of it."""

    server: ServerProcess
    settings: Mapping[str, object]
    ttl_seconds: float
    late_seconds: float
    """How much later than its ttl a lease whose holder died is free at most."""

    freed_at: Callable[[], float] | None = None
    """Waits until whoever leads `sole` now has lost the lease; when that was, as the store itself tells. None
    where it is not asked."""


def redis_store(folder: Path) -> Store:
    server = RedisServer(folder, "--appendonly", "yes", "--appendfsync", "always")
    settings = {"fleet.registry.provider": "redis", "fleet.registry.redis.url": server.url}
    return Store(server.process, settings, 4.0, 0.5)


def consul_store(folder: Path) -> Store:
    server = Consul(folder)
    settings = {
        "fleet.registry.provider": "consul",
        "fleet.registry.consul.address": server.address,
    }
    return Store(server, settings, 20.0, 1.0, lambda: server.freed_at("drakkar/leases/sole-leader"))


def etcd_store(folder: Path) -> Store:
    server = Etcd(folder)
    settings = {
        "fleet.registry.provider": "etcd",
        "fleet.registry.etcd.endpoints": server.endpoint,
    }
    return Store(server, settings, 4.0, 0.5)


STORES = {"consul": consul_store, "etcd": etcd_store, "redis": redis_store}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](tmp_path / "server")
    with running(made.server):
        yield made


@contextmanager
def three_workers(fleet: Fleet, store: Store, log: Path) -> Iterator[list[WorkerProcess]]:
    """Running, each seeing all, one leading the only lease."""
    settings = {
        **store.settings,
        "workers": "sole",
        "supervisor.leases.ttl_seconds": store.ttl_seconds,
        "supervisor.leases.renew_seconds": store.ttl_seconds / 4,
        "supervisor.leases.retry_seconds": store.ttl_seconds / 8,
        "supervisor.leases.timeout_seconds": 1,
    }
    environment = witness.install(fleet.home / "site", log)
    workers = [fleet.launch(name, settings, quick=True, **environment) for name in NAMES]
    for worker in workers:
        worker.wait_until_it_runs()
    until_all_see(workers, NAMES)
    wait_for(lambda: len(leaders(workers)) == 1, what="somebody leading")
    yield workers


def leaders(workers: list[WorkerProcess]) -> list[WorkerProcess]:
    def leads(worker: WorkerProcess) -> bool:
        jobs: list[dict[str, Any]] = worker.get("api/v1/supervisor").json()["workers"]
        return any(lane["status"] == "leading" and lane["token"] for job in jobs for lane in job["lanes"])

    return [worker for worker in workers if leads(worker)]


def test_a_fleet_survives_the_death_of_its_leader_and_a_restart_of_the_store(
    fleet: Fleet, store: Store, tmp_path: Path
) -> None:
    log = tmp_path / "witness.log"
    with three_workers(fleet, store, log) as workers, ThreadPoolExecutor(1) as pool:
        [leader] = leaders(workers)
        freed = None if store.freed_at is None else pool.submit(store.freed_at)
        leader.kill()
        killed_at = time.monotonic()
        others = [worker for worker in workers if worker is not leader]
        wait_for(lambda: len(leaders(others)) == 1, what="another one leading")
        assert time.monotonic() - killed_at <= store.ttl_seconds + store.late_seconds + SLACK_SECONDS

        instances = [worker.instance() for worker in others]
        store.server.kill()
        wait_for(lambda: all(failing(worker) for worker in others), what="noticing")
        assert all(worker.get("healthz").status_code == 200 for worker in others)
        store.server.start()
        began = time.monotonic()
        wait_for(
            lambda: all(online(worker) == [each.name for each in others] for worker in others),
            what="seeing each other online",
        )
        wait_for(lambda: len(leaders(others)) == 1, what="somebody leading again")
        assert time.monotonic() - began <= 2 * store.ttl_seconds + store.late_seconds + 2 * SLACK_SECONDS

        again = fleet.launch("worker-4", dict(store.settings))
        again.wait_until_it_runs()
        wait_for(lambda: "worker-4" in online(others[0]), what="a new worker being seen")
        assert [worker.instance() for worker in others] == instances
        assert stop_all([*others, again]) == [0, 0, 0]
    said = witness.read(log)
    assert said.faults == []
    [terms] = said.terms.values()
    assert len(terms) >= 2
    began_at = next(each.at for each in said.hand_overs() if each.old_pid == leader.pid)
    print(f"the next one began {began_at - killed_at:.2f} s after the kill")
    if freed is not None:
        assert began_at - freed.result() <= store.late_seconds


def test_a_polite_stop_hands_over_at_once(fleet: Fleet, store: Store, tmp_path: Path) -> None:
    """Trial: a polite stop looks like a crash to the others."""
    log = tmp_path / "witness.log"
    with three_workers(fleet, store, log) as workers:
        while len(workers) > 1:
            [leader] = leaders(workers)
            assert leader.stop() == 0
            workers.remove(leader)
            wait_for(lambda: len(leaders(workers)) == 1, what="another one leading")
        assert workers[0].stop() == 0
    said = witness.read(log)
    assert said.faults == []
    assert len(list(said.hand_overs())) == 2
    for hand_over in said.hand_overs():
        assert hand_over.seconds < 0.5 * store.ttl_seconds


SECRETS: dict[str, dict[str, object]] = {
    "consul": {
        "fleet.registry.consul.address": "127.0.0.1:1",
        "fleet.registry.consul.token": "hunter2-0d0f6e5c",
    },
    "redis": {
        "fleet.registry.redis.url": "redis://me:hunter2@127.0.0.1:1",
        "fleet.registry.redis.password": "hunter2-too",
    },
}
"""Settings with secrets in them, `hunter2`, for a server that is not there."""


@pytest.mark.parametrize("provider", SECRETS)
def test_passwords_of_a_store_show_nowhere(fleet: Fleet, provider: str) -> None:
    """Trial: secrets in logs."""
    worker = fleet.launch(
        "worker-1",
        {**SECRETS[provider], "fleet.registry.provider": provider, "workers": "sole"},
        quick=True,
        **witness.install(fleet.home / "site", fleet.home / "witness.log"),
    )
    worker.wait_until_it_runs()
    wait_for(lambda: worker.metric('drakkar_fleet_registry_errors_total{op="list"}') >= 2)
    wait_for(lambda: bool(worker.events("lease_backend_start_failed")))
    paths = (
        "",
        "api/v1/workers",
        "api/v1/identity",
        "api/v1/supervisor",
        "api/v1/leases",
        "readyz",
        "metrics",
    )
    shown = "".join(worker.get(path).text for path in paths)
    assert worker.stop() == 0
    assert provider in shown
    assert "hunter2" not in shown + worker.log.read_text()


def failing(worker: WorkerProcess) -> bool:
    registry: dict[str, Any] = worker.get("readyz").json()["registry"]
    return bool(registry["failing_for_seconds"])


def online(worker: WorkerProcess) -> list[str]:
    return [name for name, is_online in worker.online().items() if is_online]
