"""Sentinels, a Cluster and replicas: fail-overs while leases are held."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet import testkit as fleet_testkit
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases import testkit as lease_testkit
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_redis._keys import Keys
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from drakkar_redis.testing import Store
from redis.crc import key_slot
from support.log import RecordingLogger
from support.redis_servers import (
    ClusterGroup,
    RedisServer,
    SentinelGroup,
    cluster_group,
    redis_server,
    sentinel_group,
)
from support.servers import ServerProcess
from support.store_trials import Candidate, Witness, candidates, granted
from support.tcp_proxy import Verb, proxy_to
from support.waiting import until

KEYS = Keys("drakkar")
NAME = "gc-leader"
SLOT = key_slot(KEYS.token.encode())
FAILOVER_SECONDS = 20.0
"""How long a fail-over may take on a busy machine; a second or two for most."""

MakeBackend = Callable[..., Awaitable[RedisLeases]]


@pytest.fixture
async def make() -> AsyncIterator[MakeBackend]:
    """Makes started backends; they are stopped in the end."""
    made: list[RedisLeases] = []

    async def start(
        worker: str, ttl_seconds: float = 8.0, timeout_seconds: float = 3.0, **options: Any
    ) -> RedisLeases:
        backend = RedisLeases(options)
        made.append(backend)
        await backend.start(make_context(worker, ttl_seconds=ttl_seconds, timeout_seconds=timeout_seconds))
        return backend

    yield start
    for backend in made:
        await backend.stop()


class FailoverStore:
    """What a `Candidate` needs to compete on these options."""

    ttl_seconds = 8.0
    late_seconds = 0.5
    port = 0
    server: ServerProcess

    def __init__(self, **options: Any) -> None:
        self._options = options

    def make_backend(self, port: int) -> RedisLeases:
        return RedisLeases(self._options)

    def make_provider(self, port: int) -> RedisRegistry:
        return RedisRegistry(self._options)

    async def overwrite(self, name: str) -> None: ...
    async def delete(self, name: str) -> None: ...
    async def spoil(self, name: str) -> None: ...
    async def plant(self, cards: Any) -> None: ...
    async def forget(self) -> None: ...
    def restart(self, keep_data: bool) -> None: ...


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[SentinelGroup]:
    with sentinel_group(tmp_path) as group:
        yield group


async def test_sentinels_fail_over_while_a_lease_is_held(sentinels: SentinelGroup) -> None:
    """Trials: the fencing token forgets; a leader that lost its lease is never told. The master is killed
    under a leader and a standby: one leads at a time, on tokens that rise, and cards are back with a
    publish."""
    store, witness = FailoverStore(**sentinels.options), Witness()
    leader, standby = Candidate(store, "worker-1", witness), Candidate(store, "worker-2", witness)
    provider = RedisRegistry(sentinels.options)
    await provider.start(make_card_context("worker-1", timeout_seconds=3))
    await provider.publish(make_card("worker-1"))
    async with candidates(leader):
        await leader.leads(5)
        async with candidates(standby):
            old = sentinels.master()
            old.process.kill()
            await until(lambda: sentinels.master() is not old, FAILOVER_SECONDS)
            deadline = time.monotonic() + store.ttl_seconds + FAILOVER_SECONDS
            while [each.leading is not None for each in (leader, standby)].count(True) != 1:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            await _published(provider)
            assert [peer.card["worker"] for peer in await provider.list()] == ["worker-1"]
            await leader.stop()
            await standby.leads(store.ttl_seconds)
    await provider.stop()
    witness.expect_no_overlap()


async def _published(provider: RedisRegistry) -> None:
    async with asyncio.timeout(FAILOVER_SECONDS):
        while True:
            try:
                return await provider.publish(make_card("worker-1"))
            except ConnectionError:
                await asyncio.sleep(0.1)


async def test_a_master_that_was_made_a_replica_is_left_for_the_new_one(
    sentinels: SentinelGroup, make: MakeBackend
) -> None:
    """A planned fail-over: connections to the old master go on to work, and it takes no writes any more. The
    lease is kept."""
    backend = await make("worker-1", ttl_seconds=30, **sentinels.options)
    lease = await granted(backend, NAME, 0)
    old = sentinels.master()

    with _sentinel_client(sentinels) as client:
        client.execute_command("SENTINEL", "FAILOVER", sentinels.service_name)
    await until(lambda: sentinels.master() is not old, FAILOVER_SECONDS)
    new = sentinels.master()
    old.command("REPLICAOF", "127.0.0.1", new.port)  # as the Sentinels will do in a while
    before = new.command("PTTL", KEYS.lease(NAME))

    kept: list[Lease] = []
    async with asyncio.timeout(FAILOVER_SECONDS):
        while not kept:
            with suppress(ConnectionError, TimeoutError):
                kept = list((await backend.renew([lease])).kept)
            await asyncio.sleep(0.1)
    assert kept == [lease]
    assert new.command("PTTL", KEYS.lease(NAME)) > before


def _sentinel_client(group: SentinelGroup) -> Any:
    import redis

    return redis.Redis(host="127.0.0.1", port=group.ports[0], protocol=2)


async def test_one_sentinel_is_enough_and_none_is_an_error_in_time(
    sentinels: SentinelGroup, make: MakeBackend
) -> None:
    backend = await make("worker-1", **sentinels.options)
    lease = await granted(backend, NAME, 0)
    sentinels.sentinels[0].freeze()
    sentinels.sentinels[1].kill()
    other = await make("worker-2", **sentinels.options)
    assert isinstance(await other.acquire(NAME), Held)
    sentinels.sentinels[0].kill()
    sentinels.sentinels[2].kill()

    assert len((await backend.renew([lease])).kept) == 1  # what is connected goes on
    third = RedisLeases(sentinels.options)
    with pytest.raises(ConnectionError, match="no master found"):
        await third.start(make_context("worker-3", timeout_seconds=2))
    await third.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A master and a replica of it, without Sentinels."""
    with (
        redis_server(tmp_path / "master", "--repl-diskless-sync-delay", "0") as master,
        redis_server(tmp_path / "replica") as replica,
    ):
        replica.replicate(master)
        yield master, replica


