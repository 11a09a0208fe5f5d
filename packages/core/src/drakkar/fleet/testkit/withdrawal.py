"""Checks of taking a card away."""

from typing import Final

from drakkar.fleet.testkit.harness import OTHER_INSTANCE, PublishingCheck, Stage, publishing_check


@publishing_check
async def check_withdraw_removes_the_card(stage: Stage) -> None:
    """A withdraw by the process that published removes its card, for everyone; the next publish brings a
    card back."""
    async with stage.peer("worker-1") as peer, stage.peer("worker-2") as other:
        await peer.publish()
        await other.find(peer.worker)
        await peer.withdraw()
        await peer.expect_no_card(peer.worker, "after withdrawing it")
        await other.expect_no_card(peer.worker, "after another process withdrew its own")
        card = await peer.publish()
        await other.expect_card(card, "after publishing again")


@publishing_check
async def check_withdraw_leaves_another_instance(stage: Stage) -> None:
    """A withdraw leaves a card that another process of that worker name has published since."""
    async with stage.peer("worker-1") as first, stage.peer("worker-1", OTHER_INSTANCE) as second:
        await first.publish()
        card = await second.publish()
        await first.withdraw()
        await second.expect_card(card, "after a process of that name withdrew that does not hold the card")
        await first.expect_card(card, "after withdrawing a card of another process")


@publishing_check
async def check_withdraw_leaves_other_workers(stage: Stage) -> None:
    """A withdraw leaves the cards of all other workers, also of those whose name only looks like it."""
    async with stage.peer("worker-1") as peer, stage.peer("worker-10") as other:
        longer = f"{peer.worker}0"
        await peer.publish()
        cards = [await other.publish(), await other.publish(worker=longer)]
        await peer.withdraw()
        for card in cards:
            await other.expect_card(card, "after another worker withdrew its own")
        await other.provider.withdraw(longer, other.instance)


@publishing_check
async def check_withdraw_of_nothing_is_no_error(stage: Stage) -> None:
    """A withdraw when there is no such card does nothing, before the first publish too."""
    async with stage.peer("worker-1") as peer:
        await peer.withdraw()


@publishing_check
async def check_withdraw_twice_is_no_error(stage: Stage) -> None:
    """A withdraw may be called again, as after one whose answer was lost."""
    async with stage.peer("worker-1") as peer:
        await peer.publish()
        await peer.withdraw()
        await peer.withdraw()
        await peer.expect_no_card(peer.worker, "after withdrawing it twice")


WITHDRAWAL_CHECKS: Final[tuple[PublishingCheck, ...]] = (
    check_withdraw_removes_the_card,
    check_withdraw_leaves_another_instance,
    check_withdraw_leaves_other_workers,
    check_withdraw_of_nothing_is_no_error,
    check_withdraw_twice_is_no_error,
)
