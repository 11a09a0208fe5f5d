"""A cluster of three: losing the one in use, one that hangs, losing the majority and getting it back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.leases.backend import Held, Lease
from drakkar_etcd._answers import EtcdError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._wire import encoded
from drakkar_etcd.leases import EtcdLeases
from drakkar_etcd.registry import EtcdRegistry
from drakkar_etcd.settings import read_settings
from support.etcd_servers import Etcd, three
from support.etcd_workers import Workers

ONE_SERVER_IN_A_GATE = True
TTL_SECONDS = 12.0
LIMIT_SECONDS = 3.0


@pytest.fixture
def members(program: str, tmp_path: Path) -> Iterator[list[Etcd]]:
    with three(tmp_path, program) as members:
        yield members


def options(members: list[Etcd]) -> dict[str, Any]:
    return {"endpoints": [member.endpoint for member in members]}


def in_use(members: list[Etcd], half: EtcdLeases | EtcdRegistry) -> Etcd:
    client: EtcdClient = half._client
    return next(member for member in members if member.endpoint == client.endpoint)


async def renewed(leases: EtcdLeases, lease: Lease) -> None:
    """As the keeper does: tried again until the ttl is over. To lose it fails."""
    async with asyncio.timeout(0.9 * lease.ttl_seconds):
        while True:
            try:
                renewal = await leases.renew([lease])
            except OSError:
                await asyncio.sleep(0.1)
                continue
            assert [kept.token for kept in renewal.kept] == [lease.token]
            return


async def listed(registry: EtcdRegistry) -> list[str]:
    async with asyncio.timeout(30):
        while True:
            try:
                return sorted(peer.card["worker"] for peer in await registry.list())
            except OSError:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("what", ["killed", "frozen"])
async def test_losing_the_member_in_use_costs_no_leadership_and_no_card(
    members: list[Etcd], workers: Workers, what: str
) -> None:
    context = {"ttl_seconds": TTL_SECONDS, "timeout_seconds": LIMIT_SECONDS}
    one, two = [await workers.leases(name, options(members), **context) for name in ("worker-1", "worker-2")]
    registry = await workers.registry("worker-1", options(members), timeout_seconds=LIMIT_SECONDS)
    await registry.publish(make_card("worker-1"))
    lease = await one.acquire("gc-leader")
    assert isinstance(lease, Lease)
    assert isinstance(await two.acquire("gc-leader"), Held)
    waiting = asyncio.create_task(two.wait(["gc-leader"], 60))
    await asyncio.sleep(0.2)
    hurt = in_use(members, one)
    try:
        if what == "killed":
            hurt.kill()
        else:
            hurt.freeze()

        await renewed(one, lease)

        assert in_use(members, one) is not hurt
        assert await listed(registry) == ["worker-1"]
        async with asyncio.timeout(30):
            while True:
                try:
                    await registry.publish(make_card("worker-1"))
                    await two.acquire("another")  # so that the one who waits notices, too
                    break
                except OSError:
                    await asyncio.sleep(0.1)
        await one.release("gc-leader", lease.token)
        async with asyncio.timeout(20):
            assert await waiting == {"gc-leader"}
    finally:
        hurt.thaw()


async def test_a_watch_at_a_member_without_a_majority_ends_by_itself(members: list[Etcd]) -> None:
    client = EtcdClient(read_settings({"endpoints": members[0].endpoint}))
    client.open(10)
    watch = client.watch({"key": encoded("x")})
    await anext(watch)
    for member in members[1:]:
        member.kill()

    async with asyncio.timeout(30):
        with pytest.raises(EtcdError, match="no leader"):
            await anext(watch)
    await client.close()


async def test_without_a_majority_nothing_is_granted_renewed_or_listed_until_it_is_back(
    members: list[Etcd], workers: Workers
) -> None:
    one = await workers.leases("worker-1", options(members), ttl_seconds=60, timeout_seconds=1)
    registry = await workers.registry("worker-1", options(members), timeout_seconds=1)
    await registry.publish(make_card("worker-1"))
    lease = await one.acquire("gc-leader")
    assert isinstance(lease, Lease)
    assert await listed(registry) == ["worker-1"]
    for member in members[1:]:
        member.kill()

    for call in (
        lambda: one.acquire("notify-leader"),
        lambda: one.renew([lease]),
        one.list,
        registry.list,
        lambda: registry.publish(make_card("worker-1")),
    ):
        with pytest.raises(OSError, match="etcd"):
            await call()

    for member in members[1:]:
        member.start(wait=False)
    for member in members[1:]:
        member.wait_ready()
    await renewed(one, lease)
    assert await listed(registry) == ["worker-1"]
    async with asyncio.timeout(30):
        while (await registry.list())[0].age_seconds is None:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.1)
