"""The registry half: what is in the store, and what comes back whatever is done to it."""

import asyncio

import pytest
from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card, make_context
from drakkar_etcd._answers import UnansweredError
from drakkar_etcd.registry import EtcdRegistry
from support.etcd_links import LateTransactions, link
from support.etcd_servers import Etcd, b64
from support.etcd_workers import MakeRegistry
from support.log import RecordingLogger
from support.tcp_proxy import Verb, proxy_to
from support.waiting import until

ONE_SERVER_IN_A_GATE = True


async def workers(registry: EtcdRegistry) -> list[str]:
    return sorted(str(peer.card.get("worker")) for peer in await registry.list())


async def test_a_card_is_one_key_on_an_etcd_lease_of_the_prune_age(
    registry: MakeRegistry, etcd: Etcd, prefix: str
) -> None:
    card = make_card("worker-1")
    await (await registry("worker-1", prune_after_seconds=90.5)).publish(card)

    found = etcd.get(f"{prefix}/cards/worker-1")
    assert found is not None
    assert found["value"] == encode_card(card)
    assert int(etcd.call("/lease/timetolive", {"ID": found["lease"]})["grantedTTL"]) == 91


async def test_an_option_wins_over_what_the_worker_says(
    etcd: Etcd, options: dict[str, object], prefix: str
) -> None:
    registry = EtcdRegistry({**options, "prune_after_seconds": 70})
    await registry.start(make_context("worker-1", prune_after_seconds=90))
    await registry.publish(make_card("worker-1"))

    lease = etcd.get(f"{prefix}/cards/worker-1")["lease"]  # type: ignore[index]  # it was published just now
    assert etcd.call("/lease/timetolive", {"ID": lease})["grantedTTL"] == "70"
    await registry.stop()


@pytest.mark.parametrize("worker", ["../up", "a/b", "/", "..", "é\n\x00", "a%2Fb", "x" * 300])
async def test_no_name_leads_out_of_the_folder_of_the_cards(
    registry: MakeRegistry, etcd: Etcd, prefix: str, worker: str
) -> None:
    one = await registry(worker)
    await one.publish(make_card(worker))

    (key,) = etcd.keys(prefix)
    assert key.startswith(f"{prefix}/cards/")
    assert "/" not in key.removeprefix(f"{prefix}/cards/")
    assert await workers(one) == [worker]
    await one.withdraw(worker, make_card(worker)["instance"])
    assert etcd.keys(prefix) == []


@pytest.mark.parametrize("hit", ["the key", "the lease", "all data"])
async def test_the_whole_card_is_back_on_a_lease_with_the_next_publish(
    registry: MakeRegistry, etcd: Etcd, prefix: str, hit: str
) -> None:
    one, card = await registry("worker-1"), make_card("worker-1")
    await one.publish(card)
    key = f"{prefix}/cards/worker-1"
    before = etcd.get(key)
    assert before is not None
    if hit != "the key":
        etcd.revoke(before["lease"])
    etcd.delete(key)

    await one.publish(card)

    after = etcd.get(key)
    assert after is not None
    assert after["value"] == encode_card(card)
    assert int(etcd.call("/lease/timetolive", {"ID": after["lease"]})["TTL"]) > 80_000
    assert await workers(one) == ["worker-1"]


async def test_each_publish_brings_the_lease_to_its_full_time(
    registry: MakeRegistry, etcd: Etcd, prefix: str
) -> None:
    one = await registry("worker-1", prune_after_seconds=1000)
    await one.publish(make_card("worker-1"))
    await asyncio.sleep(2.1)
    before = etcd.get(f"{prefix}/cards/worker-1")
    assert before is not None
    assert int(etcd.call("/lease/timetolive", {"ID": before["lease"]})["TTL"]) < 998

    await one.publish(make_card("worker-1"))

    assert int(etcd.call("/lease/timetolive", {"ID": before["lease"]})["TTL"]) >= 998


async def test_a_withdrawn_card_leaves_neither_key_nor_lease(
    registry: MakeRegistry, etcd: Etcd, prefix: str
) -> None:
    one, card = await registry("worker-1"), make_card("worker-1")
    await one.publish(card)
    lease = etcd.get(f"{prefix}/cards/worker-1")["lease"]  # type: ignore[index]  # it was published just now

    await one.withdraw("worker-1", card["instance"])

    assert etcd.keys(prefix) == []
    assert lease not in etcd.leases()


async def test_a_card_of_another_process_of_that_name_is_replaced_and_not_withdrawn(
    registry: MakeRegistry, etcd: Etcd, prefix: str
) -> None:
    one, two = await registry("worker-1"), await registry("worker-1")
    cards = [make_card("worker-1", instance=f"{number:016x}") for number in (1, 2)]
    for _ in range(3):
        await one.publish(cards[0])
        await two.publish(cards[1])

    await one.withdraw("worker-1", cards[0]["instance"])

    assert [peer.card for peer in await one.list()] == [cards[1]]


