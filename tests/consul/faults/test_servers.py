"""Three servers, of which one or two are lost; and agents that forget."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_consul import _keys as keys
from drakkar_consul._client import ConsulClient, ConsulError
from drakkar_consul.leases import ConsulLeases
from drakkar_consul.registry import ConsulRegistry
from drakkar_consul.settings import read_settings
from support.consul_servers import Consul, agent, leader_of, three

NAME = "gc-leader"
WORKER = "worker-1"
TTL = 20.0
BACK_SECONDS = 60.0
"""How long servers may take to agree on a leader, on a busy machine."""


@pytest.fixture
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Consul]]:
    with three(tmp_path_factory.mktemp("consul-three")) as made:
        yield made


@asynccontextmanager
async def halves(server: Consul, worker: str) -> AsyncIterator[tuple[ConsulLeases, ConsulRegistry]]:
    options = {"address": server.address, "prefix": "fleet"}
    backend, provider = ConsulLeases(options), ConsulRegistry(options)
    try:
        instance = secrets.token_hex(8)
        await backend.start(make_context(worker, instance, ttl_seconds=TTL, timeout_seconds=3))
        await provider.start(make_card_context(worker, instance, timeout_seconds=3))
        yield backend, provider
    finally:
        await provider.stop()
        await backend.stop()


async def eventually(call: Callable[[], Awaitable[Any]]) -> Any:
    until = time.monotonic() + BACK_SECONDS
    while True:
        try:
            return await call()
        except ConsulError:
            assert time.monotonic() < until
            await asyncio.sleep(0.1)


async def test_a_killed_leader_of_the_servers_costs_nobody_a_lease(members: list[Consul]) -> None:
    leader = leader_of(members)
    first, second = (member for member in members if member is not leader)
    async with halves(first, WORKER) as (backend, provider), halves(second, "worker-2") as (other, reader):
        lease = await eventually(lambda: backend.acquire(NAME))
        assert isinstance(lease, Lease)
        await provider.publish(make_card(WORKER))
        waiting = asyncio.create_task(eventually(lambda: other.wait([NAME], 60)))

        leader.kill()

        renewal = await eventually(lambda: backend.renew([lease]))
        assert [each.token for each in renewal.kept] == [lease.token]
        assert isinstance(await eventually(lambda: other.acquire(NAME)), Held)
        assert [peer.card["worker"] for peer in await eventually(reader.list)] == [WORKER]
        await eventually(lambda: provider.publish(make_card(WORKER)))
        assert not waiting.done() or waiting.result() == frozenset()
        waiting.cancel()
        await asyncio.wait({waiting})

        await eventually(lambda: backend.release(NAME, lease.token))
        taken = await eventually(lambda: other.acquire(NAME))
        assert isinstance(taken, Lease)
        assert taken.token > lease.token
        await eventually(lambda: other.release(NAME, taken.token))


async def test_without_a_majority_all_calls_fail_and_work_again_when_it_is_back(
    members: list[Consul],
) -> None:
    leader = leader_of(members)
    left = next(member for member in members if member is not leader)
    async with halves(left, WORKER) as (backend, provider):
        lease = await eventually(lambda: backend.acquire(NAME))
        assert isinstance(lease, Lease)
        await provider.publish(make_card(WORKER))

        for member in members:
            if member is not left:
                member.kill()

        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: backend.acquire("another"),
            lambda: backend.release("another"),
            lambda: backend.renew([lease]),
            backend.list,
            provider.list,
            lambda: provider.publish(make_card(WORKER)),
        ]
        began = time.monotonic()
        for call in calls:
            with pytest.raises(ConsulError):
                await call()
        assert time.monotonic() - began < len(calls) * 3 + 10

        for member in members:
            if member is not left:
                member.start(wait=False)
        await eventually(lambda: provider.publish(make_card(WORKER)))
        assert [peer.card["worker"] for peer in await eventually(provider.list)] == [WORKER]
        again = await eventually(lambda: backend.acquire(NAME))
        assert isinstance(again, Lease)
        assert again.token >= lease.token
        await eventually(lambda: backend.release(NAME, again.token))


async def test_servers_that_lost_their_data_make_no_card_younger(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What a new, empty server is told by an old state that came back is of unknown age."""
    with agent(tmp_path_factory.mktemp("consul")) as server:
        async with halves(server, WORKER) as (_, provider):
            for number in range(30):  # so that the new server counts from below
                await provider.publish(make_card(WORKER, x=number))
            await provider.list()
            server.kill()
            server.lose_data()
            server.start()
            server.put("fleet/cards/worker-2", b'{"worker":"worker-2"}')
            assert {p.card["worker"]: p.age_seconds for p in await eventually(provider.list)} == {
                "worker-2": None
            }
            await eventually(lambda: provider.publish(make_card(WORKER)))
            await asyncio.to_thread(server.put, "fleet/cards/worker-2", b'{"worker":"worker-2","x":1}')
            found = {p.card["worker"]: p.age_seconds for p in await eventually(provider.list)}
            assert found.keys() == {WORKER, "worker-2"}
            assert all(age is not None and age < 15 for age in found.values()), found


async def test_a_blocking_query_ends_in_its_time_when_the_agent_is_frozen(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with agent(tmp_path_factory.mktemp("consul")) as server:
        client = ConsulClient(read_settings({"address": server.address}), connections=1)
        try:
            await client.transact(keys.put("fleet/a", b"1", 0))
            index = (await client.tree("fleet/")).index
            query = asyncio.create_task(client.tree_after("fleet/", index, 1))
            await asyncio.sleep(0.2)  # so that it is waiting
            server.freeze()
            try:
                with pytest.raises(ConsulError, match="did not answer within"):
                    await query
            finally:
                server.thaw()
            assert list((await eventually(lambda: client.tree("fleet/"))).entries) == ["fleet/a"]
        finally:
            await client.close()


async def test_the_card_of_a_dead_worker_goes_away_by_itself(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with agent(tmp_path_factory.mktemp("consul")) as server:
        options = {"address": server.address, "prefix": "fleet", "prune_after_seconds": 20}
        provider = ConsulRegistry(options)
        await provider.start(make_card_context(WORKER))
        await provider.publish(make_card(WORKER))
        published_at = time.monotonic()
        await provider.stop()  # without a withdraw: as when it was killed

        while server.keys("fleet/cards/"):
            assert time.monotonic() - published_at < 30
            await asyncio.sleep(0.1)

        assert time.monotonic() - published_at > 19
