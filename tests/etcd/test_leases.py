"""The lease half: what is in the store, what a renewal notices, and what late requests cannot do."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_etcd._answers import EtcdError, UnansweredError
from drakkar_etcd.leases import EtcdLeases
from support.etcd_links import LateTransactions, link
from support.etcd_servers import Etcd, single
from support.etcd_workers import MakeBackend
from support.tcp_proxy import Verb, proxy_to

ONE_SERVER_IN_A_GATE = True


async def granted(backend: EtcdLeases, name: str = "gc-leader") -> Lease:
    answer = await backend.acquire(name)
    assert isinstance(answer, Lease), answer
    return answer


async def refused(backend: EtcdLeases, name: str = "gc-leader") -> Held:
    answer = await backend.acquire(name)
    assert isinstance(answer, Held), answer
    return answer


def record(etcd: Etcd, prefix: str, name: str = "gc-leader") -> dict[str, Any]:
    found = etcd.get(f"{prefix}/leases/{name}")
    assert found is not None
    return found


# --- what is stored -----------------------------------------------------------------------------------------


async def test_all_names_of_a_process_hang_on_one_etcd_lease(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    one = await backend("worker-1", ttl_seconds=30)
    for name in ("gc-leader", "notify-leader"):
        await granted(one, name)

    leases = {record(etcd, prefix, name)["lease"] for name in ("gc-leader", "notify-leader")}
    assert len(leases) == 1
    assert etcd.call("/lease/timetolive", {"ID": leases.pop()})["grantedTTL"] == "30"


async def test_a_token_is_the_base_in_milliseconds_times_a_thousand_plus_the_revision(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    lease = await granted(await backend("worker-1"))

    base = int(etcd.get(f"{prefix}/lease-base")["value"])  # type: ignore[index]  # the grant made it
    assert lease.token == base * 1000 + int(record(etcd, prefix)["create_revision"])
    assert lease.token < 2**53


async def test_a_renewal_is_one_keep_alive_and_one_reading_however_many_leases_there_are(
    backend: MakeBackend, etcd: Etcd
) -> None:
    one = await backend("worker-1")
    leases = [await granted(one, f"job-leader-{number}") for number in range(100)]
    before = {method: etcd.requests(method) for method in ("Range", "LeaseKeepAlive", "Txn", "Put")}

    assert len((await one.renew(leases)).kept) == 100

    after = {method: etcd.requests(method) for method in before}
    assert {method: after[method] - before[method] for method in before} == {
        "Range": 1,
        "LeaseKeepAlive": 1,
        "Txn": 0,
        "Put": 0,
    }


async def test_acquires_at_the_same_time_share_their_keep_alives(backend: MakeBackend, etcd: Etcd) -> None:
    one = await backend("worker-1")
    before = etcd.requests("LeaseKeepAlive")

    await asyncio.gather(*(granted(one, f"job-leader-{number}") for number in range(100)))

    assert etcd.requests("LeaseKeepAlive") - before <= 2


async def test_a_hundred_acquires_at_once_leave_the_base_alone(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    one = await backend("worker-1")
    for _ in range(3):
        leases = await asyncio.gather(*(granted(one, f"job-leader-{number}") for number in range(100)))
        await asyncio.gather(*(one.release(lease.name, lease.token) for lease in leases))

    assert etcd.get(f"{prefix}/lease-base")["version"] == "1"  # type: ignore[index]  # the grants made it


# --- what a renewal notices ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hit", ["deleted", "overwritten", "taken off its lease", "made anew"])
async def test_one_record_that_was_hit_is_lost_and_the_others_are_kept(
    backend: MakeBackend, etcd: Etcd, prefix: str, hit: str
) -> None:
    one = await backend("worker-1")
    leases = [await granted(one, f"job-leader-{number}") for number in range(3)]
    key, found = f"{prefix}/leases/job-leader-1", record(etcd, prefix, "job-leader-1")
    if hit in ("deleted", "made anew"):
        etcd.delete(key)
    if hit == "made anew":
        etcd.put(key, found["value"], int(found["lease"]))
    if hit == "overwritten":
        other = {**json.loads(found["value"]), "holder": "worker-9/0123456789abcdef"}
        etcd.put(key, json.dumps(other), int(found["lease"]))
    if hit == "taken off its lease":
        etcd.put(key, found["value"])

    renewal = await one.renew(leases)

    assert renewal.lost == [leases[1]]
    assert [lease.token for lease in renewal.kept] == [leases[0].token, leases[2].token]


async def test_all_are_lost_when_the_etcd_lease_is_gone_and_can_be_had_again(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    one = await backend("worker-1")
    leases = [await granted(one, f"job-leader-{number}") for number in range(3)]
    etcd.revoke(record(etcd, prefix, "job-leader-0")["lease"])

    assert (await one.renew(leases)).lost == leases

    again = await granted(one, "job-leader-0")
    assert again.token > leases[0].token
    renewal = await one.renew([*leases, again])
    assert [lease.token for lease in renewal.kept] == [again.token]


async def test_an_acquire_that_finds_the_etcd_lease_gone_keeps_nothing_of_the_old_one(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    one = await backend("worker-1")
    old = await granted(one, "job-leader-0")
    etcd.revoke(record(etcd, prefix, "job-leader-0")["lease"])

    new = await granted(one, "job-leader-1")

    renewal = await one.renew([old, new])
    assert (renewal.lost, [lease.token for lease in renewal.kept]) == ([old], [new.token])


# --- late requests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["acquire", "release", "acquire and release"])
async def test_an_acquire_that_arrives_after_a_later_call_takes_nothing(
    backend: MakeBackend, etcd: Etcd, prefix: str, then: str
) -> None:
    with link(LateTransactions(etcd.port)) as proxy:
        one = await backend("worker-1", f"http://127.0.0.1:{proxy.port}")
        held = await granted(one, "notify-leader")  # so that the etcd lease is kept alive
        if then == "acquire":
            await granted(await backend("worker-2"))
        proxy.late_seconds = 0.5
        late = asyncio.create_task(one.acquire("gc-leader"))
        await asyncio.sleep(0.2)
        late.cancel()
        await asyncio.wait({late})
        proxy.late_seconds = 0
        if then == "acquire":
            await refused(one)
            etcd.delete(f"{prefix}/leases/gc-leader")
        if then == "acquire and release":
            lease = await granted(one)
            await one.release("gc-leader", lease.token)
        if then == "release":
            await one.release("gc-leader")

        await asyncio.sleep(0.7)

        assert etcd.get(f"{prefix}/leases/gc-leader") is None
        assert len((await one.renew([held])).kept) == 1


async def test_other_acquires_go_on_while_one_that_is_in_doubt_is_made_void(
    backend: MakeBackend, etcd: Etcd
) -> None:
    one = await backend("worker-1")
    for _ in range(5):
        late = asyncio.create_task(one.acquire("gc-leader"))
        others = [asyncio.create_task(granted(one, f"job-leader-{number}")) for number in range(20)]
        await asyncio.sleep(0.004)
        late.cancel()
        leases = [*await asyncio.gather(*others), await granted(one)]
        assert len((await one.renew(leases)).kept) == 21
        for lease in leases:
            await one.release(lease.name, lease.token)


async def test_an_acquire_whose_answer_was_lost_is_found_again(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    with proxy_to(etcd.port) as proxy:
        one = await backend("worker-1", f"http://127.0.0.1:{proxy.port}", timeout_seconds=1)
        proxy.set(Verb.DELAY_REPLIES, 0.3)
        asking = asyncio.create_task(one.acquire("gc-leader"))
        while etcd.get(f"{prefix}/leases/gc-leader") is None:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        proxy.set(Verb.PASS)

        lease = await granted(one)

        assert lease.token % 1000 == int(record(etcd, prefix)["create_revision"]) % 1000
        assert record(etcd, prefix)["version"] == "1"


async def test_a_guard_that_an_operator_deleted_is_made_again(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    one = await backend("worker-1")
    first = await granted(one)
    (guard,) = etcd.keys(f"{prefix}/holders/")
    etcd.delete(guard)

    second = await granted(one, "notify-leader")

    assert len((await one.renew([first, second])).kept) == 2
    assert etcd.keys(f"{prefix}/holders/") == [guard]


async def test_a_process_that_is_gone_leaves_nothing_but_the_base(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    one = await backend("worker-1", ttl_seconds=2)
    for number in range(5):
        await granted(one, f"job-leader-{number}")
    await one.stop()

    async with asyncio.timeout(20):
        while etcd.keys(prefix) != [f"{prefix}/lease-base"]:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.1)


# --- tokens -------------------------------------------------------------------------------------------------


async def test_a_token_that_comes_a_second_time_is_not_told_when_its_deletion_is_late(
    backend: MakeBackend, etcd: Etcd, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await backend("worker-1"), await backend("worker-2")
    old = await granted(two)
    await refused(one)
    await two.release("gc-leader", old.token)
    etcd.put(f"{prefix}/lease-base", "1")
    sent: list[tuple[Any, ...]] = []

    async def held_up(*what: Any) -> None:
        sent.append(what)
        raise UnansweredError("held up in the network")

    claims: Any = one._claims
    delete = claims._delete
    monkeypatch.setattr(claims, "_delete", held_up)
    with pytest.raises(UnansweredError):
        await one.acquire("gc-leader")
    monkeypatch.undo()

    new = await granted(one)
    await delete(*sent[0])

    assert new.token > old.token
    assert (await one.renew([new])).kept == [new]


@pytest.mark.parametrize("base", [None, "1", "100"], ids=["deleted", "set back", "set back further on"])
async def test_tokens_rise_when_their_base_is_tampered_with(
    backend: MakeBackend, etcd: Etcd, prefix: str, base: str | None
) -> None:
    one, two = await backend("worker-1"), await backend("worker-2")
    tokens = []
    for _ in range(2):
        for each in (one, two):
            lease = await granted(each)
            tokens.append(lease.token)
            if each is one:
                await refused(two)  # so that the other has seen this one's token
            await each.release("gc-leader", lease.token)
        if base is None:
            etcd.delete(f"{prefix}/lease-base")
        else:
            etcd.put(f"{prefix}/lease-base", base)

    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("garbage", [b"", b"\xffx", b"9" * 16], ids=["empty", "no text", "no such time"])
async def test_a_base_that_is_no_number_is_replaced_and_tokens_rise(
    backend: MakeBackend, etcd: Etcd, prefix: str, garbage: bytes
) -> None:
    one, two = await backend("worker-1"), await backend("worker-2")
    before = await granted(one)
    held = await granted(one, "other-leader")
    await one.release("gc-leader", before.token)
    etcd.put(f"{prefix}/lease-base", garbage)

    after = await granted(two)

    assert after.token > before.token
    assert (await one.renew([held])).kept == [held]
    three = await backend("worker-3")
    await two.release("gc-leader", after.token)
    assert (await granted(three)).token > after.token


# --- waiting, listing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
async def test_a_release_while_the_connection_was_lost_is_told_when_it_is_back(
    backend: MakeBackend, etcd: Etcd, compacted: bool
) -> None:
    with proxy_to(etcd.port) as proxy:
        one, two = await backend("worker-1"), await backend("worker-2", f"http://127.0.0.1:{proxy.port}")
        lease = await granted(one)
        await refused(two)
        waiting = asyncio.create_task(two.wait(["gc-leader"], 60))
        await asyncio.sleep(0.2)
        proxy.set(Verb.REFUSE)
        await one.release("gc-leader", lease.token)
        if compacted:
            await granted(one, "notify-leader")
            etcd.compact()
        await asyncio.sleep(0.3)
        assert not waiting.done()

        proxy.set(Verb.PASS)

        async with asyncio.timeout(10):
            assert await waiting == {"gc-leader"}


async def test_a_lease_that_ran_out_wakes_who_waits(backend: MakeBackend) -> None:
    one, two = await backend("worker-1", ttl_seconds=2), await backend("worker-2", ttl_seconds=30)
    await granted(one)
    assert (await refused(two)).retry_after_seconds == 2
    await one.stop()

    async with asyncio.timeout(20):
        assert await two.wait(["gc-leader"], 60) == {"gc-leader"}
    await granted(two)


async def test_the_listing_tells_times_of_our_own_and_holders_of_all(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    one, two = await backend("worker-1", ttl_seconds=30), await backend("worker-2", ttl_seconds=20)
    mine, other = await granted(one, "gc-leader"), await granted(two, "a/b é")
    etcd.put(f"{prefix}/leases/rubbish", b"\xff")
    etcd.put(f"{prefix}/leases/not ours", b"{}")
    await asyncio.sleep(0.1)

    rows = {row.name: row for row in await one.list()}

    assert rows.keys() == {"gc-leader", "a/b é", "rubbish"}
    assert (rows["gc-leader"].holder, rows["gc-leader"].token) == (mine.holder, mine.token)
    assert 0.1 <= (rows["gc-leader"].age_seconds or 0) < 10
    assert 10 < (rows["gc-leader"].remaining_seconds or 0) < 30
    assert (rows["a/b é"].holder, rows["a/b é"].token) == (other.holder, other.token)
    assert (rows["a/b é"].age_seconds, rows["rubbish"].holder) == (None, None)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"3",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"holder":7,"base":1,"ttl":1}',
        b'{"holder":"a","base":1,"ttl":1e999}',
        b'{"holder":"a","base":1,"ttl":0}',
        b'{"holder":"a","base":' + b"1" * 5000 + b',"ttl":1}',
    ],
    ids=lambda value: repr(value[:40]),
)
async def test_a_record_that_cannot_be_read_is_held_by_nobody_that_is_known(
    backend: MakeBackend, etcd: Etcd, prefix: str, value: bytes
) -> None:
    etcd.put(f"{prefix}/leases/gc-leader", value)
    one = await backend("worker-1", ttl_seconds=30)

    answer = await refused(one)

    assert answer.holder is None
    assert 29 < (answer.retry_after_seconds or 0) <= 30
    assert [row.holder for row in await one.list()] == [None]
    assert record(etcd, prefix)["value"] == value


# --- what a shared etcd lease must not be taken for ---------------------------------------------------------


@pytest.mark.parametrize("method", ["/kv/put", "/lease/grant"])
async def test_an_etcd_lease_that_was_granted_long_ago_is_not_counted_as_full(
    backend: MakeBackend, etcd: Etcd, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Its grant was made and what follows failed, or its answer was lost; the process goes on later."""
    one = await backend("worker-1", ttl_seconds=30)
    etcd.call("/lease/revoke", {"ID": str(one._session.id)})
    call = one._client.call

    async def failing(path: str, request: dict[str, Any], **more: Any) -> Any:
        if path == "/kv/put":
            raise UnansweredError
        answer = await call(path, request, **more)
        if path == method:
            raise UnansweredError
        return answer

    monkeypatch.setattr(one._client, "call", failing)
    with pytest.raises(UnansweredError):
        await one.acquire("gc-leader")
    monkeypatch.undo()
    await asyncio.sleep(3)
    lease = await granted(one)

    left = int(etcd.call("/lease/timetolive", {"ID": str(one._session.id)})["TTL"])
    assert left > lease.ttl_seconds - 2


