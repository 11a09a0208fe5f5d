"""Tokens that a server does not refuse but waits with: those from a state that it has not come to.

So it is with every login when a store lost its data, or was set back to a snapshot.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.leases.backend import Lease
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._wire import encoded
from drakkar_etcd.leases import EtcdLeases
from drakkar_etcd.registry import EtcdRegistry
from drakkar_etcd.settings import read_settings
from support.etcd_servers import Etcd, add_users, b64, single, with_users
from support.etcd_workers import Workers
from support.scripted_server import reply, serving
from support.tcp_proxy import Verb, proxy_to

PREFIX = "/fleet"
FUTURE = "madeupmadeupmade.999999999"
TIMEOUT_SECONDS = 1.5
NOT_NOW = reply(b'{"code":14,"message":"etcdserver: no leader"}', "503 Service Unavailable")


@pytest.fixture(scope="module")
def server(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with with_users(tmp_path_factory.mktemp(program), f"{PREFIX}/", program, "--bcrypt-cost=4") as server:
        yield server


def options(*endpoints: str) -> dict[str, Any]:
    return {"endpoints": [*endpoints], "prefix": PREFIX, "username": "fleet", "password": "fleet"}


@asynccontextmanager
async def opened(*endpoints: str) -> AsyncIterator[EtcdClient]:
    client = EtcdClient(read_settings(options(*endpoints)))
    client.open(TIMEOUT_SECONDS)
    try:
        yield client
    finally:
        await client.close()


async def look(client: EtcdClient) -> None:
    await client.call("/kv/range", {"key": encoded(f"{PREFIX}/x")})


async def begun(client: EtcdClient) -> None:
    """Return when a watch is there."""
    async with aclosing(client.watch({"key": encoded(f"{PREFIX}/x")})) as messages:
        assert (await anext(messages))["created"]


def logins(server: Etcd) -> float:
    return server.requests("Authenticate")


async def test_a_fleet_goes_on_when_a_store_lost_its_data_and_got_its_users_back(
    tmp_path: Path, workers: Workers, program: str
) -> None:
    with with_users(tmp_path, f"{PREFIX}/", program, "--bcrypt-cost=4") as server:
        root = server.call("/auth/authenticate", {"name": "root", "password": "root"})["token"]
        for number in range(300):  # so that the tokens of the workers are ahead of the new store for long
            server.call("/kv/put", {"key": b64("/x"), "value": b64(str(number))}, root)
        registries, backends = [], []
        for worker in ("worker-1", "worker-2"):
            given = {"timeout_seconds": TIMEOUT_SECONDS}
            registries.append(await workers.registry(worker, options(server.endpoint), **given))
            backends.append(await workers.leases(worker, options(server.endpoint), **given))
            await registries[-1].publish(make_card(worker))
        one, two = backends
        lease = await one.acquire("gc-leader")
        assert isinstance(lease, Lease)
        assert not isinstance(await two.acquire("gc-leader"), Lease)
        waiting = asyncio.create_task(two.wait(["gc-leader"], 60))

        server.kill()
        server.lose_data()
        server.start()
        add_users(server, f"{PREFIX}/")

        async with asyncio.timeout(60):
            for registry, worker in zip(registries, ("worker-1", "worker-2"), strict=True):
                await published(registry, worker)
            assert await waiting == {"gc-leader"}
            again = await taken(one)
        assert again.token > lease.token
        for registry in registries:
            assert sorted(peer.card["worker"] for peer in await registry.list()) == ["worker-1", "worker-2"]
            assert registry._client._login.token is not None
        assert not isinstance(await two.acquire("gc-leader"), Lease)
        waiting = asyncio.create_task(two.wait(["gc-leader"], 60))
        await one.release("gc-leader", again.token)
        async with asyncio.timeout(30):
            assert await waiting == {"gc-leader"}


async def published(registry: EtcdRegistry, worker: str) -> None:
    while True:
        try:
            return await registry.publish(make_card(worker))
        except OSError:
            await asyncio.sleep(0.1)


async def taken(backend: EtcdLeases) -> Lease:
    while True:
        try:
            lease = await backend.acquire("gc-leader")
        except OSError:
            lease = None
        if isinstance(lease, Lease):
            return lease
        await asyncio.sleep(0.1)


async def test_calls_that_had_no_answer_lead_to_one_login_for_all_of_them(server: Etcd) -> None:
    async with opened(server.endpoint) as client:
        client._login.token = FUTURE
        before = logins(server)
        unanswered = await asyncio.gather(*(look(client) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(each, OSError) for each in unanswered)

        await asyncio.gather(*(look(client) for _ in range(20)))

        assert logins(server) - before == 1


async def test_a_call_that_its_caller_ends_puts_the_token_in_doubt_as_well(server: Etcd) -> None:
    async with opened(server.endpoint) as client:
        client._login.token = FUTURE
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7 * TIMEOUT_SECONDS):
                await look(client)

        await look(client)


async def test_with_a_second_endpoint_the_call_itself_logs_in(server: Etcd) -> None:
    async with opened(server.endpoint, f"http://localhost:{server.port}") as client:
        client._login.token = FUTURE

        await look(client)

        assert client._login.token != FUTURE


async def test_a_watch_that_was_not_opened_leads_to_a_login_too(server: Etcd) -> None:
    async with opened(server.endpoint) as client:
        client._login.token = FUTURE
        with pytest.raises(TimeoutError):
            await begun(client)

        await begun(client)


async def test_a_watch_that_is_opened_after_a_call_without_an_answer_logs_in(server: Etcd) -> None:
    async with opened(server.endpoint) as client:
        client._login.token = FUTURE
        with pytest.raises(OSError, match="no answer in time"):
            await look(client)

        await begun(client)


async def test_the_token_stays_until_there_is_another_one(server: Etcd) -> None:
    with proxy_to(server.port) as proxy:
        async with opened(f"http://127.0.0.1:{proxy.port}") as client:
            await client.log_in()
            token = client._login.token
            proxy.set(Verb.BLACK_HOLE)
            for _ in range(2):
                with pytest.raises(OSError, match="no answer"):
                    await look(client)
                assert client._login.token == token
            proxy.set(Verb.PASS)

            await look(client)

            assert client._login.token != token


async def test_a_member_that_cannot_log_in_now_does_not_speak_for_the_others(server: Etcd) -> None:
    with serving(NOT_NOW) as member:
        async with opened(member.url.rstrip("/"), server.endpoint) as client:
            await client.log_in()

            assert client._login.token


async def test_a_server_without_users_is_asked_without_the_token_of_before(
    tmp_path: Path, program: str
) -> None:
    with single(tmp_path, program) as server:
        for token in (FUTURE, "madeupmadeupmade.1"):  # 3.4 waits with the one, and refuses the other
            async with opened(server.endpoint, f"http://localhost:{server.port}") as client:
                client._login.token = token
                await look(client)