async def test_a_grant_that_replicas_do_not_confirm_is_given_back(
    pair: tuple[RedisServer, RedisServer], make: MakeBackend
) -> None:
    master, replica = pair
    backend = await make("worker-1", url=master.url, min_replicas=1, timeout_seconds=2.0)
    lease = await granted(backend, f"{NAME}-1", 0)
    replica.process.freeze()

    with pytest.raises(ConnectionError, match="0 of 1 replicas have the grant, so it was given back"):
        await backend.acquire(NAME)

    assert master.command("EXISTS", KEYS.lease(NAME)) == 0
    with pytest.raises(ConnectionError, match="0 of 1 replicas have the renewal"):
        await backend.renew([lease])
    assert master.command("EXISTS", KEYS.lease(lease.name)) == 1
    replica.process.thaw()
    await granted(backend, NAME, 5)
    assert replica.command("EXISTS", KEYS.lease(NAME)) == 1


async def test_a_grant_is_not_told_while_a_release_of_it_may_still_arrive(
    pair: tuple[RedisServer, RedisServer], make: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas did not confirm it, and the release that followed is held up in the network."""
    master, replica = pair
    quick = await make("worker-2", url=master.url, min_replicas=1, timeout_seconds=2.0)
    await quick.release(NAME)  # from now on the server knows the script
    with proxy_to(master.port) as proxy:
        backend = await make(
            "worker-1", url=f"redis://127.0.0.1:{proxy.port}", min_replicas=1, timeout_seconds=2.0
        )
        replica.process.freeze()
        release = backend.release

        async def held_up(name: str, token: int | None = None) -> None:
            monkeypatch.undo()
            proxy.set(Verb.DELAY_REQUESTS, 60)
            await release(name, token)

        monkeypatch.setattr(backend, "release", held_up)
        with pytest.raises(TimeoutError):
            await backend.acquire(NAME)
        assert master.command("EXISTS", KEYS.lease(NAME)) == 1
        replica.process.thaw()
        monkeypatch.setattr(backend, "_client", quick._client)  # what is said from now on overtakes it
        lease = await granted(backend, NAME, 5)
        releases = released(master)

        proxy.set(Verb.PASS)

        await until(lambda: released(master) > releases)
        assert (await backend.renew([lease])).kept == [lease]
        monkeypatch.undo()


def released(server: RedisServer) -> int:
    """How many scripts it has run by their hash, as releases are."""
    return int(server.command("INFO", "commandstats")["cmdstat_evalsha"]["calls"])


async def test_a_lease_that_is_lost_is_told_though_replicas_do_not_answer(
    pair: tuple[RedisServer, RedisServer], make: MakeBackend
) -> None:
    master, replica = pair
    backend = await make("worker-1", url=master.url, min_replicas=1, timeout_seconds=2.0)
    leases = [await granted(backend, f"{NAME}-{number}", 0) for number in range(2)]
    replica.process.freeze()
    master.command("DEL", KEYS.lease(leases[0].name))

    renewal = await backend.renew(leases)

    assert (list(renewal.kept), list(renewal.lost)) == ([], leases[:1])


async def test_a_replica_that_missed_a_grant_gives_a_higher_token(
    pair: tuple[RedisServer, RedisServer], make: MakeBackend
) -> None:
    """Trial: the fencing token forgets; a replica that was cut off while the lease was taken is promoted."""
    master, replica = pair
    first = await make("worker-1", url=master.url)
    with proxy_to(master.port) as proxy:
        replica.command("REPLICAOF", "127.0.0.1", proxy.port)
        await until(lambda: replica.info("master_link_status") == "up")
        old = await granted(first, f"{NAME}-0", 0)
        await until(lambda: replica.command("EXISTS", KEYS.lease(old.name)) == 1)
        proxy.set(Verb.BLACK_HOLE)
        lease = await granted(first, NAME, 0)
        master.process.kill()
        replica.command("REPLICAOF", "NO", "ONE")
        proxy.set(Verb.REFUSE)
    second = await make("worker-2", url=replica.url)

    taken = await second.acquire(NAME)

    assert isinstance(taken, Lease)
    assert taken.token > lease.token


async def test_a_replica_as_target_is_an_error_that_says_so(
    pair: tuple[RedisServer, RedisServer], make: MakeBackend
) -> None:
    _, replica = pair
    log = RecordingLogger()
    provider = RedisRegistry({"url": replica.url})
    await provider.start(make_card_context("worker-1", logger=log))
    backend = await make("worker-1", url=replica.url)

    with pytest.raises(ConnectionError, match=f"{replica.port} is a read-only replica"):
        await backend.acquire(NAME)
    with pytest.raises(ConnectionError, match="is a read-only replica"):
        await provider.publish(make_card("worker-1"))
    replica.command("REPLICAOF", "NO", "ONE")
    assert isinstance(await backend.acquire(NAME), Lease)
    await provider.publish(make_card("worker-1"))
    await provider.stop()


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    with cluster_group(tmp_path_factory.mktemp("cluster")) as group:
        yield group


@pytest.fixture
def cluster(module_cluster: ClusterGroup) -> ClusterGroup:
    """Three masters without any data."""
    for server in module_cluster.servers:
        server.command("FLUSHALL")
    return module_cluster


IN_THE_GATE = {
    "check_card_comes_back",
    "check_old_card_is_deleted",
    "check_withdraw",
    "check_tokens_rise_over_release",
    "check_renew_many",
    "check_waiter_wakes_on_release",
    "check_processes_wait_by_themselves",
    "check_list_shows_holders",
}


@pytest.mark.parametrize("check", fleet_testkit.PUBLISHING_CHECKS, ids=lambda check: check.__name__)
async def test_cards_pass_the_checks_on_a_cluster(
    check: fleet_testkit.PublishingCheck, cluster: ClusterGroup, long: bool
) -> None:
    if long or check.__name__ in IN_THE_GATE:
        store = Store(cluster.options)
        await check(store.make_provider, store.advance, 600)


@pytest.mark.parametrize("check", lease_testkit.LEASE_CHECKS, ids=lambda check: check.__name__)
async def test_leases_pass_the_checks_on_a_cluster(
    check: lease_testkit.LeaseCheck, cluster: ClusterGroup, long: bool
) -> None:
    if long or check.__name__ in IN_THE_GATE:
        store = Store(cluster.options)
        await check(store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)


@pytest.mark.parametrize("prefix", ["drakkar", "{x}", "fleet-2", "größe"])
async def test_all_keys_of_a_fleet_are_on_one_server(
    prefix: str, cluster: ClusterGroup, make: MakeBackend
) -> None:
    backend = await make("worker-1", **cluster.options, prefix=prefix)
    for number in range(10):
        await granted(backend, f"{NAME}-{number}", 0)
    keys = Keys(prefix)

    [holder] = [server for server in cluster.servers if server.command("DBSIZE")]
    assert holder is cluster.owner(key_slot(keys.token.encode()))
    assert holder.command("DBSIZE") == 12


async def test_a_cluster_taken_for_a_single_server_stops_the_start(cluster: ClusterGroup) -> None:
    owner = cluster.owner(SLOT)
    other = next(server for server in cluster.servers if server is not owner)
    provider = RedisRegistry({"url": other.url})

    with pytest.raises(ValueError, match=r"^fleet\.registry\.redis\.cluster: .* is part of a Cluster"):
        await provider.start(make_card_context("worker-1"))

    await provider.stop()


async def test_any_one_server_of_a_cluster_is_enough_to_find_the_rest(
    cluster: ClusterGroup, make: MakeBackend
) -> None:
    for server in cluster.servers:
        backend = await make("worker-1", url=server.url, cluster=True)
        lease = await granted(backend, NAME, 0)
        await backend.release(NAME, lease.token)


async def test_a_slot_that_moves_is_followed(cluster: ClusterGroup, make: MakeBackend) -> None:
    backend, other = await make("worker-1", **cluster.options), await make("worker-2", **cluster.options)
    lease = await granted(backend, NAME, 0)
    old = cluster.owner(SLOT)
    new = next(server for server in cluster.servers if server is not old)
    old_id, new_id = (server.command("CLUSTER", "MYID").decode() for server in (old, new))
    new.command("CLUSTER", "SETSLOT", SLOT, "IMPORTING", old_id)
    old.command("CLUSTER", "SETSLOT", SLOT, "MIGRATING", new_id)
    keys = old.command("CLUSTER", "GETKEYSINSLOT", SLOT, 100)
    old.command("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "KEYS", *keys)
    for server in cluster.servers:
        server.command("CLUSTER", "SETSLOT", SLOT, "NODE", new_id)

    renewal = await backend.renew([lease])

    assert [each.token for each in renewal.kept] == [lease.token]
    assert isinstance(await other.acquire(NAME), Held)
    await backend.release(NAME)


async def test_a_cluster_fails_over_while_a_lease_is_held(tmp_path: Path) -> None:
    """Trials: the fencing token forgets; a leader that lost its lease is never told. The owner of the fleet's
    slot is killed; its replica takes over."""
    with cluster_group(tmp_path, replicas=1) as group:
        store, witness = FailoverStore(**group.options), Witness()
        leader, standby = Candidate(store, "worker-1", witness), Candidate(store, "worker-2", witness)
        async with candidates(leader):
            await leader.leads(5)
            async with candidates(standby):
                old = group.owner(SLOT)
                old.process.kill()
                await until(lambda: group.owner(SLOT) is not old, FAILOVER_SECONDS)
                deadline = time.monotonic() + store.ttl_seconds + FAILOVER_SECONDS
                while [each.leading is not None for each in (leader, standby)].count(True) != 1:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)
                await leader.stop()
                await standby.leads(store.ttl_seconds)
        witness.expect_no_overlap()
