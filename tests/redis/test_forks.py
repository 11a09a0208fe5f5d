"""A process that forks while it is started: what its copy does is nothing to the fleet."""

from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Lease
from drakkar.leases.testkit import make_context
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from support.forks import in_a_fork, use_leases, use_provider
from support.redis_servers import RedisServer
from support.waiting import until

NAME = "gc-leader"


def connections(server: RedisServer) -> set[str]:
    """Those of everybody but of whoever asks."""
    lines = str(server.command("CLIENT", "LIST").decode()).splitlines()
    return {line.split()[0] for line in lines if "cmd=client" not in line}


async def test_a_forked_copy_leaves_card_lease_and_connections_alone(server: RedisServer) -> None:
    provider, backend = RedisRegistry({"url": server.url}), RedisLeases({"url": server.url})
    await provider.start(make_card_context("worker-1"))
    await backend.start(make_context("worker-1"))
    card = make_card("worker-1")
    await provider.publish(card)
    lease = await backend.acquire(NAME)
    assert isinstance(lease, Lease)
    assert await backend.wait(["gc-2"], 1) == {"gc-2"}
    await until(lambda: len(connections(server)) == 3)
    before = connections(server)

    async def use_and_stop() -> None:
        await use_provider(provider, card)
        await use_leases(backend, lease)

    in_a_fork(use_and_stop)

    assert [each.card for each in await provider.list()] == [card]
    assert (await backend.renew([lease])).kept == [lease]
    assert await backend.acquire(NAME) == lease
    assert connections(server) == before
    await provider.stop()
    await backend.stop()


async def test_stopping_a_forked_copy_does_not_deafen_its_parent(server: RedisServer) -> None:
    """A connection that is closed in the copy is no longer listened to in the parent, by an event loop that
    both have inherited."""
    provider = RedisRegistry({"url": server.url})
    await provider.start(make_card_context("worker-1"))
    before = connections(server)

    in_a_fork(provider.stop)

    await provider.publish(make_card("worker-1"))
    assert len(await provider.list()) == 1
    assert connections(server) == before
    await provider.stop()
