"""Leases as Consul keeps them: what the checks of every backend cannot look at."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_consul import make_registry
from drakkar_consul._client import ConsulError
from drakkar_consul._names import place_of
from drakkar_consul.leases import ConsulLeases
from support.consul_servers import Consul
from support.stale_reads import stale_reads
from support.tcp_proxy import Verb, proxy_to
from support.waiting import until

NAME = "gc-leader"
TTL = 20.0


@asynccontextmanager
async def backend_of(
    options: dict[str, object], worker: str = "worker-1", *, timeout_seconds: float = 5.0, **more: object
) -> AsyncIterator[ConsulLeases]:
    backend: ConsulLeases = make_registry.lease_backend({**options, **more})
    try:
        await backend.start(
            make_context(worker, secrets.token_hex(8), ttl_seconds=TTL, timeout_seconds=timeout_seconds)
        )
        yield backend
    finally:
        await backend.stop()


async def granted(backend: ConsulLeases, name: str = NAME) -> Lease:
    answer = await backend.acquire(name)
    assert isinstance(answer, Lease)
    return answer


def key_of(prefix: str, name: str = NAME) -> str:
    return f"{prefix}/leases/{place_of(name)}"


def held_by(server: Consul, prefix: str, name: str = NAME) -> str | None:
    entry = server.get(key_of(prefix, name))
    return None if entry is None else entry.get("Session")


@pytest.fixture
async def backend(options: dict[str, object]) -> AsyncIterator[ConsulLeases]:
    async with backend_of(options) as made:
        yield made


@pytest.fixture
async def other(options: dict[str, object]) -> AsyncIterator[ConsulLeases]:
    async with backend_of(options, "worker-2") as made:
        yield made


def counted(backend: ConsulLeases, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that `backend` sends from now on."""
    sent: list[str] = []
    http: Any = backend._client._http
    request = http._request

    async def counting(callback: Any, method: str, path: str, *rest: Any) -> Any:
        sent.append(f"{method} {path}")
        return await request(callback, method, path, *rest)

    monkeypatch.setattr(http, "_request", counting)
    return sent


@pytest.mark.parametrize("ttl", [19.9, 1, 86401])
async def test_it_refuses_a_ttl_that_consul_cannot_keep(options: dict[str, object], ttl: float) -> None:
    backend = make_registry.lease_backend(options)

    with pytest.raises(ValueError, match="frees a dead session at twice its ttl, which is 10 s at least"):
        await backend.start(make_context("worker-1", ttl_seconds=ttl))
    await backend.stop()


async def test_all_names_hang_on_one_session_of_half_the_ttl(
    backend: ConsulLeases, server: Consul, prefix: str
) -> None:
    await asyncio.gather(*(granted(backend, f"job-{number}") for number in range(20)))

    sessions = {held_by(server, prefix, f"job-{number}") for number in range(20)}
    [session] = [each for each in server.sessions() if each["ID"] in sessions]
    assert len(sessions) == 1
    assert (session["TTL"], session["LockDelay"], session["Behavior"]) == ("10.000s", 0, "release")
    assert not session["NodeChecks"]
    assert not session["ServiceChecks"]


