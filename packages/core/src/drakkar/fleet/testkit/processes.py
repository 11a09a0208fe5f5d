"""Checks of many workers at once, and of calls that are cut short."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit.harness import PublishingCheck, Stage, expect, publishing_check

_MANY: Final = 200
_ROUNDS: Final = 20
_TURNS: Final = (0, 1, 2, 3, 5, 10, 50)
"""After how many turns of the event loop a call is cancelled."""
_SETTLE_SECONDS: Final = 0.1
_END_SECONDS: Final = 5.0


@publishing_check
async def check_processes_see_each_other(stage: Stage) -> None:
    """Every process lists the cards of all, its own included."""
    async with stage.peer("worker-1") as first, stage.peer("worker-2") as second:
        cards = [await first.publish(), await second.publish()]
        for peer in (first, second):
            for card in cards:
                await peer.expect_card(card, f"in the listing of {peer.worker}")


@publishing_check
async def check_listing_before_publish(stage: Stage) -> None:
    """A process may list before it has published. That may fail; after its first publish it must not."""
    async with stage.peer("worker-1") as peer:
        with contextlib.suppress(Exception):  # a store may lack everything before the first publish
            await peer.provider.list()
        card = await peer.publish()
        await peer.expect_card(card, "after listing first and publishing then")


@publishing_check
async def check_many_cards(stage: Stage) -> None:
    """All of two hundred cards are listed, each once, whoever published them."""
    async with stage.peer("worker-1") as first, stage.peer("worker-2") as second:
        peers = (first, second)
        names = [stage.worker(f"many-{number}") for number in range(_MANY)]
        for number, name in enumerate(names):
            await peers[number % 2].publish(worker=name)
        for peer in peers:
            listed = [row.card.get("worker") for row in await peer.list()]
            expect(
                sorted(str(name) for name in listed if name in names) == sorted(names),
                f"expected {_MANY} cards, each once, the listing has {len(set(names) & set(listed))} of them",
            )
        for name in names:
            await first.provider.withdraw(name, first.instance)


@publishing_check
async def check_concurrent_publishes(stage: Stage) -> None:
    """Processes that publish at the same moment lose nobody's card."""
    async with stage.peer("worker-1") as first, stage.peer("worker-2") as second:
        for number in range(_ROUNDS):
            cards = await asyncio.gather(*(peer.publish(x_round=number) for peer in (first, second)))
            for peer in (first, second):
                for card in cards:
                    await peer.expect_card(card, "after two processes published at once")


@publishing_check
async def check_publish_is_atomic(stage: Stage) -> None:
    """A listing during a publish has the old card or the new one: never none, never a mix of both."""
    async with stage.peer("worker-1") as reader, stage.peer("worker-2") as writer:
        versions = [{"x_long": "x" * 3500, "state": "starting"}, {"state": "running"}]
        allowed = {encode_card(await writer.publish(**fields)) for fields in versions}

        async def rewrite() -> None:
            for number in range(2 * _ROUNDS):
                await writer.publish(**versions[number % 2])

        rewriting = asyncio.create_task(rewrite())
        try:
            while not rewriting.done():
                found = await reader.find(writer.worker)
                holds = found is not None and encode_card(found.card) in allowed
                expect(holds, f"expected the old card or the new one during a publish, got {found}")
                await asyncio.sleep(0)
        finally:
            rewriting.cancel()
            await asyncio.wait({rewriting})
        rewriting.result()


@publishing_check
async def check_cancelled_publish(stage: Stage) -> None:
    """After a publish was cancelled, the old card or the new one is stored, the provider works on, and what
    it publishes then is not overwritten by what was cancelled."""
    async with stage.peer("worker-1") as peer:
        for turns in _TURNS:
            before = await peer.publish(x_number=-turns)
            await _cancelled(peer.publish(x_cancelled="x" * 3000), turns)
            found = await peer.find(peer.worker)
            holds = found is not None and (
                "x_cancelled" in found.card or encode_card(found.card) == encode_card(before)
            )
            expect(holds, f"expected the old or the new card after a cancelled publish, got {found}")
            card = await peer.publish(x_number=turns)
            await peer.expect_card(card, "after a cancelled publish and another one")
            await asyncio.sleep(_SETTLE_SECONDS)  # what still runs somewhere would land now
            await peer.expect_card(card, "a little after a cancelled publish and another one")


@publishing_check
async def check_cancelled_list(stage: Stage) -> None:
    """After a listing was cancelled, the next one is complete and belongs to its own call."""
    async with stage.peer("worker-1") as peer:
        for turns in _TURNS:
            await peer.publish(x_number=-turns)
            await _cancelled(peer.provider.list(), turns)
            card = await peer.publish(x_number=turns)
            await peer.expect_card(card, "after a cancelled listing")


@publishing_check
async def check_stop_without_start(stage: Stage) -> None:
    """A provider whose start failed is stopped like any other: stop raises nothing then."""
    provider = stage.unstarted()
    try:
        await provider.stop()
    except Exception as error:
        raise AssertionError(f"expected stop to return without a start, it raised {error!r}") from error


PROCESS_CHECKS: Final[tuple[PublishingCheck, ...]] = (
    check_processes_see_each_other,
    check_listing_before_publish,
    check_many_cards,
    check_concurrent_publishes,
    check_publish_is_atomic,
    check_cancelled_publish,
    check_cancelled_list,
    check_stop_without_start,
)


async def _cancelled(call: Coroutine[Any, Any, object], turns: int) -> None:
    """Cancel `call` after `turns` of the event loop, and wait for its end, whichever that is."""
    task = asyncio.create_task(call)
    try:
        for _ in range(turns):
            await asyncio.sleep(0)
    finally:
        task.cancel()
    _, running = await asyncio.wait({task}, timeout=_END_SECONDS)
    expect(not running, f"expected a cancelled call to end, it still ran {_END_SECONDS:g} s later")
    if not task.cancelled():
        task.exception()  # a call that was too quick to be cancelled, or failed on its way out: both allowed