async def test_a_request_that_a_proxy_refused_and_delivers_later_leaves_nothing_behind(
    backend: MakeBackend, etcd: Etcd, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await backend("worker-1", ttl_seconds=30)
    await granted(one, "sibling")
    call, late = one._client.call, list[dict[str, Any]]()

    async def bad_gateway(path: str, request: dict[str, Any], **more: Any) -> Any:
        if path == "/kv/txn" and not late:
            late.append(request)
            raise EtcdError(502, 0, "bad gateway")
        return await call(path, request, **more)

    monkeypatch.setattr(one._client, "call", bad_gateway)
    with pytest.raises(EtcdError):
        await one.acquire("gc-leader")
    lease = await granted(one)
    await one.release("gc-leader", lease.token)
    await call("/kv/txn", late[0])

    assert etcd.get(f"{prefix}/leases/gc-leader") is None


async def test_a_record_of_ours_that_somebody_wrote_anew_is_lost_and_can_be_given_back(
    backend: MakeBackend, etcd: Etcd, prefix: str
) -> None:
    one = await backend("worker-1", ttl_seconds=30)
    lease = await granted(one)
    found = record(etcd, prefix)
    etcd.put(
        f"{prefix}/leases/gc-leader",
        json.dumps(json.loads(found["value"]), indent=1),
        lease=int(found["lease"]),
    )

    assert [each.name for each in (await one.renew([lease])).lost] == ["gc-leader"]
    await one.release("gc-leader", lease.token)

    assert etcd.get(f"{prefix}/leases/gc-leader") is None


async def test_a_process_goes_on_after_its_store_was_set_back(tmp_path: Path) -> None:
    """What it knows of its own guard is of a time that the store has not seen."""
    with single(tmp_path) as etcd:
        one = EtcdLeases({"endpoints": [etcd.endpoint], "prefix": "/fleet"})
        await one.start(make_context("worker-1", ttl_seconds=30))
        await granted(one, "one")
        await asyncio.to_thread(etcd.stop)
        shutil.copytree(etcd.data, tmp_path / "backup")
        await asyncio.to_thread(etcd.start)
        one._session.doubt("two")
        await granted(one, "two")
        await asyncio.to_thread(etcd.stop)
        shutil.rmtree(etcd.data)
        shutil.copytree(tmp_path / "backup", etcd.data)
        await asyncio.to_thread(etcd.start)

        await granted(one, "three")
        await one.stop()
