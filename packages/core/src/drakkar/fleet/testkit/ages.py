"""Checks of how old a listed card is said to be, and of deleting the old ones."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from drakkar.fleet.testkit.harness import (
    TOLERANCE_SECONDS,
    Peer,
    PublishingCheck,
    Stage,
    expect,
    publishing_check,
)
from drakkar.fleet.testkit.reading import expect_ages_hold

_STEP_SECONDS: Final = 30.0


@publishing_check
async def check_ages_are_none_or_non_negative(stage: Stage) -> None:
    """The age of a listed card is None or a finite number from zero up, at whatever moment it is listed."""
    async with stage.peer("worker-1") as reader, stage.peer("worker-2") as writer:
        await writer.publish()
        expect_ages_hold(await reader.list())
        await reader.publish()
        await writer.publish()
        for _ in range(5):
            expect_ages_hold(await reader.list())
            expect_ages_hold(await writer.list())
        await stage.advance(_STEP_SECONDS)
        expect_ages_hold(await reader.list())


@publishing_check
async def check_new_reader_does_not_guess(stage: Stage) -> None:
    """A process that has just started tells the true age of an older card, or None, but never a younger
    one: it must not show a dead worker as online."""
    async with stage.peer("worker-2") as writer:
        await writer.publish()
    await stage.advance(_STEP_SECONDS)
    async with stage.peer("worker-1") as reader:
        for when in ("at its first listing", "at its second listing"):
            found = await reader.find(writer.worker)
            age = None if found is None else found.age_seconds
            expect(
                age is None or age >= _STEP_SECONDS - TOLERANCE_SECONDS,
                f"expected a new reader to give an age of {_STEP_SECONDS:g} s or None {when}, got {age}",
            )


@publishing_check
async def check_age_is_small_after_publish(stage: Stage) -> None:
    """Once a process has published, it knows its own card and those published after that to be new."""
    async with _watching(stage) as (reader, writer):
        since = time.monotonic()
        await writer.publish()
        await reader.expect_age(reader.worker, 0, since, "after publishing")
        await reader.expect_age(writer.worker, 0, since, "after another process published")


@publishing_check
async def check_age_grows(stage: Stage) -> None:
    """The age of a card grows with time, whether it is listed meanwhile or not."""
    async with _watching(stage) as (reader, writer):
        since = time.monotonic()
        await writer.publish()
        await reader.expect_age(writer.worker, 0, since, "after another process published")
        for step in (1, 2):
            await stage.advance(_STEP_SECONDS)
            await reader.publish()
            age = step * _STEP_SECONDS
            await reader.expect_age(writer.worker, age, since, f"{age:g} s after another process published")


@publishing_check
async def check_publish_makes_young_again(stage: Stage) -> None:
    """A publish brings the age back to nothing, also when the card has not changed."""
    async with _watching(stage) as (reader, writer):
        await writer.publish()
        await stage.advance(_STEP_SECONDS)
        since = time.monotonic()
        await writer.publish()
        await reader.publish()
        await reader.expect_age(writer.worker, 0, since, "after another process published again")


@publishing_check
async def check_old_card_leaves_the_listing(stage: Stage) -> None:
    """A card that is older than `prune_after_seconds` is not listed any more, and stays away."""
    async with _watching(stage) as (reader, writer):
        await _let_grow_old(stage, reader, writer)
        await _expect_pruned(reader, writer.worker)
        for _ in range(2):
            await reader.publish()
            await reader.expect_no_card(writer.worker, "after it had left the listing for its age")


@publishing_check
async def check_old_card_is_deleted(stage: Stage) -> None:
    """A card that left the listing for its age is gone from the store: a process that starts after that
    does not list it either."""
    async with _watching(stage) as (reader, writer):
        await _let_grow_old(stage, reader, writer)
        await _expect_pruned(reader, writer.worker)
        async with stage.peer("worker-3") as later:
            await later.expect_no_card(writer.worker, "in a process that started after it was deleted")


@publishing_check
async def check_younger_card_stays(stage: Stage) -> None:
    """A card is kept while its last publish is not older than `prune_after_seconds`, however long ago it
    was first published."""
    async with _watching(stage) as (reader, writer):
        card = await writer.publish()
        for _ in range(3):
            await stage.advance(0.6 * stage.prune_after_seconds)
            await reader.publish()
            await reader.expect_card(card, "before it was old enough to be deleted")
            card = await writer.publish()
            await reader.expect_card(card, "after publishing again in time")


@publishing_check
async def check_pruned_worker_returns(stage: Stage) -> None:
    """A worker whose card was deleted for its age is back with its next publish: the whole card, and new."""
    async with _watching(stage) as (reader, writer):
        await _let_grow_old(stage, reader, writer)
        await _expect_pruned(reader, writer.worker)
        since = time.monotonic()
        card = await writer.publish(features={"x": 1})
        await reader.expect_card(card, "after publishing a card that had been deleted for its age")
        await reader.expect_age(writer.worker, 0, since, "after publishing it again")


AGE_CHECKS: Final[tuple[PublishingCheck, ...]] = (
    check_ages_are_none_or_non_negative,
    check_new_reader_does_not_guess,
    check_age_is_small_after_publish,
    check_age_grows,
    check_publish_makes_young_again,
    check_old_card_leaves_the_listing,
    check_old_card_is_deleted,
    check_younger_card_stays,
    check_pruned_worker_returns,
)


@asynccontextmanager
async def _watching(stage: Stage) -> AsyncIterator[tuple[Peer, Peer]]:
    """A reader that has published and listed, so that it can know ages from now on, and a writer."""
    async with stage.peer("worker-1") as reader, stage.peer("worker-2") as writer:
        await reader.publish()
        await reader.list()
        yield reader, writer


async def _let_grow_old(stage: Stage, reader: Peer, writer: Peer) -> None:
    since = time.monotonic()
    await writer.publish()
    await reader.expect_age(writer.worker, 0, since, "after another process published")
    await stage.advance(stage.prune_after_seconds + 2 * TOLERANCE_SECONDS)
    await reader.publish()


async def _expect_pruned(reader: Peer, worker: str) -> None:
    give_up_at = time.monotonic() + TOLERANCE_SECONDS
    while (found := await reader.find(worker)) is not None:
        if time.monotonic() >= give_up_at:
            age = found.age_seconds
            raise AssertionError(f"expected no card older than prune_after_seconds, got one of {age} s")
        await asyncio.sleep(0.02)
