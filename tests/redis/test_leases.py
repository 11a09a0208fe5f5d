"""Leases in Redis: what is stored, what garbage does, how waiting is woken."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_redis import _client
from drakkar_redis._keys import Keys
from drakkar_redis.leases import RedisLeases
from support.log import RecordingLogger
from support.redis_servers import RedisServer
from support.tcp_proxy import Verb, proxy_to
from support.waiting import until

KEYS = Keys("drakkar")
NAME = "gc-leader"
KEY = KEYS.lease(NAME)
TTL = 20.0
MakeBackend = Callable[..., Awaitable[RedisLeases]]


@pytest.fixture
async def make(server: RedisServer) -> AsyncIterator[MakeBackend]:
    """Makes started backends of workers; they are stopped in the end."""
    made: list[RedisLeases] = []

    async def start(
        worker: str = "worker-1",
        url: str = "",
        ttl_seconds: float = TTL,
        timeout_seconds: float = 5.0,
        logger: RecordingLogger | None = None,
        **options: object,
    ) -> RedisLeases:
        backend = RedisLeases({"url": url or server.url, **options})
        made.append(backend)
        ctx = make_context(worker, logger=logger, ttl_seconds=ttl_seconds, timeout_seconds=timeout_seconds)
        await backend.start(ctx)
        return backend

    yield start
    for backend in made:
        await backend.stop()


async def grant(backend: RedisLeases, name: str = NAME) -> Lease:
    answer = await backend.acquire(name)
    assert isinstance(answer, Lease), answer
    return answer


async def refusal(backend: RedisLeases, name: str = NAME) -> Held:
    answer = await backend.acquire(name)
    assert isinstance(answer, Held), answer
    return answer


async def test_a_refusal_says_whose_it_is_and_what_is_left_by_the_servers_clock(make: MakeBackend) -> None:
    holder = (await grant(await make("worker-1"))).holder

    answer = await refusal(await make("worker-2", ttl_seconds=1))

    assert answer.holder == holder
    assert answer.retry_after_seconds is not None
    assert TTL - 5 < answer.retry_after_seconds <= TTL


async def test_a_token_is_never_below_the_servers_clock(server: RedisServer, make: MakeBackend) -> None:
    backend = await make()
    seconds, micros = map(int, server.command("TIME"))

    token = (await grant(backend)).token

    assert token >= seconds * 1_000_000 + micros
    assert int(server.command("GET", KEYS.token)) == token
    assert server.command("PTTL", KEYS.token) == -1


async def test_tokens_go_on_counting_when_the_clock_is_behind_them(
    server: RedisServer, make: MakeBackend
) -> None:
    ahead = 4_000_000_000_000_000
    server.command("SET", KEYS.token, ahead)
    backend = await make()

    tokens = [(await grant(backend, f"{NAME}-{number}")).token for number in range(3)]

    assert tokens == [ahead + 1, ahead + 2, ahead + 3]


@pytest.mark.parametrize("garbage", [b"", b"x", b"nan", b"inf", b"-5", b"1e300", b"9007199254740992", b"5.5"])
async def test_a_counter_that_is_garbage_starts_at_the_clock(
    garbage: bytes, server: RedisServer, make: MakeBackend
) -> None:
    server.command("SET", KEYS.token, garbage)

    token = (await grant(await make())).token

    assert token == pytest.approx(time.time() * 1e6, abs=600e6)
    assert int(server.command("GET", KEYS.token)) == token


@pytest.mark.parametrize("command", [("FLUSHALL",), ("DEL", KEYS.token), ("SET", KEYS.token, "5")])
async def test_tokens_rise_when_a_counter_ahead_of_the_clock_is_lost(
    command: tuple[str | int, ...], server: RedisServer, make: MakeBackend
) -> None:
    """The clock was set back since, or is that of another server. Who held the lease knows the newest token,
    and so does who was refused it."""
    server.command("SET", KEYS.token, 4_000_000_000_000_000)
    leader, standby = await make("worker-1"), await make("worker-2")
    first = await grant(leader)
    await refusal(standby)
    await leader.release(NAME, first.token)

    server.command(*command)
    second = await grant(standby)
    await standby.release(NAME, second.token)
    server.command(*command)
    third = await grant(leader, f"{NAME}-2")

    assert first.token < second.token
    assert first.token < third.token


async def test_a_token_that_no_clock_comes_to_is_not_counted_on_from(
    server: RedisServer, make: MakeBackend
) -> None:
    backend = await make()
    server.command("SET", KEY, f"{2**53 - 2}:5:20000:worker-9/1", "PX", 20000)
    await refusal(backend)

    token = (await grant(backend, f"{NAME}-2")).token

    assert token == pytest.approx(time.time() * 1e6, abs=600e6)


async def test_a_counter_of_another_kind_is_replaced(server: RedisServer, make: MakeBackend) -> None:
    server.command("HSET", KEYS.token, "x", "y")

    token = (await grant(await make())).token

    assert int(server.command("GET", KEYS.token)) == token


GARBAGE: list[tuple[str | bytes, ...]] = [
    ("SET", "", ""),
    ("SET", "", b"\xff\x00"),
    ("SET", "", "12:34:56:"),
    ("SET", "", "12:34:worker-9/0"),
    ("SET", "", f"{'9' * 5000}:34:1000:worker-9/0"),
    ("SET", "", "x" * 100_000),
    ("HSET", "", "x", "y"),
    ("RPUSH", "", "x"),
    ("SET", "", "garbage", "PX", "86400000"),
]
"""Commands without the name of the key."""


async def test_garbage_counts_as_held_until_it_was_there_for_a_ttl(
    server: RedisServer, make: MakeBackend
) -> None:
    one, two = await make("worker-1", ttl_seconds=1), await make("worker-2", ttl_seconds=1)
    names = [f"{NAME}-{number}" for number in range(len(GARBAGE))]
    for name, (command, _, *rest) in zip(names, GARBAGE, strict=True):
        server.command(command, KEYS.lease(name), *rest)
        for backend in (one, two, one):
            answer = await refusal(backend, name)
            assert answer.holder is None
            assert answer.retry_after_seconds is not None
            assert answer.retry_after_seconds <= 1
    rows = await one.list()
    assert sorted(row.name for row in rows) == names
    assert {(row.holder, row.token, row.age_seconds) for row in rows} == {(None, None, None)}

    await asyncio.sleep(1.05)

    for name in names:
        await grant(one, name)


async def test_a_record_without_an_end_is_given_its_holders(server: RedisServer, make: MakeBackend) -> None:
    one, two = await make("worker-1"), await make("worker-2", ttl_seconds=1)
    lease = await grant(one)
    server.command("PERSIST", KEY)

    answer = await refusal(two)

    assert answer.holder == lease.holder
    assert answer.retry_after_seconds == TTL
    assert 0 < server.command("PTTL", KEY) <= TTL * 1000


async def test_a_renewal_gives_a_record_its_end_back(server: RedisServer, make: MakeBackend) -> None:
    backend = await make()
    lease = await grant(backend)
    server.command("PERSIST", KEY)

    assert len((await backend.renew([lease])).kept) == 1

    assert 0 < server.command("PTTL", KEY) <= TTL * 1000


async def test_one_call_renews_all(server: RedisServer, make: MakeBackend) -> None:
    backend = await make()
    leases = [await grant(backend, f"{NAME}-{number}") for number in range(1500)]
    await backend.renew(leases)
    server.command("DEL", KEYS.lease(f"{NAME}-1200"))
    server.command("CONFIG", "RESETSTAT")

    renewal = await backend.renew(leases)

    with server.client() as client:
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
    assert [lease.name for lease in renewal.lost] == [f"{NAME}-1200"]
    assert len(renewal.kept) == 1499


async def test_names_of_leases_that_ran_out_do_not_pile_up(server: RedisServer, make: MakeBackend) -> None:
    backend = await make()
    for number in range(100):
        await grant(backend, f"once-{number}")
        server.command("DEL", KEYS.lease(f"once-{number}"))  # as if it had run out

    assert server.command("SCARD", KEYS.names) < 20
    assert await backend.list() == []
    assert server.command("SCARD", KEYS.names) == 0


async def test_a_waiting_worker_is_told_without_asking(server: RedisServer, make: MakeBackend) -> None:
    one, two = await make("worker-1"), await make("worker-2")
    lease = await grant(one)
    await refusal(two)
    waiting = asyncio.create_task(two.wait([NAME], 30))
    await until(lambda: server.command("PUBSUB", "NUMSUB", KEYS.released)[1] == 1)
    await asyncio.sleep(0.3)
    server.command("CONFIG", "RESETSTAT")
    await asyncio.sleep(1.2)
    with server.client() as client:
        assert "cmdstat_evalsha" not in client.info("commandstats")  # it does not poll meanwhile

    await one.release(NAME, lease.token)

    async with asyncio.timeout(TTL / 2):
        assert await waiting == {NAME}


async def test_a_wait_ends_when_the_lease_runs_out(make: MakeBackend) -> None:
    one, two = await make("worker-1", ttl_seconds=1), await make("worker-2")
    await grant(one)
    await refusal(two)
    began = time.monotonic()

    assert await two.wait([NAME], 30) == {NAME}

    assert 0.5 < time.monotonic() - began < 10


async def test_a_lost_wake_up_costs_time_only(server: RedisServer, make: MakeBackend) -> None:
    """The message goes out while the subscription is cut: it is subscribed anew, and the store is looked
    at."""
    with proxy_to(server.port) as proxy:
        one, two = await make("worker-1"), await make("worker-2", url=f"redis://127.0.0.1:{proxy.port}")
        lease = await grant(one)
        await refusal(two)
        waiting = asyncio.create_task(two.wait([NAME], 30))
        await until(lambda: server.command("PUBSUB", "NUMSUB", KEYS.released)[1] == 1)
        server.command("CLIENT", "KILL", "TYPE", "pubsub")

        await one.release(NAME, lease.token)

        async with asyncio.timeout(TTL / 2):
            assert await waiting == {NAME}


async def test_a_subscription_that_fell_silent_is_noticed_and_made_anew(
    server: RedisServer, make: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a firewall has forgotten the connection: nobody says that it is gone."""
    monkeypatch.setattr(_client, "QUIET_SECONDS", 0.1)
    with proxy_to(server.port) as proxy:
        backend = await make(url=f"redis://127.0.0.1:{proxy.port}", timeout_seconds=0.5)
        await backend.wait([], 0.1)
        await until(lambda: backend._wakeups.hears)
        await asyncio.sleep(1.5)
        assert backend._wakeups.hears  # silence alone is no reason
        assert server.command("PUBSUB", "NUMSUB", KEYS.released)[1] == 1

        proxy.set(Verb.BLACK_HOLE)

        await until(lambda: not backend._wakeups.hears)
        proxy.set(Verb.PASS)
        await until(lambda: backend._wakeups.hears)


