"""How old a card is: told by a watch, and by the lease for what was there before."""

import asyncio
import time

import pytest
from drakkar.fleet.testkit import make_card
from drakkar_etcd.registry import EtcdRegistry
from support.etcd_links import DeafWatch, link
from support.etcd_servers import Etcd
from support.etcd_workers import MakeRegistry
from support.tcp_proxy import Verb, proxy_to

ONE_SERVER_IN_A_GATE = True
WHOLE_SECONDS = 1.0
"""By how much an age may be too high that comes from a lease: etcd tells whole seconds."""

BUSY_SECONDS = 1.0


async def age(reader: EtcdRegistry, worker: str) -> float | None:
    return next((peer.age_seconds for peer in await reader.list() if peer.card["worker"] == worker), None)


async def known_age(reader: EtcdRegistry, worker: str) -> float:
    async with asyncio.timeout(20):
        while (found := await age(reader, worker)) is None:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.02)
    return found


async def expect_age(reader: EtcdRegistry, worker: str, since: float, slack: float = 0.0) -> None:
    """`since` is when the publish had returned, on `time.monotonic`."""
    found = await known_age(reader, worker)
    passed = time.monotonic() - since
    assert passed - 0.5 <= found <= passed + slack + BUSY_SECONDS


async def test_what_is_published_while_it_listens_has_its_exact_age(registry: MakeRegistry) -> None:
    reader, writer = await registry("worker-1"), await registry("worker-2")
    await reader.list()
    for _ in range(2):
        await writer.publish(make_card("worker-2"))
        since = time.monotonic()
        await expect_age(reader, "worker-2", since)
        await asyncio.sleep(1)
        await expect_age(reader, "worker-2", since)


async def test_a_card_from_before_it_started_has_the_age_of_its_lease(registry: MakeRegistry) -> None:
    writer = await registry("worker-2")
    await writer.publish(make_card("worker-2"))
    since = time.monotonic()
    await asyncio.sleep(2)

    await expect_age(await registry("worker-1"), "worker-2", since, WHOLE_SECONDS)


@pytest.mark.parametrize(
    ("verb", "compacted"),
    [(Verb.REFUSE, True), (Verb.BLACK_HOLE, False)],
    ids=["refused, and compacted", "black hole"],
)
async def test_ages_are_right_again_after_the_connection_was_lost(
    registry: MakeRegistry, etcd: Etcd, verb: Verb, compacted: bool
) -> None:
    with proxy_to(etcd.port) as proxy:
        reader = await registry("worker-1", f"http://127.0.0.1:{proxy.port}", timeout_seconds=0.6)
        writer = await registry("worker-2")
        for worker in ("worker-2", "worker-3"):
            await writer.publish(make_card(worker))
        unchanged = time.monotonic()
        await expect_age(reader, "worker-3", unchanged)
        proxy.set(verb)
        with pytest.raises(OSError, match="etcd"):
            await reader.list()
        for number in range(3):
            await writer.publish(make_card("worker-2", x=number))
        changed = time.monotonic()
        if compacted:
            etcd.compact()
        await asyncio.sleep(2)
        proxy.set(Verb.PASS)

        async with asyncio.timeout(20):
            while True:
                try:
                    await reader.list()
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        await expect_age(reader, "worker-2", changed, WHOLE_SECONDS)
        await expect_age(reader, "worker-3", unchanged)
        await writer.publish(make_card("worker-2"))
        await expect_age(reader, "worker-2", time.monotonic(), WHOLE_SECONDS)


async def test_a_watch_that_tells_nothing_is_noticed_and_costs_no_content(
    registry: MakeRegistry, etcd: Etcd
) -> None:
    with link(DeafWatch(etcd.port)) as proxy:
        reader = await registry("worker-1", f"http://127.0.0.1:{proxy.port}")
        writer = await registry("worker-2")
        await writer.publish(make_card("worker-2"))
        await known_age(reader, "worker-2")
        proxy.deaf = True
        card = make_card("worker-2", x=1)
        await writer.publish(card)
        since = time.monotonic()

        assert [peer.card for peer in await reader.list()] == [card]

        watches = etcd.requests("Watch")
        await asyncio.sleep(1.5)
        await expect_age(reader, "worker-2", since, WHOLE_SECONDS)
        async with asyncio.timeout(10):
            while etcd.requests("Watch") == watches:
                await reader.list()
                await asyncio.sleep(0.05)
        await writer.withdraw("worker-2", card["instance"])
        assert await reader.list() == []
        proxy.deaf = False
        await writer.publish(card)
        await expect_age(reader, "worker-2", time.monotonic(), WHOLE_SECONDS)


async def test_a_card_that_nobody_renews_is_gone_from_the_store_after_its_time(
    registry: MakeRegistry, etcd: Etcd, prefix: str
) -> None:
    writer = await registry("worker-2", prune_after_seconds=2)
    await writer.publish(make_card("worker-2"))
    await writer.stop()

    async with asyncio.timeout(20):
        while etcd.keys(prefix):  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.1)
