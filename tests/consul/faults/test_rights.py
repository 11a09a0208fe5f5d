"""Tokens: the least rights that do, and what is said when they do not."""

import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Lease
from drakkar.leases.testkit import make_context
from drakkar_consul._client import ConsulError, ForbiddenError
from drakkar_consul.leases import ConsulLeases
from drakkar_consul.registry import ConsulRegistry
from support.consul_servers import Consul, token_for, with_rights
from support.repository import ROOT

WORKER = "worker-1"


def rules_in_the_docs() -> str:
    """The first policy on the page of the provider."""
    found = re.search(r"```hcl\n(.*?)```", (ROOT / "docs" / "consul.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consul]:
    with with_rights(tmp_path_factory.mktemp("consul-rights")) as made:
        yield made


@asynccontextmanager
async def halves(server: Consul, token: str) -> AsyncIterator[tuple[ConsulLeases, ConsulRegistry]]:
    """Not started yet, the lease half; it would fail."""
    options = {"address": server.address, "token": token}
    backend, provider = ConsulLeases(options), ConsulRegistry(options)
    try:
        await provider.start(make_card_context(WORKER))
        yield backend, provider
    finally:
        await provider.stop()
        await backend.stop()


def made(server: Consul, rules: str) -> str:
    return token_for(server, f"policy-{secrets.token_hex(4)}", rules)


async def test_the_policy_in_the_docs_is_enough(server: Consul) -> None:
    async with halves(server, made(server, rules_in_the_docs())) as (backend, provider):
        await provider.publish(make_card(WORKER))
        await provider.publish(make_card(WORKER, x=1))
        assert [peer.card["x"] for peer in await provider.list()] == [1]
        await backend.start(make_context(WORKER))
        lease = await backend.acquire("gc-leader")
        assert isinstance(lease, Lease)
        assert len((await backend.renew([lease])).kept) == 1
        assert [row.name for row in await backend.list()] == ["gc-leader"]
        await backend.release("gc-leader", lease.token)
        assert await backend.wait(["gc-leader"], 10) == {"gc-leader"}
        await provider.withdraw(WORKER, make_card(WORKER)["instance"])
        assert await provider.list() == []


SESSIONS = 'session_prefix "" { policy = "write" }'
READ = 'key_prefix "drakkar/" { policy = "read" }'
WRITE = 'key_prefix "drakkar/" { policy = "write" }'


@pytest.mark.parametrize(
    ("rules", "right", "lease_right"),
    [
        ("", SESSIONS, 'key "drakkar/token-base" { policy = "read" }'),
        (READ, SESSIONS, 'key "drakkar/token-base" { policy = "write" }'),
        (
            READ + SESSIONS,
            'key "drakkar/cards/worker-1" { policy = "write" }',
            'key "drakkar/token-base" { policy = "write" }',
        ),
        (WRITE, SESSIONS, SESSIONS),
    ],
    ids=["none", "read", "read and sessions", "no sessions"],
)
async def test_what_is_missing_is_told_as_the_rule_that_a_policy_lacks(
    server: Consul, rules: str, right: str, lease_right: str
) -> None:
    async def lead(backend: ConsulLeases) -> None:
        await backend.start(make_context(WORKER))
        await backend.acquire("gc-leader")

    server.delete("drakkar/token-base")
    async with halves(server, made(server, rules)) as (backend, provider):
        with pytest.raises(ForbiddenError) as refused:
            await provider.publish(make_card(WORKER))
        with pytest.raises(ForbiddenError) as lease_refused:
            await lead(backend)

    said = f"{server.address} refused the token: Permission denied; fleet.registry.consul.token needs "
    assert str(refused.value) == said + right
    assert str(lease_refused.value) == said + lease_right


@pytest.mark.parametrize("rules", [SESSIONS, READ + SESSIONS], ids=["none", "read"])
async def test_a_session_that_could_hold_no_card_ends_with_its_worker(server: Consul, rules: str) -> None:
    def ours() -> list[str]:
        return [each["ID"] for each in server.sessions() if each["Name"] == "drakkar card of worker-1"]

    before = ours()
    card = make_card(WORKER)
    async with halves(server, made(server, rules)) as (_, provider):
        for _ in range(3):
            with pytest.raises(ForbiddenError):
                await provider.publish(card)
        assert len(ours()) == len(before) + 1
        with suppress(ForbiddenError):
            await provider.withdraw(WORKER, card["instance"])

    assert ours() == before


async def test_who_may_make_no_session_is_told_so_while_another_process_leads(server: Consul) -> None:
    async with halves(server, made(server, WRITE + SESSIONS)) as (leader, _):
        await leader.start(make_context("worker-2"))
        lease = await leader.acquire("gc-leader")
        assert isinstance(lease, Lease)
        async with halves(server, made(server, WRITE)) as (backend, _):
            await backend.start(make_context(WORKER))
            for _ in range(2):
                with pytest.raises(ForbiddenError, match="session_prefix"):
                    await backend.acquire("gc-leader")
        await leader.release("gc-leader", lease.token)


async def test_without_a_token_it_is_not_told_that_one_was_refused(server: Consul) -> None:
    async with halves(server, "") as (_, provider):
        with pytest.raises(ForbiddenError, match=r"without a token: .*\.token needs key_prefix"):
            await provider.list()


@pytest.mark.parametrize(
    "rules",
    ["", 'key_prefix "else/" { policy = "write" }', 'key "drakkar/cards/worker-1" { policy = "write" }'],
    ids=["none", "elsewhere", "one key"],
)
async def test_who_may_not_read_gets_an_error_and_no_empty_list(server: Consul, rules: str) -> None:
    async with halves(server, made(server, rules)) as (backend, provider):
        with pytest.raises(ForbiddenError, match="refused the token"):
            await provider.list()
        with pytest.raises(ForbiddenError):
            await backend.start(make_context(WORKER))
        with pytest.raises(ForbiddenError):
            await backend.list()


async def test_a_right_that_is_taken_away_is_no_empty_list(server: Consul) -> None:
    token = made(server, 'key_prefix "drakkar/" { policy = "write" } session_prefix "" { policy = "write" }')
    accessor = server.call("GET", "/acl/token/self", token=token)["AccessorID"]
    async with halves(server, token) as (_, provider):
        await provider.publish(make_card(WORKER))
        assert len(await provider.list()) == 1
        server.call("PUT", f"/acl/token/{accessor}", {"AccessorID": accessor, "Policies": []})
        with pytest.raises(ForbiddenError):
            await provider.list()
    server.delete("drakkar/cards/worker-1")


async def test_who_may_only_read_reads_and_cannot_write(server: Consul) -> None:
    server.put("drakkar/cards/worker-2", json.dumps(make_card("worker-2")))
    token = made(server, 'key_prefix "drakkar/" { policy = "read" } session_prefix "" { policy = "write" }')
    async with halves(server, token) as (_, provider):
        assert [peer.card["worker"] for peer in await provider.list()] == ["worker-2"]
        with pytest.raises(ForbiddenError):
            await provider.publish(make_card(WORKER))
    server.delete("drakkar/cards/worker-2")


async def test_a_wrong_token_is_told_without_showing_it(server: Consul) -> None:
    token = "99999999-8888-7777-6666-555555555555"
    async with halves(server, token) as (backend, provider):
        for call in (
            provider.list(),
            provider.publish(make_card(WORKER)),
            backend.start(make_context(WORKER)),
        ):
            with pytest.raises(ConsulError) as refused:
                await call
            assert isinstance(refused.value, ForbiddenError)
            assert server.address in str(refused.value)
            assert token not in str(refused.value)