async def test_without_the_right_to_listen_a_wait_looks_instead(
    server: RedisServer, make: MakeBackend
) -> None:
    server.command("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all")
    log = RecordingLogger()
    one = await make("worker-1")
    two = await make("worker-2", logger=log, username="deaf", password="secret")
    lease = await grant(one)
    await refusal(two)
    waiting = asyncio.create_task(two.wait([NAME], 30))
    await until(lambda: bool(log.named("lease_notices_unavailable")))

    await one.release(NAME, lease.token)

    async with asyncio.timeout(TTL / 2):
        assert await waiting == {NAME}
    server.command("ACL", "DELUSER", "deaf")


async def test_a_release_works_without_the_right_to_tell(server: RedisServer, make: MakeBackend) -> None:
    server.command("ACL", "SETUSER", "mute", "on", ">secret", "~*", "resetchannels", "+@all")
    backend = await make(username="mute", password="secret")
    lease = await grant(backend)

    await backend.release(NAME, lease.token)

    assert server.command("EXISTS", KEY) == 0
    server.command("ACL", "DELUSER", "mute")


@pytest.mark.parametrize("name", ["a", "x" * 200, "größe/検索", "a:b{c}*?[d]", "\x00\n\r", " "])
async def test_a_name_is_listed_as_it_is(name: str, make: MakeBackend) -> None:
    backend = await make()
    lease = await grant(backend, name)

    (row,) = await backend.list()

    assert (row.name, row.holder, row.token) == (name, lease.holder, lease.token)
    assert row.age_seconds == pytest.approx(0, abs=5)
    assert row.remaining_seconds == pytest.approx(TTL, abs=5)


