"""Cards as Consul keeps them: what the checks of every provider cannot look at."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from drakkar.fleet.testkit import make_card, make_context
from drakkar_consul import make_registry
from drakkar_consul._names import place_of
from drakkar_consul.registry import ConsulRegistry
from drakkar_consul.testing import Store
from support.consul_servers import Consul
from support.log import RecordingLogger
from support.tcp_proxy import Verb, proxy_to
from support.waiting import until

WORKER = "worker-1"


@asynccontextmanager
async def provider_of(
    options: dict[str, object], worker: str = WORKER, *, timeout_seconds: float = 5.0, **more: object
) -> AsyncIterator[ConsulRegistry]:
    provider: ConsulRegistry = make_registry({**options, **more})
    logger = RecordingLogger()
    try:
        await provider.start(
            make_context(worker, secrets.token_hex(8), logger=logger, timeout_seconds=timeout_seconds)
        )
        yield provider
    finally:
        await provider.stop()


@pytest.fixture
async def provider(options: dict[str, object]) -> AsyncIterator[ConsulRegistry]:
    async with provider_of(options) as made:
        yield made


@pytest.fixture
async def other(options: dict[str, object]) -> AsyncIterator[ConsulRegistry]:
    async with provider_of(options, "worker-2") as made:
        yield made


def key_of(prefix: str, worker: str = WORKER) -> str:
    return f"{prefix}/cards/{place_of(worker)}"


async def ages(provider: ConsulRegistry) -> dict[str, float | None]:
    return {peer.card["worker"]: peer.age_seconds for peer in await provider.list()}


def counted(provider: ConsulRegistry, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that `provider` sends from now on."""
    sent: list[str] = []
    http: Any = provider._client._http
    request = http._request

    async def counting(callback: Any, method: str, path: str, params: Any, *rest: Any) -> Any:
        waits = any(name == "index" for name, _ in params or ())
        sent.append("WAIT" if waits else f"{method} {path.split('/')[2]}")
        return await request(callback, method, path, params, *rest)

    monkeypatch.setattr(http, "_request", counting)
    return sent


@pytest.mark.parametrize(("prune_after", "ttl"), [(5, "10.000s"), (600, "300.000s"), (1e9, "86400.000s")])
async def test_a_card_hangs_on_a_session_that_deletes_it(
    server: Consul, options: dict[str, object], prefix: str, prune_after: float, ttl: str
) -> None:
    async with provider_of(options, prune_after_seconds=prune_after) as provider:
        await provider.publish(make_card(WORKER))
        entry = server.get(key_of(prefix))
        assert entry is not None
        [session] = [each for each in server.sessions() if each["ID"] == entry["Session"]]
        server.destroy(session["ID"])
        assert server.get(key_of(prefix)) is None

    assert (session["TTL"], session["LockDelay"], session["Behavior"]) == (ttl, 0, "delete")
    assert not session["NodeChecks"]


async def test_a_card_whose_session_was_lost_is_back_whole_at_the_next_publish(
    provider: ConsulRegistry, other: ConsulRegistry, server: Consul, prefix: str
) -> None:
    await provider.publish(make_card(WORKER, features={"x": 1}))
    entry = server.get(key_of(prefix))
    assert entry is not None
    server.destroy(entry["Session"])
    assert await ages(other) == {}

    card = make_card(WORKER, features={"x": 2})
    await provider.publish(card)

    assert [peer.card for peer in await other.list()] == [card]
    again = server.get(key_of(prefix))
    assert again is not None
    assert again["Session"] not in (None, entry["Session"])


async def test_of_two_with_one_name_the_card_hangs_on_the_last_one(
    options: dict[str, object], server: Consul, prefix: str
) -> None:
    async with provider_of(options) as first, provider_of(options) as second:
        await first.publish(make_card(WORKER, x=1))
        entry = server.get(key_of(prefix))
        assert entry is not None
        await second.publish(make_card(WORKER, x=2))
        server.destroy(entry["Session"])

        assert [peer.card["x"] for peer in await first.list()] == [2]
        await first.publish(make_card(WORKER, x=3))
        assert [peer.card["x"] for peer in await second.list()] == [3]


