"""A process that forks while it is started: what its copy does is nothing to the fleet."""

import asyncio

from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_consul.leases import ConsulLeases
from drakkar_consul.registry import ConsulRegistry
from support.consul_servers import Consul
from support.forks import in_a_fork, use_leases, use_provider
from support.tcp_proxy import proxy_to
from support.waiting import until

NAME = "gc-leader"
TTL = 20.0


def session_ids(server: Consul) -> set[str]:
    return {session["ID"] for session in server.sessions()}


async def test_a_forked_copy_leaves_card_lease_and_sessions_alone(
    server: Consul, options: dict[str, object]
) -> None:
    provider, backend, other = ConsulRegistry(options), ConsulLeases(options), ConsulLeases(options)
    await provider.start(make_card_context("worker-1"))
    await backend.start(make_context("worker-1", ttl_seconds=TTL))
    await other.start(make_context("worker-2", ttl_seconds=TTL))
    card = make_card("worker-1")
    await provider.publish(card)
    lease = await backend.acquire(NAME)
    assert isinstance(lease, Lease)
    assert isinstance(await other.acquire("gc-2"), Lease)
    assert isinstance(await backend.acquire("gc-2"), Held)
    waiting = asyncio.create_task(backend.wait(["gc-2"], 60))
    await until(lambda: backend._lookout._listing is not None)
    assert provider._session is not None
    sessions = {provider._session.id, backend._session.id}

    async def use_and_stop() -> None:
        await use_provider(provider, card)
        await use_leases(backend, lease)

    in_a_fork(use_and_stop)

    assert [each.card for each in await provider.list()] == [card]
    assert [each.token for each in (await backend.renew([lease])).kept] == [lease.token]
    assert sessions <= session_ids(server)
    await other.release("gc-2")
    assert await waiting == {"gc-2"}
    await provider.stop()
    await backend.stop()
    await other.stop()


async def test_stopping_a_forked_copy_that_holds_nothing_does_not_end_the_session(
    server: Consul, options: dict[str, object]
) -> None:
    backend = ConsulLeases(options)
    await backend.start(make_context("worker-1", ttl_seconds=TTL))
    await backend.acquire(NAME)
    await backend.release(NAME)
    session = backend._session.id

    in_a_fork(backend.stop)

    assert session in session_ids(server)
    await backend.stop()
    assert session not in session_ids(server)


async def test_stopping_a_forked_copy_does_not_deafen_its_parent(
    server: Consul, options: dict[str, object]
) -> None:
    """A connection that is closed in the copy is no longer listened to in the parent, by an event loop that
    both have inherited."""
    with proxy_to(server.port) as proxy:
        provider = ConsulRegistry({**options, "address": f"http://127.0.0.1:{proxy.port}"})
        await provider.start(make_card_context("worker-1"))
        await provider.publish(make_card("worker-1"))
        await until(lambda: provider._watch._as_seen_at > provider._watch._observed_at)  # its query waits
        before = proxy.accepted

        in_a_fork(provider.stop)

        await provider.publish(make_card("worker-1"))
        assert len(await provider.list()) == 1
        assert proxy.accepted == before
        await provider.stop()