async def test_a_publish_that_arrives_late_replaces_nothing_and_brings_nothing_back(
    registry: MakeRegistry, etcd: Etcd, prefix: str
) -> None:
    with link(LateTransactions(etcd.port)) as proxy:
        one = await registry("worker-1", f"http://127.0.0.1:{proxy.port}")
        await one.publish(make_card("worker-1", x=0))
        for then in ("publish", "withdraw"):
            proxy.late_seconds = 0.5
            late = asyncio.create_task(one.publish(make_card("worker-1", x="late")))
            await asyncio.sleep(0.2)
            late.cancel()
            await asyncio.wait({late})
            proxy.late_seconds = 0
            card = make_card("worker-1", x="new")
            await (one.publish(card) if then == "publish" else one.withdraw("worker-1", card["instance"]))
            before = await one.list()

            stored = etcd.get(f"{prefix}/cards/worker-1")
            await asyncio.sleep(0.6)

            assert etcd.get(f"{prefix}/cards/worker-1") == stored
            assert [peer.card for peer in await one.list()] == [peer.card for peer in before]
            assert len(before) == (then == "publish")


async def test_a_card_that_somebody_put_there_without_a_lease_goes_when_it_stood_too_long(
    registry: MakeRegistry, etcd: Etcd, prefix: str
) -> None:
    etcd.put(f"{prefix}/cards/worker-9", encode_card(make_card("worker-9")))
    etcd.put(f"{prefix}/cards/rubbish", b"rubbish")
    one = await registry("worker-1", prune_after_seconds=2)
    assert [(peer.card["worker"], peer.age_seconds) for peer in await one.list()] == [("worker-9", None)]

    await asyncio.sleep(2.2)

    assert await workers(one) == []
    assert etcd.keys(prefix) == []


async def test_what_is_no_card_is_named_once(registry: MakeRegistry, etcd: Etcd, prefix: str) -> None:
    log = RecordingLogger()
    one = await registry("worker-1", logger=log)
    await one.publish(make_card("worker-1"))
    etcd.put(f"{prefix}/cards/a%0Ab", b"[")
    etcd.put(f"{prefix}/cards/\n\x00", b"[]")
    etcd.put(f"{prefix}/cards/copy", encode_card(make_card("worker-1")))
    etcd.put(f"{prefix}/cards/x1", b"{}")
    etcd.put(f"{prefix}/cards/x2", b'{"worker":1}')
    etcd.put(f"{prefix}/cards/x3", b'{"worker":""}')
    for _ in range(3):
        assert await workers(one) == ["worker-1"]

    assert sorted((line["file"], line["reason"]) for line in log.named("fleet_card_invalid")) == [
        (r"\n\x00", "not_object"),
        ("a%0Ab", "not_json"),
        ("copy", "wrong_name"),
        ("x1", "missing_field"),
        ("x2", "wrong_type"),
        ("x3", "empty_field"),
    ]


async def test_a_listing_of_cards_that_have_not_changed_is_one_request(
    registry: MakeRegistry, etcd: Etcd
) -> None:
    one = await registry("worker-1")
    for number in range(20):
        await one.publish(make_card(f"worker-{number}"))
    while any(peer.age_seconds is None for peer in await one.list()):  # noqa: ASYNC110  it has no event
        await asyncio.sleep(0.01)
    before = {method: etcd.requests(method) for method in ("Range", "LeaseTimeToLive", "Watch")}

    for _ in range(10):
        assert len(await one.list()) == 20

    after = {method: etcd.requests(method) for method in before}
    assert {method: after[method] - before[method] for method in before} == {
        "Range": 10,
        "LeaseTimeToLive": 0,
        "Watch": 0,
    }


async def test_more_cards_than_a_page_holds_are_all_listed(
    registry: MakeRegistry, etcd: Etcd, prefix: str
) -> None:
    names = sorted(f"worker-{number}" for number in range(1203))
    puts = [
        {"request_put": {"key": b64(f"{prefix}/cards/{name}"), "value": b64(encode_card(make_card(name)))}}
        for name in names
    ]
    for first in range(0, len(puts), 100):
        etcd.call("/kv/txn", {"success": puts[first : first + 100]})

    assert await workers(await registry("worker-1")) == names


async def test_a_store_that_is_down_at_the_start_may_come_up_later(
    etcd: Etcd, options: dict[str, object]
) -> None:
    with proxy_to(etcd.port) as proxy:
        proxy.set(Verb.REFUSE)
        one = EtcdRegistry({**options, "endpoints": [f"http://127.0.0.1:{proxy.port}"]})
        await one.start(make_context("worker-1"))
        with pytest.raises(UnansweredError):
            await one.list()

        proxy.set(Verb.PASS)
        await one.publish(make_card("worker-1"))

        assert await workers(one) == ["worker-1"]
        reader = one._reader
        assert reader is not None
        await until(lambda: reader._watching)
        await one.stop()


async def test_it_says_that_it_was_not_started(options: dict[str, object]) -> None:
    one = EtcdRegistry(options)
    with pytest.raises(RuntimeError, match="not been started"):
        await one.list()
    await one.stop()
    await one.stop()