async def test_fleets_of_two_prefixes_do_not_compete(make: MakeBackend) -> None:
    one, two = await make("worker-1", prefix="a"), await make("worker-2", prefix="a:lease")

    await grant(one)
    await grant(two)

    assert (len(await one.list()), len(await two.list())) == (1, 1)


async def test_no_task_is_left_after_a_stop(make: MakeBackend) -> None:
    before = asyncio.all_tasks()
    one, two = await make("worker-1"), await make("worker-2")
    await grant(one)
    await refusal(two)
    await two.wait([NAME], 0.1)

    for backend in (one, two):
        await backend.stop()
        await backend.stop()

    assert asyncio.all_tasks() == before


async def test_the_list_is_whole_again_after_its_index_was_lost(
    server: RedisServer, make: MakeBackend
) -> None:
    one, two = await make("worker-1"), await make("worker-2")
    leases = [await grant(one, f"{NAME}-{number}") for number in range(3)]
    server.command("DEL", KEYS.names)
    await refusal(two, leases[0].name)
    assert [row.name for row in await two.list()] == [leases[0].name]

    await one.renew(leases)

    assert sorted(row.name for row in await two.list()) == [lease.name for lease in leases]


async def test_an_index_of_another_kind_is_replaced_and_costs_no_lease(
    server: RedisServer, make: MakeBackend
) -> None:
    one, two = await make("worker-1"), await make("worker-2")
    lease = await grant(one)
    server.command("DEL", KEYS.names)
    server.command("SET", KEYS.names, "garbage")

    assert len((await one.renew([lease])).kept) == 1
    assert [row.name for row in await one.list()] == [NAME]

    server.command("DEL", KEYS.names)
    server.command("SET", KEYS.names, "garbage")
    waiting = asyncio.create_task(two.wait([NAME], 20))
    await one.release(NAME, lease.token)
    assert await waiting == {NAME}
    again = await grant(two)
    assert [row.token for row in await one.list()] == [again.token]


async def test_an_index_of_another_kind_is_named_in_the_error(server: RedisServer, make: MakeBackend) -> None:
    backend = await make()
    server.command("SET", KEYS.names, "garbage")

    with pytest.raises(
        ConnectionError, match=f"the key {KEYS.names} is of another type .WRONGTYPE.; delete it"
    ):
        await backend.list()


@pytest.mark.parametrize("ttl_ms", ["99999999999999999999", "31536000000000"])
async def test_a_record_that_would_last_for_years_counts_as_garbage(
    server: RedisServer, make: MakeBackend, ttl_ms: str
) -> None:
    server.command("SET", KEY, f"5:5:{ttl_ms}:worker-9/1")

    assert 0 < ((await refusal(await make())).retry_after_seconds or 0) <= TTL
