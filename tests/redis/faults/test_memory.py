"""A server that forgets: eviction, no memory, flushes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Lease
from drakkar.leases.testkit import make_context
from drakkar_redis._keys import Keys
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from support.redis_servers import RedisServer, redis_server

KEYS = Keys("drakkar")
NAME = "gc-leader"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that has little memory and evicts whatever was used least."""
    arguments = ("--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
    with redis_server(tmp_path, *arguments) as server:
        yield server


def fill(server: RedisServer, rounds: int) -> None:
    with server.client() as client:
        for number in range(rounds):
            client.set(f"other:{number}", b"x" * 10_000)


async def test_eviction_is_noticed_at_the_next_renewal_and_tokens_still_rise(small: RedisServer) -> None:
    """Trial: the fencing token forgets; the lease, the counter and the card are evicted."""
    backend, provider = RedisLeases({"url": small.url}), RedisRegistry({"url": small.url})
    await backend.start(make_context("worker-1", ttl_seconds=600))
    await provider.start(make_card_context("worker-1"))
    lease = await backend.acquire(NAME)
    assert isinstance(lease, Lease)
    await provider.publish(make_card("worker-1"))
    await asyncio.sleep(1.1)  # the server tells ages of use in seconds
    for _ in range(20):
        fill(small, 1000)
        if small.command("EXISTS", KEYS.lease(NAME), KEYS.token, KEYS.cards) == 0:
            break

    renewal = await backend.renew([lease])

    assert (list(renewal.kept), list(renewal.lost)) == ([], [lease])
    assert await provider.list() == []
    again = await backend.acquire(NAME)
    assert isinstance(again, Lease)
    assert again.token > lease.token
    await provider.publish(make_card("worker-1"))
    assert len(await provider.list()) == 1
    await provider.stop()
    await backend.stop()


async def test_a_full_server_grants_nothing_and_goes_on_to_renew_and_release(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory-policy", "noeviction") as server:
        backend, provider = RedisLeases({"url": server.url}), RedisRegistry({"url": server.url})
        await backend.start(make_context("worker-1"))
        await provider.start(make_card_context("worker-1"))
        await provider.publish(make_card("worker-1"))
        lease = await backend.acquire(NAME)
        assert isinstance(lease, Lease)
        server.command("CONFIG", "SET", "maxmemory", 1000)  # less than it uses

        with pytest.raises(ConnectionError, match="maxmemory"):
            await backend.acquire(f"{NAME}-2")
        with pytest.raises(ConnectionError, match="maxmemory"):
            await provider.publish(make_card("worker-1"))

        assert server.command("EXISTS", KEYS.lease(f"{NAME}-2")) == 0
        assert len(await provider.list()) == 1
        assert len((await backend.renew([lease])).kept) == 1
        assert await backend.acquire(NAME) == lease
        assert len(await backend.list()) == 1
        await backend.release(NAME, lease.token)
        assert server.command("EXISTS", KEYS.lease(NAME)) == 0
        await provider.stop()
        await backend.stop()


async def test_tokens_rise_over_a_flush_of_everything(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        backend = RedisLeases({"url": server.url})
        await backend.start(make_context("worker-1"))
        tokens = []
        for _ in range(20):
            lease = await backend.acquire(NAME)
            assert isinstance(lease, Lease)
            tokens.append(lease.token)
            server.command("FLUSHALL")
            server.command("SCRIPT", "FLUSH")

        assert tokens == sorted(set(tokens))
        await backend.stop()
