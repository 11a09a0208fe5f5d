"""Endpoints of different clusters behind one list: said loudly, and nobody leads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.leases.backend import Held, Lease
from drakkar_etcd import _clusters
from drakkar_etcd._answers import UnansweredError
from drakkar_etcd.leases import EtcdLeases
from support.etcd_servers import Etcd, add_users
from support.etcd_workers import Workers
from support.log import RecordingLogger
from support.servers import free_ports
from support.waiting import until

NAME = "gc-leader"
TOLD = r"http://\S+ is of the cluster \w+, http://\S+ of \w+, see fleet\.registry\.etcd\.endpoints"
CONTEXT: dict[str, Any] = {"ttl_seconds": 5, "timeout_seconds": 3}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def clusters(program: str, tmp_path: Path, stack: ExitStack) -> list[Etcd]:
    """Two, of one member each."""
    members = [Etcd(tmp_path / f"cluster-{number}", program=program) for number in (1, 2)]
    for member in members:
        stack.callback(member.kill)
        member.start()
    return members


def options(members: list[Etcd]) -> dict[str, Any]:
    return {"endpoints": [member.endpoint for member in members], "prefix": "/fleet"}


async def granted(leases: EtcdLeases) -> Lease:
    """As the keeper does: tried until it works."""
    async with asyncio.timeout(60):
        while True:
            try:
                answer = await leases.acquire(NAME)
            except OSError:
                answer = None
            if isinstance(answer, Lease):
                return answer
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("users", [False, True], ids=["", "with users"])
async def test_two_workers_that_ask_two_clusters_do_not_both_lead(
    clusters: list[Etcd], workers: Workers, users: bool
) -> None:
    given = {}
    if users:
        given = {"username": "fleet", "password": "fleet"}
        for member in clusters:
            add_users(member, "/fleet/")
    log = RecordingLogger()
    one = await workers.leases("worker-1", options(clusters) | given, **CONTEXT)
    two = await workers.leases("worker-2", options(clusters[::-1]) | given, **CONTEXT)
    registry = await workers.registry("worker-1", options(clusters) | given, logger=log)

    for leases in (one, two):
        with pytest.raises(UnansweredError, match=TOLD):
            await leases.acquire(NAME)
    for _ in range(5):
        await registry.publish(make_card("worker-1"))
    await until(lambda: log.named("etcd_clusters_differ") != [])

    (line,) = log.named("etcd_clusters_differ")
    assert log.level_of("etcd_clusters_differ") == "error"
    assert all(member.endpoint in line["error"] for member in clusters)
    assert line["error"].endswith(", see fleet.registry.etcd.endpoints")
    assert [peer.card["worker"] for peer in await registry.list()] == ["worker-1"]


async def test_a_cluster_that_is_found_when_the_other_fails_keeps_and_makes_no_leader(
    clusters: list[Etcd], workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = clusters
    second.kill()
    log = RecordingLogger()
    one = await workers.leases("worker-1", options(clusters), **CONTEXT)
    registry = await workers.registry("worker-1", options(clusters), logger=log)
    lease = await one.acquire(NAME)
    assert isinstance(lease, Lease)
    second.start()
    first.kill()

    calls: list[Callable[[], Awaitable[Any]]] = [lambda: one.renew([lease]), lambda: one.acquire("gc-2")]
    for call in calls:
        with pytest.raises(UnansweredError, match=TOLD):
            await call()
    await registry.publish(make_card("worker-1"))
    await until(lambda: log.named("etcd_clusters_differ") != [])

    first.start()
    second.kill()
    monkeypatch.setattr(_clusters, "FORGET_SECONDS", 1.0)
    assert (await granted(one)).token > lease.token


async def test_an_endpoint_that_stays_away_is_forgotten(
    clusters: list[Etcd], workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_clusters, "FORGET_SECONDS", 1.0)
    first, second = clusters
    one = await workers.leases("worker-1", options(clusters), **CONTEXT)
    with pytest.raises(UnansweredError, match=TOLD):
        await one.acquire(NAME)
    first.kill()
    with pytest.raises(UnansweredError, match=TOLD):
        await one.acquire(NAME)

    await granted(one)

    assert second.get(f"/fleet/leases/{NAME}") is not None


class Fleet:
    """Three members, and the same ones as of another cluster."""

    def __init__(self, folder: Path, program: str, stack: ExitStack) -> None:
        self._ports = free_ports(6)
        self._folder, self._program, self._stack = folder, program, stack
        self.members = [self.member(at, "first") for at in range(3)]
        for member in self.members:
            member.start(wait=False)
        for member in self.members:
            member.wait_ready()

    def member(self, at: int, token: str) -> Etcd:
        cluster = ",".join(f"member-{n}=http://127.0.0.1:{port}" for n, port in enumerate(self._ports[3:]))
        member = Etcd(
            self._folder / f"{token}-{at}",
            program=self._program,
            name=f"member-{at}",
            ports=[self._ports[at], self._ports[at + 3]],
            cluster=cluster,
            arguments=[f"--initial-cluster-token={token}"],
        )
        self._stack.callback(member.kill)
        return member

    def make_anew(self, at: int) -> Etcd:
        self.members[at].kill()
        self.members[at] = self.member(at, "second")
        self.members[at].start(wait=False)
        return self.members[at]


@pytest.mark.parametrize("how", ["at once", "one by one"])
async def test_a_cluster_that_was_made_anew_is_taken_without_a_restart_of_workers(
    how: str, program: str, tmp_path: Path, stack: ExitStack, workers: Workers
) -> None:
    fleet = Fleet(tmp_path, program, stack)
    log = RecordingLogger()
    one, two = [
        await workers.leases(name, options(fleet.members), **CONTEXT) for name in ("worker-1", "worker-2")
    ]
    registry = await workers.registry("worker-1", options(fleet.members), logger=log)
    lease = await granted(one)
    assert isinstance(await two.acquire(NAME), Held)
    before = fleet.members[0].call("/maintenance/status", {})["header"]["cluster_id"]

    if how == "at once":
        for member in fleet.members:
            member.kill()
        for at in range(3):
            fleet.make_anew(at)
    else:
        for at in range(3):
            fleet.make_anew(at)
            if at == 1:
                for member in fleet.members[:2]:
                    member.wait_ready()
                # The third one is still of the old cluster, and alone.
                for leases in (one, two):
                    with pytest.raises(OSError, match="etcd"):
                        await leases.acquire(NAME)
    for member in fleet.members:
        member.wait_ready()
    assert fleet.members[0].call("/maintenance/status", {})["header"]["cluster_id"] != before

    again = await granted(two)

    assert again.token > lease.token
    assert (await two.renew([again])).kept
    assert isinstance(await one.acquire(NAME), Held)
    await registry.publish(make_card("worker-1"))
    if how == "at once":
        assert log.named("etcd_clusters_differ") == []
