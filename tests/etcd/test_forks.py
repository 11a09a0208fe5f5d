"""A process that forks while it is started: what its copy does is nothing to the fleet."""

from drakkar.fleet.testkit import make_card
from drakkar.leases.backend import Held, Lease
from support.etcd_servers import Etcd
from support.etcd_workers import MakeBackend, MakeRegistry
from support.forks import in_a_fork, use_leases, use_provider
from support.tcp_proxy import proxy_to

ONE_SERVER_IN_A_GATE = True
NAME = "gc-leader"


async def test_a_forked_copy_leaves_card_lease_and_connections_alone(
    registry: MakeRegistry, backend: MakeBackend
) -> None:
    provider, leases = await registry("worker-1"), await backend("worker-1")
    other = await backend("worker-2")
    card = make_card("worker-1")
    await provider.publish(card)
    assert len(await provider.list()) == 1
    lease = await leases.acquire(NAME)
    assert isinstance(lease, Lease)
    assert isinstance(await other.acquire("gc-2"), Lease)
    assert isinstance(await leases.acquire("gc-2"), Held)
    assert await leases.wait(["gc-2"], 0.1) == frozenset()

    async def use_and_stop() -> None:
        await use_provider(provider, card)
        await use_leases(leases, lease)

    in_a_fork(use_and_stop)

    assert [each.card for each in await provider.list()] == [card]
    assert [each.token for each in (await leases.renew([lease])).kept] == [lease.token]
    await other.release("gc-2")
    assert await leases.wait(["gc-2"], 10) == {"gc-2"}


async def test_stopping_a_forked_copy_does_not_deafen_its_parent(etcd: Etcd, registry: MakeRegistry) -> None:
    """A connection that is closed in the copy is no longer listened to in the parent, by an event loop that
    both have inherited."""
    with proxy_to(etcd.port) as proxy:
        provider = await registry("worker-1", f"http://127.0.0.1:{proxy.port}")
        await provider.publish(make_card("worker-1"))
        before = proxy.accepted

        in_a_fork(provider.stop)

        await provider.publish(make_card("worker-1"))
        assert len(await provider.list()) == 1
        assert proxy.accepted == before
