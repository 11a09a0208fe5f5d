"""Cards in Redis: what is stored where, for how long, and whose it is."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from drakkar.fleet.testkit import make_card, make_context
from drakkar_redis import registry
from drakkar_redis._keys import Keys
from drakkar_redis.registry import RedisRegistry
from drakkar_redis.testing import Store
from support.log import RecordingLogger
from support.redis_servers import RedisServer

KEYS = Keys("drakkar")
MakeProvider = Callable[..., Awaitable[RedisRegistry]]


@pytest.fixture
async def make(server: RedisServer) -> AsyncIterator[MakeProvider]:
    """Makes started providers; they are stopped in the end."""
    made: list[RedisRegistry] = []

    async def start(
        worker: str = "worker-1", logger: RecordingLogger | None = None, **options: object
    ) -> RedisRegistry:
        provider = RedisRegistry({"url": server.url, **options})
        made.append(provider)
        await provider.start(make_context(worker, logger=logger))
        return provider

    yield start
    for provider in made:
        await provider.stop()


async def names(provider: RedisRegistry) -> list[str]:
    return sorted(peer.card["worker"] for peer in await provider.list())


async def test_a_card_never_stays_without_an_end(server: RedisServer, make: MakeProvider) -> None:
    """Trial: a card comes back as an immortal stump."""
    provider = await make(prune_after_seconds=60)
    for _ in range(2):
        await provider.publish(make_card("worker-1"))
        for key in (KEYS.cards, KEYS.published):
            assert 0 < server.command("PTTL", key) <= 60_000
        server.command("PERSIST", KEYS.cards)
        server.command("DEL", KEYS.published)


async def test_the_longest_age_of_pruning_counts_for_what_is_kept(
    server: RedisServer, make: MakeProvider
) -> None:
    await (await make("worker-1", prune_after_seconds=600)).publish(make_card("worker-1"))
    await (await make("worker-2", prune_after_seconds=60)).publish(make_card("worker-2"))

    assert server.command("PTTL", KEYS.cards) > 500_000


@pytest.mark.parametrize(
    "prefixes",
    [
        ("drakkar", "drakkar2"),
        ("a", "a:cards"),
        ("{a}", "a"),
        ("{", "}"),
        ("}", "%7D"),
        ("a{b}c", "a{b}d"),
        ("größe", "gr*"),
        ("[a-z]", "a"),
        ("x\ny", "x\\ny"),
    ],
)
async def test_a_fleet_is_a_prefix_of_any_characters_and_no_two_meet(
    prefixes: tuple[str, str], server: RedisServer, make: MakeProvider
) -> None:
    first, second = await make(prefix=prefixes[0]), await make(prefix=prefixes[1])
    await first.publish(make_card("worker-1"))
    await second.publish(make_card("worker-2"))

    assert (await names(first), await names(second)) == (["worker-1"], ["worker-2"])
    tags = {key.partition(b"}")[0] for key in server.command("KEYS", "*")}
    assert len(tags) == 2
    assert all(re.fullmatch(rb"\{[\w.~%-]+", tag) for tag in tags)


async def test_a_card_put_there_by_hand_has_no_age(server: RedisServer, make: MakeProvider) -> None:
    provider = await make()
    await provider.publish(make_card("worker-1"))
    server.command("HSET", KEYS.cards, "worker-2", b'{"worker":"worker-2"}')

    ages = {peer.card["worker"]: peer.age_seconds for peer in await provider.list()}

    assert ages["worker-2"] is None
    assert ages["worker-1"] is not None


HAND_MADE = b'{"worker":"worker-2"}'


async def ages(provider: RedisRegistry) -> dict[str, float | None]:
    return {peer.card["worker"]: peer.age_seconds for peer in await provider.list()}


def undated(server: RedisServer) -> None:
    server.command("HSET", KEYS.cards, "worker-2", HAND_MADE)


def dated(score: str) -> Callable[[RedisServer], None]:
    def put(server: RedisServer) -> None:
        undated(server)
        server.command("ZADD", KEYS.published, score, "worker-2")

    return put


@pytest.mark.parametrize("put", [undated, dated("9e12"), dated("inf")], ids=["undated", "ahead", "for_ever"])
async def test_a_card_whose_age_the_clock_does_not_tell_goes_when_it_was_listed_for_long(
    put: Callable[[RedisServer], None], server: RedisServer, make: MakeProvider
) -> None:
    """It is never young: nobody knows how old it is until it must be that of an offline worker."""
    provider = await make(prune_after_seconds=70)
    store = Store({"url": server.url})
    put(server)

    for _ in range(2):
        assert await ages(provider) == {"worker-2": None}
        for key in (KEYS.cards, KEYS.published):
            assert 0 < server.command("PTTL", key) <= 70_000
        await store.advance(22)
    assert await ages(provider) == {"worker-2": pytest.approx(45, abs=5)}
    await store.advance(40)
    assert await ages(provider) == {}
    assert server.command("EXISTS", KEYS.cards, KEYS.published) == 0


async def test_a_card_has_an_age_again_when_its_worker_publishes(
    server: RedisServer, make: MakeProvider
) -> None:
    provider = await make()
    dated("9e12")(server)
    assert await ages(provider) == {"worker-2": None}

    await (await make("worker-2")).publish(make_card("worker-2"))

    assert (await ages(provider))["worker-2"] == pytest.approx(0, abs=5)


async def test_cards_without_an_age_are_listed_by_a_server_that_is_full(
    server: RedisServer, make: MakeProvider
) -> None:
    provider = await make()
    undated(server)
    server.command("CONFIG", "SET", "maxmemory", 1)
    try:
        assert await ages(provider) == {"worker-2": None}
        assert server.command("EXISTS", KEYS.published) == 0
    finally:
        server.command("CONFIG", "SET", "maxmemory", 0)


async def test_bad_cards_are_logged_once_with_their_reason(server: RedisServer, make: MakeProvider) -> None:
    log = RecordingLogger()
    provider = await make(logger=log)
    bad = {
        "not_json": b'{"worker":',
        "not_object": b"[]",
        "wrong_name": b'{"worker":"worker-1"}',
        "too_large": b"x" * 4097,
        "missing_field": b"{}",
        "wrong_type": b'{"worker":1}',
        "empty_field": b'{"worker":""}',
    }
    for reason, data in bad.items():
        server.command("HSET", KEYS.cards, f"bad {reason}", data)

    for _ in range(2):
        assert await provider.list() == []

    lines = log.named("fleet_card_invalid")
    assert {line["file"]: line["reason"] for line in lines} == {f"bad {reason}": reason for reason in bad}
    assert len(lines) == len(bad)


async def test_so_many_bad_cards_are_named_and_then_no_more(
    server: RedisServer, make: MakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_MAX_NAMED", 3)
    log = RecordingLogger()
    provider = await make(logger=log)
    for number in range(5):
        server.command("HSET", KEYS.cards, f"bad {number}", b"[]")

    for _ in range(2):
        assert await provider.list() == []

    assert len(log.named("fleet_card_invalid")) == 3
    assert log.named("fleet_card_invalid_names_full") == [{"names": 3}]


async def test_a_huge_card_is_not_even_sent(server: RedisServer, make: MakeProvider) -> None:
    provider = await make()
    server.command("HSET", KEYS.cards, "bad", b"x" * 20_000_000)
    before = server.info("total_net_output_bytes")

    assert await provider.list() == []

    assert server.info("total_net_output_bytes") - before < 1_000_000


async def test_a_thousand_cards_come_with_short_pauses(make: MakeProvider) -> None:
    provider = await make()
    for number in range(1000):
        await provider.publish(make_card(f"worker-{number}", x="x" * 400))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    assert len(await provider.list()) == 1000
    ticking.cancel()
    assert ticks >= 9


async def test_each_method_is_one_call(server: RedisServer, make: MakeProvider) -> None:
    provider = await make()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: provider.publish(make_card("worker-1")),
        provider.list,
        lambda: provider.withdraw("worker-1", make_card("worker-1")["instance"]),
    ]
    for call in calls:
        await call()  # the server has the script from now on
        server.command("CONFIG", "RESETSTAT")
        await call()
        with server.client() as client:
            stats = client.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] == 1
        assert "cmdstat_eval" not in stats


async def test_scripts_that_the_server_forgot_are_sent_again(server: RedisServer, make: MakeProvider) -> None:
    provider = await make()
    await provider.publish(make_card("worker-1"))
    server.command("SCRIPT", "FLUSH")

    await provider.publish(make_card("worker-1"))

    server.command("SCRIPT", "FLUSH")
    assert await names(provider) == ["worker-1"]
    server.command("SCRIPT", "FLUSH")
    await provider.withdraw("worker-1", make_card("worker-1")["instance"])
    assert await names(provider) == []


async def test_two_hundred_calls_at_once_are_answered(make: MakeProvider) -> None:
    provider = await make()

    await asyncio.gather(*(provider.publish(make_card(f"worker-{number}")) for number in range(200)))

    assert len(await provider.list()) == 200


@pytest.mark.parametrize("key", [KEYS.cards, KEYS.published])
async def test_a_key_of_another_kind_is_named_in_the_error(
    key: str, server: RedisServer, make: MakeProvider
) -> None:
    provider = await make()
    server.command("SET", key, "garbage")

    for call in (lambda: provider.publish(make_card("worker-1")), provider.list):
        with pytest.raises(ConnectionError, match=r"WRONGTYPE.; delete it") as failure:
            await call()
        assert f"the key {key} is of another type" in str(failure.value)