async def test_a_publish_takes_one_request_as_a_rule(
    provider: ConsulRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await provider.publish(make_card(WORKER, x=1))
    sent = counted(provider, monkeypatch)

    await provider.publish(make_card(WORKER, x=2))

    assert [line for line in sent if line != "WAIT"] == ["PUT txn"]


async def test_a_withdrawn_card_leaves_no_session(
    options: dict[str, object], server: Consul, prefix: str
) -> None:
    async with provider_of(options) as provider:
        card = make_card(WORKER)
        await provider.publish(card)
        entry = server.get(key_of(prefix))
        assert entry is not None
        await provider.withdraw(WORKER, card["instance"])

    assert server.keys(prefix) == []
    assert entry["Session"] not in [each["ID"] for each in server.sessions()]


@pytest.mark.parametrize("worker", ["../../up", "a//b", "/", ".", "a/b", "\n", "%2e%2e", "x" * 3000])
async def test_no_name_leaves_the_prefix(
    provider: ConsulRegistry, server: Consul, prefix: str, worker: str
) -> None:
    before = set(server.keys(""))
    await provider.publish(make_card(worker))

    [key] = set(server.keys("")) - before
    assert key.startswith(f"{prefix}/cards/")
    assert key.count("/") == 2
    assert list(await ages(provider)) == [worker]
    await provider.withdraw(worker, make_card(worker)["instance"])


# --- ages -------------------------------------------------------------------------------------------------


async def test_what_is_no_card_is_told_by_its_key(
    options: dict[str, object], server: Consul, prefix: str
) -> None:
    log = RecordingLogger()
    bad = {
        "not_json": b'{"worker":',
        "not_object": b"[]",
        "wrong_name": b'{"worker":"worker-1"}',
        "missing_field": b"{}",
        "wrong_type": b'{"worker":1}',
        "empty_field": b'{"worker":""}',
    }
    for reason, value in bad.items():
        server.put(f"{prefix}/cards/{reason}", value)
    provider: ConsulRegistry = make_registry(options)
    try:
        await provider.start(make_context(WORKER, logger=log))
        for _ in range(2):
            assert await provider.list() == []
    finally:
        await provider.stop()

    lines = [(line["file"], line["reason"]) for line in log.named("fleet_card_invalid")]
    assert sorted(lines) == sorted((f"{prefix}/cards/{reason}", reason) for reason in bad)


async def test_an_age_is_unknown_until_the_card_changes(
    options: dict[str, object], provider: ConsulRegistry
) -> None:
    await provider.publish(make_card(WORKER))
    async with provider_of(options, "worker-2") as reader:
        assert await ages(reader) == {WORKER: None}
        await asyncio.sleep(0.2)
        assert await ages(reader) == {WORKER: None}
        began = time.monotonic()
        await provider.publish(make_card(WORKER))
        age = (await ages(reader))[WORKER]
        assert age is not None
        assert 0 <= age <= time.monotonic() - began + 3


@pytest.mark.parametrize("offline_after", [30.0, 3600.0])
async def test_a_card_that_stands_still_is_of_known_age_once_it_is_of_nobody_who_is_online(
    provider: ConsulRegistry, options: dict[str, object], offline_after: float
) -> None:
    await provider.publish(make_card(WORKER))
    store = Store(options, prune_after_seconds=86400)
    reader = store.make_provider()
    await reader.start(replace(make_context("worker-2"), offline_after_seconds=offline_after))
    try:
        assert await ages(reader) == {WORKER: None}
        store.advance(offline_after - 15)
        assert await ages(reader) == {WORKER: None}
        store.advance(16)
        age = (await ages(reader))[WORKER]
    finally:
        await reader.stop()

    assert age is not None
    assert age > offline_after


async def test_an_age_is_told_by_the_watch_when_nobody_lists(
    provider: ConsulRegistry, other: ConsulRegistry
) -> None:
    await provider.publish(make_card(WORKER))
    await ages(other)
    await asyncio.sleep(1.3)  # the pause after the first answer
    published_at = time.monotonic()
    await provider.publish(make_card(WORKER))
    await asyncio.sleep(2.5)

    age = (await ages(other))[WORKER]

    assert age is not None
    true = time.monotonic() - published_at
    assert true - 0.05 <= age <= true + 2


async def test_a_process_that_stood_still_does_not_take_old_news_for_new(
    provider: ConsulRegistry, other: ConsulRegistry, server: Consul, prefix: str
) -> None:
    await provider.publish(make_card(WORKER))
    await ages(other)
    await asyncio.sleep(1.5)  # by now the blocking query waits again
    entry = server.get(key_of(prefix))
    assert entry is not None

    server.put(key_of(prefix), entry["Value"] + b" ")
    time.sleep(3)  # noqa: ASYNC251  as when it is frozen
    await asyncio.sleep(0.2)  # the answer is in

    age = (await ages(other))[WORKER]
    assert age is not None
    assert age >= 3


async def test_a_fleet_that_changes_all_the_time_is_not_read_all_the_time(
    provider: ConsulRegistry, other: ConsulRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await provider.publish(make_card(WORKER))
    sent = counted(other, monkeypatch)
    began = time.monotonic()
    for number in range(150):
        await provider.publish(make_card(WORKER, x=number))
        await asyncio.sleep(0.01)

    assert sent.count("WAIT") <= 2 + (time.monotonic() - began)


async def test_a_listing_that_was_overtaken_changes_no_age(
    provider: ConsulRegistry, other: ConsulRegistry
) -> None:
    await provider.publish(make_card(WORKER, x=1))
    await ages(other)
    old = await other._client.tree(other._prefix)
    await provider.publish(make_card(WORKER, x=2))
    known = (await ages(other))[WORKER]
    assert known is not None

    other._watch.observe(old, other._watch._observed_at - 1)

    age = (await ages(other))[WORKER]
    assert age is not None
    assert age >= known


# --- requests that arrive late ----------------------------------------------------------------------------


async def late_publish(provider: ConsulRegistry, proxy: Any, card: dict[str, Any]) -> None:
    """A publish that is held up in the network, and which its caller gave up."""
    proxy.set(Verb.DELAY_REQUESTS, 1.0)
    task = asyncio.create_task(provider.publish(card))
    await asyncio.sleep(0.2)
    task.cancel()
    await asyncio.wait({task})


async def test_a_publish_that_arrives_after_a_withdraw_brings_no_card_back(
    server: Consul, options: dict[str, object], prefix: str
) -> None:
    with proxy_to(server.port) as proxy:
        slow: dict[str, Any] = {"address": f"127.0.0.1:{proxy.port}", "timeout_seconds": 30.0}
        async with provider_of(options, **slow) as provider, provider_of(options) as quick:
            card = make_card(WORKER)
            await provider.publish(card)
            await late_publish(provider, proxy, card)
            await quick.withdraw(WORKER, card["instance"])
            await asyncio.sleep(1.3)
            assert server.get(key_of(prefix)) is None
            proxy.set(Verb.PASS)


async def test_a_publish_that_arrives_after_a_later_one_changes_nothing(
    server: Consul, options: dict[str, object], prefix: str
) -> None:
    with proxy_to(server.port) as proxy:
        slow: dict[str, Any] = {"address": f"127.0.0.1:{proxy.port}", "timeout_seconds": 30.0}
        async with provider_of(options, **slow) as provider, provider_of(options) as quick:
            await provider.publish(make_card(WORKER, x=1))
            await late_publish(provider, proxy, make_card(WORKER, x=2))
            await quick.publish(make_card(WORKER, x=3))
            await asyncio.sleep(1.3)
            entry = server.get(key_of(prefix))
            assert entry is not None
            assert json.loads(entry["Value"])["x"] == 3
            proxy.set(Verb.PASS)


# --- the rest ---------------------------------------------------------------------------------------------


async def test_a_stop_ends_the_blocking_query(options: dict[str, object]) -> None:
    async with provider_of(options) as provider:
        await provider.publish(make_card(WORKER))
        await until(lambda: provider._watch._task is not None)
        task = provider._watch._task
    await provider.stop()

    assert task is not None
    assert task.done()
    assert [each for each in asyncio.all_tasks() if each.get_name().startswith("drakkar consul")] == []


async def test_a_half_that_was_not_started_says_so_and_can_be_stopped(options: dict[str, object]) -> None:
    provider, backend = make_registry(options), make_registry.lease_backend(options)

    with pytest.raises(RuntimeError, match="has not been started"):
        await provider.list()
    with pytest.raises(RuntimeError, match="has not started"):
        await backend.list()
    await provider.stop()
    await backend.stop()