async def test_renewing_takes_two_requests_however_many_there_are(
    backend: ConsulLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = [await granted(backend, f"job-{number}") for number in range(30)]
    sent = counted(backend, monkeypatch)

    assert len((await backend.renew(leases)).kept) == 30

    assert [line[:18] for line in sent] == ["PUT /v1/session/re", "GET /v1/kv/fleet-" + sent[1][17]]


async def test_a_refusal_takes_one_request_once_there_is_a_session(
    backend: ConsulLeases, other: ConsulLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await granted(backend)
    await other.acquire(NAME)
    sent = counted(other, monkeypatch)

    answer = await other.acquire(NAME)

    assert answer == Held(lease.holder, TTL)
    assert len(sent) == 1


async def test_many_acquires_at_once_share_the_renewal_of_the_session(
    backend: ConsulLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    await granted(backend)
    sent = counted(backend, monkeypatch)

    await asyncio.gather(*(granted(backend, f"job-{number}") for number in range(20)))

    assert 1 <= sum("session/renew" in line for line in sent) <= 8
    assert not any("session/create" in line for line in sent)


async def test_a_clean_stop_leaves_no_session(
    options: dict[str, object], server: Consul, prefix: str
) -> None:
    async with backend_of(options) as backend:
        lease = await granted(backend)
        session = held_by(server, prefix)
        await backend.release(NAME, lease.token)
        assert session in [each["ID"] for each in server.sessions()]

    assert session not in [each["ID"] for each in server.sessions()]


async def test_a_stop_with_a_lease_leaves_it(options: dict[str, object], server: Consul, prefix: str) -> None:
    async with backend_of(options) as backend:
        await granted(backend)
        session = held_by(server, prefix)

    assert session is not None
    assert held_by(server, prefix) == session
    server.destroy(session)


async def test_a_lost_session_is_noticed_at_the_next_renewal_and_replaced(
    backend: ConsulLeases, other: ConsulLeases, server: Consul, prefix: str
) -> None:
    leases = [await granted(backend, f"job-{number}") for number in range(3)]
    session = held_by(server, prefix, "job-0")
    assert session is not None

    server.destroy(session)

    assert list((await backend.renew(leases)).lost) == leases
    assert isinstance(await other.acquire("job-0"), Lease)
    again = await granted(backend, "job-1")
    assert again.token > leases[1].token
    assert held_by(server, prefix, "job-1") not in (None, session)
    assert [each.name for each in (await backend.renew([leases[0], again])).kept] == ["job-1"]


async def test_a_session_that_was_lost_is_replaced_by_an_acquire_too(
    backend: ConsulLeases, server: Consul, prefix: str
) -> None:
    first = await granted(backend)
    session = held_by(server, prefix)
    assert session is not None
    server.destroy(session)

    again = await granted(backend)

    assert again.token > first.token
    assert list((await backend.renew([first])).lost) == [first]
    assert [each.token for each in (await backend.renew([again])).kept] == [again.token]


@pytest.mark.parametrize("value", [b"\xff{", b"", b'{"holder": "worker-2/00", "name": "gc-leader"}'])
async def test_a_key_that_was_overwritten_is_lost_and_free_once_it_is_released(
    backend: ConsulLeases, other: ConsulLeases, server: Consul, prefix: str, value: bytes
) -> None:
    lease = await granted(backend)
    kept = await granted(backend, "another")

    server.put(key_of(prefix), value)

    renewal = await backend.renew([lease, kept])
    assert (list(renewal.lost), [each.name for each in renewal.kept]) == ([lease], ["another"])
    assert isinstance(await other.acquire(NAME), Held)
    await backend.release(NAME, lease.token)
    taken = await other.acquire(NAME)
    assert isinstance(taken, Lease)
    assert taken.token > lease.token


async def test_a_key_that_was_overwritten_with_what_it_held_is_lost_too(
    backend: ConsulLeases, server: Consul, prefix: str
) -> None:
    lease = await granted(backend)
    entry = server.get(key_of(prefix))
    assert entry is not None

    server.put(key_of(prefix) + "?flags=5", entry["Value"])

    assert list((await backend.renew([lease])).lost) == [lease]


async def test_a_value_without_a_session_holds_nothing(
    backend: ConsulLeases, server: Consul, prefix: str
) -> None:
    server.put(key_of(prefix), json.dumps({"holder": "worker-2/00", "name": NAME}))

    assert await backend.list() == []
    assert await backend.wait([NAME], 5) == {NAME}
    assert isinstance(await backend.acquire(NAME), Lease)


async def test_garbage_that_is_held_is_listed_without_a_holder(
    backend: ConsulLeases, other: ConsulLeases, server: Consul, prefix: str
) -> None:
    await granted(backend)
    server.put(key_of(prefix), b"\xff{")

    [row] = await other.list()

    assert (row.name, row.holder) == (NAME, None)
    answer = await other.acquire(NAME)
    assert isinstance(answer, Held)
    assert answer.holder is None


# --- requests that arrive late ----------------------------------------------------------------------------


@asynccontextmanager
async def slow(server: Consul, options: dict[str, object]) -> AsyncIterator[tuple[ConsulLeases, Any]]:
    """A backend whose session is kept alive by another lease, and the proxy that it speaks through."""
    with proxy_to(server.port) as proxy:
        async with backend_of(options, address=f"127.0.0.1:{proxy.port}", timeout_seconds=30) as backend:
            await granted(backend, "sibling")
            yield backend, proxy
            proxy.set(Verb.PASS)


async def cancelled_on_its_way(backend: ConsulLeases, proxy: Any, server: Consul, prefix: str) -> None:
    """An acquire whose last request is held up in the network, and which its caller gave up."""
    locks: Any = backend._locks
    lock = locks._lock
    held_up = asyncio.Event()

    async def holding_up(*arguments: Any) -> Any:
        proxy.set(Verb.DELAY_REQUESTS, 1.0)
        held_up.set()
        return await lock(*arguments)

    locks._lock = holding_up
    task = asyncio.create_task(backend.acquire(NAME))
    await held_up.wait()
    await until(lambda: bool(locks._attempts.get(key_of(prefix))))
    await asyncio.sleep(0.1)  # so that the request is in the proxy
    task.cancel()
    await asyncio.wait({task})
    locks._lock = lock
    assert task.cancelled()
    assert held_by(server, prefix) is None


async def arrived(proxy: Any) -> None:
    """Until what was held up has been delivered."""
    await asyncio.sleep(1.5)


@pytest.mark.parametrize("token", [None, 5], ids=["any", "an old one"])
async def test_an_acquire_that_arrives_after_a_release_gets_nothing(
    server: Consul, options: dict[str, object], prefix: str, token: int | None
) -> None:
    async with slow(server, options) as (backend, proxy):
        await cancelled_on_its_way(backend, proxy, server, prefix)
        # What is said from now on overtakes it: the proxy holds up the old connection alone.
        before = backend._client._http
        async with backend_of(options, "worker-3") as quick:
            backend._client._http, backend._locks._client = quick._client._http, quick._client
            await backend.release(NAME, token)
            backend._client._http, backend._locks._client = before, backend._client
        await arrived(proxy)

    assert held_by(server, prefix) is None


async def test_without_that_release_it_would_get_the_lease(
    server: Consul, options: dict[str, object], prefix: str
) -> None:
    """So that the tests above show something."""
    async with slow(server, options) as (backend, proxy):
        await cancelled_on_its_way(backend, proxy, server, prefix)
        await until(lambda: held_by(server, prefix) is not None)
        proxy.set(Verb.PASS)
        await backend.release(NAME)

    assert held_by(server, prefix) is None


async def test_an_acquire_that_arrives_after_another_ones_turn_gets_nothing(
    server: Consul, options: dict[str, object], prefix: str
) -> None:
    async with slow(server, options) as (backend, proxy), backend_of(options, "worker-2") as other:
        await cancelled_on_its_way(backend, proxy, server, prefix)
        lease = await granted(other)
        await other.release(NAME, lease.token)
        await arrived(proxy)

    assert held_by(server, prefix) is None


async def test_an_acquire_on_its_way_is_not_forgotten_for_an_old_state_that_an_agent_shows(
    server: Consul, options: dict[str, object], other: ConsulLeases, prefix: str
) -> None:
    """A follower that is cut off may still show who held the key before."""
    async with (
        stale_reads(server.port) as front,
        backend_of(options, address=f"127.0.0.1:{front.port}") as backend,
    ):
        await granted(backend, "sibling")  # which keeps the session
        before = await granted(other)
        old = await front.answer_now(f"/v1/kv/{key_of(prefix)}")
        await other.release(NAME, before.token)
        front.hold_up(b'"lock"')
        acquiring = asyncio.create_task(backend.acquire(NAME))
        await front.held_up.wait()
        acquiring.cancel()
        await asyncio.wait({acquiring})

        front.old.update(old)
        answer = await backend.acquire(NAME)
        await backend.release(NAME)
        await front.deliver()

        assert held_by(server, prefix) is None
        assert isinstance(answer, Lease)


async def test_a_release_that_is_repeated_leaves_a_later_grant(
    server: Consul, options: dict[str, object], prefix: str
) -> None:
    async with slow(server, options) as (backend, proxy):
        lease = await granted(backend)
        proxy.set(Verb.DELAY_REQUESTS, 1.0)
        task = asyncio.create_task(backend.release(NAME, lease.token))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})
        proxy.set(Verb.PASS)  # it arrives
        await until(lambda: held_by(server, prefix) is None)
        again = await granted(backend)
        await backend.release(NAME, lease.token)
        assert [each.token for each in (await backend.renew([again])).kept] == [again.token]
        await backend.release(NAME, again.token)


# --- tokens -----------------------------------------------------------------------------------------------


def base_of(server: Consul, prefix: str) -> int:
    entry = server.get(f"{prefix}/token-base")
    assert entry is not None
    return int(entry["Value"])


async def test_tokens_begin_at_the_time_and_not_at_the_age_of_the_servers(
    backend: ConsulLeases, server: Consul, prefix: str
) -> None:
    for number in range(300):  # the index of the servers is high by now
        server.put(f"{prefix}/else", str(number))
    async with backend_of({"address": server.address, "prefix": f"{prefix}-2"}) as fresh:
        lease = await granted(fresh)
        await fresh.release(NAME, lease.token)

    assert lease.token - base_of(server, f"{prefix}-2") < 100
    assert abs(lease.token - time.time_ns() // 1000) < 600e6
    assert lease.token < 2**53


@pytest.mark.parametrize(
    "harm",
    [
        lambda server, key: server.delete(key),
        lambda server, key: server.put(key, b"garbage"),
        lambda server, key: server.put(key, b""),
        lambda server, key: server.put(key, b"-5"),
    ],
    ids=["deleted", "garbage", "empty", "negative"],
)
async def test_tokens_rise_when_their_base_is_hurt(
    backend: ConsulLeases,
    other: ConsulLeases,
    server: Consul,
    prefix: str,
    harm: Callable[[Consul, str], None],
) -> None:
    kept = await granted(backend, "kept")
    lease = await granted(backend)
    harm(server, f"{prefix}/token-base")

    renewal = await backend.renew([kept, lease])
    assert len(renewal.kept) == 2
    await backend.release(NAME, lease.token)
    taken = await granted(other)
    assert taken.token > lease.token
    await other.release(NAME, taken.token)
    again = await granted(backend)
    assert again.token > taken.token


async def test_a_clock_that_was_set_back_makes_no_lower_token(
    backend: ConsulLeases, server: Consul, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await granted(backend)
    await backend.release(NAME, lease.token)
    server.delete(f"{prefix}/token-base")
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)

    again = await granted(backend)

    assert again.token > lease.token


# --- waiting ----------------------------------------------------------------------------------------------


async def test_a_waiter_wakes_when_a_session_ends(
    backend: ConsulLeases, other: ConsulLeases, server: Consul, prefix: str
) -> None:
    await granted(backend)
    assert isinstance(await other.acquire(NAME), Held)
    waiting = asyncio.create_task(other.wait([NAME], 30))
    await asyncio.sleep(0.1)
    session = held_by(server, prefix)
    assert session is not None

    server.destroy(session)

    assert await waiting == {NAME}


async def test_a_waiter_is_not_told_of_what_a_third_one_took(
    backend: ConsulLeases, other: ConsulLeases, options: dict[str, object]
) -> None:
    lease = await granted(backend)
    assert isinstance(await other.acquire(NAME), Held)
    async with backend_of(options, "worker-3") as third:
        await backend.release(NAME, lease.token)
        taken = await granted(third)
        assert await other.wait([NAME], 0.5) == frozenset()
        await third.release(NAME, taken.token)
        assert await other.wait([NAME], 10) == {NAME}


async def test_a_wait_fails_when_the_agent_does_and_works_again_afterwards(
    server: Consul, options: dict[str, object]
) -> None:
    with proxy_to(server.port) as proxy:
        async with (
            backend_of(options) as backend,
            backend_of(options, "worker-2", address=f"127.0.0.1:{proxy.port}") as other,
        ):
            lease = await granted(backend)
            assert isinstance(await other.acquire(NAME), Held)
            waiting = asyncio.create_task(other.wait([NAME], 30))
            await asyncio.sleep(0.1)
            proxy.set(Verb.REFUSE)
            with pytest.raises(ConsulError):
                await waiting
            await backend.release(NAME, lease.token)
            proxy.set(Verb.PASS)
            assert await other.wait([NAME], 30) == {NAME}


async def test_a_waiter_makes_no_request_when_nobody_waits(
    backend: ConsulLeases, other: ConsulLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await granted(backend)
    assert isinstance(await other.acquire(NAME), Held)
    await other.wait([NAME], 0.2)
    sent = counted(other, monkeypatch)
    for _ in range(5):
        await backend.release(NAME, lease.token)
        lease = await granted(backend)
    await asyncio.sleep(0.3)

    assert len(sent) <= 1  # the query that was open may have been followed by none


async def test_a_repeated_release_does_not_free_the_grant_that_follows(backend: ConsulLeases) -> None:
    """The first one was done and its answer was lost."""
    for number in range(20):
        name = f"{NAME}-{number}"
        old = await granted(backend, name)
        known = backend._locks.grants[backend._key(name)]
        await backend.release(name, old.token)
        backend._locks.grants[backend._key(name)] = known
        _, new = await asyncio.gather(backend.release(name, old.token), granted(backend, name))
        assert [lease.token for lease in (await backend.renew([new])).kept] == [new.token]


async def test_tokens_rise_above_all_that_a_process_has_seen_when_the_base_was_set_back(
    backend: ConsulLeases, other: ConsulLeases, server: Consul, prefix: str
) -> None:
    first = await granted(backend)
    await backend.release(NAME, first.token)
    await other.list()
    server.put(f"{prefix}/token-base", "5")

    second = await granted(backend)
    await backend.release(NAME, second.token)
    third = await granted(other)

    assert first.token < second.token < third.token


async def test_a_token_that_comes_a_second_time_is_not_told_when_its_unlocking_is_late(
    server: Consul, options: dict[str, object], other: ConsulLeases, prefix: str
) -> None:
    first = await granted(other)
    async with stale_reads(server.port) as network:
        address = f"127.0.0.1:{network.port}"
        async with backend_of(options, address=address, timeout_seconds=2) as backend:
            assert isinstance(await backend.acquire(NAME), Held)
            await backend.list()
            await other.release(NAME, first.token)
            server.put(f"{prefix}/token-base", "5")
            network.hold_up(b'"unlock"')
            with pytest.raises(ConsulError, match="did not answer"):
                await backend.acquire(NAME)
            assert network.held_up.is_set()

            second = await granted(backend)
            await network.deliver()

            assert second.token > first.token
            assert (await backend.renew([second])).kept == [second]
            await backend.release(NAME, second.token)
