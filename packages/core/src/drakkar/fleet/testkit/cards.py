"""Checks of what is stored and what comes back."""

from typing import Any, Final

from drakkar.fleet.card import MAX_CARD_BYTES, Card, encode_card
from drakkar.fleet.testkit.harness import (
    OTHER_INSTANCE,
    Peer,
    PublishingCheck,
    Stage,
    expect,
    make_card,
    publishing_check,
)

_ODD_FIELDS: Final[dict[str, Any]] = {
    "cluster": "größe/検索",
    "state": "a state of a newer release",
    "features": {"cache": {"global": {"key": "a|b \u2028 \x00 \U0001f6f6", "ms": 1760348411000}}},
    "x_unknown": [None, True, False, 0, -1.5, 1e300, 2**53 + 1, "", [], {}, {"": [[]]}],
    'x "quoted" \\ key': "\\u0041 </script>",
}
_NOT_JSON: Final[dict[str, Any]] = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "a lone surrogate": "\ud800",
    "bytes": b"bytes",
    "a set": {1},
    "an object": object(),
    "a key that is no string": {1: 2},
}


@publishing_check
async def check_card_comes_back(stage: Stage) -> None:
    """A card is listed as it was published, byte for byte when encoded: unknown fields, unknown states,
    text of any script, empty values and large numbers included."""
    async with stage.peer("worker-1") as peer, stage.peer("worker-2") as other:
        card = await peer.publish(**_ODD_FIELDS)
        await peer.expect_card(card, "after publishing it, in the publisher's own listing")
        await other.expect_card(card, "after another process published it")


@publishing_check
async def check_any_worker_name(stage: Stage) -> None:
    """A worker name may hold any characters: its card is stored, listed and withdrawn like any other."""
    async with stage.peer("search.1/a b*[c]?%2F:{d}~ü") as peer:
        card = await peer.publish()
        await peer.expect_card(card, "after publishing under a name with unusual characters")
        await peer.withdraw()
        await peer.expect_no_card(peer.worker, "after withdrawing it")


@publishing_check
async def check_publish_replaces(stage: Stage) -> None:
    """A publish puts the whole card in place of the one before it: nothing of the old one is left, whether
    the new one is shorter or longer."""
    async with stage.peer("worker-1") as peer:
        for fields in ({"state": "starting"}, {"x_more": "x" * 3000}, {"state": "draining"}):
            card = await peer.publish(**fields)
            await peer.expect_card(card, "after publishing once more")


@publishing_check
async def check_one_card_per_worker(stage: Stage) -> None:
    """Two processes of one worker name share one card: the last one published is listed."""
    async with stage.peer("worker-1") as first, stage.peer("worker-1", OTHER_INSTANCE) as second:
        await first.publish()
        card = await second.publish()
        await first.expect_card(card, "after another process of that name published")
        card = await first.publish()
        await second.expect_card(card, "after the first process published again")


@publishing_check
async def check_vanished_card_is_published_whole(stage: Stage) -> None:
    """A publish creates the whole card anew when someone has deleted it meanwhile."""
    async with stage.peer("worker-1") as peer, stage.peer("worker-1") as someone:
        await peer.publish(features={"x": 1})
        await someone.withdraw()
        await peer.expect_no_card(peer.worker, "after someone deleted it")
        card = await peer.publish(features={"x": 2})
        await peer.expect_card(card, "after publishing a card that had been deleted")
        await someone.expect_card(card, "after publishing a card that had been deleted")


@publishing_check
async def check_largest_card_is_stored(stage: Stage) -> None:
    """A card of exactly 4096 bytes is stored."""
    async with stage.peer("worker-1") as peer:
        card = _card_of(peer, MAX_CARD_BYTES, "ü")
        await peer.publish_card(card)
        await peer.expect_card(card, f"after publishing a card of {MAX_CARD_BYTES} bytes")


@publishing_check
async def check_too_large_card_is_refused(stage: Stage) -> None:
    """A publish of more than 4096 bytes, counted as UTF-8, raises and leaves the stored card as it was."""
    async with stage.peer("worker-1") as peer:
        card = await peer.publish()
        for size, filler in ((MAX_CARD_BYTES + 1, "x"), (MAX_CARD_BYTES + 1, "ü"), (2_000_000, "x")):
            await _expect_refusal(peer, _card_of(peer, size, filler), f"a card of {size} bytes")
            await peer.expect_card(card, f"after a card of {size} bytes was refused")


@publishing_check
async def check_what_is_not_json_is_refused(stage: Stage) -> None:
    """A publish of a value that JSON does not have raises and leaves the stored card as it was."""
    async with stage.peer("worker-1") as peer:
        card = await peer.publish()
        for label, value in _NOT_JSON.items():
            bad = make_card(peer.worker, peer.instance, features={"x": value})
            await _expect_refusal(peer, bad, f"a card with {label}")
            await peer.expect_card(card, f"after a card with {label} was refused")


@publishing_check
async def check_listing_is_the_callers_own(stage: Stage) -> None:
    """What a caller does to a listing and to its cards is not seen in the next listing of anyone."""
    async with stage.peer("worker-1") as peer, stage.peer("worker-2") as other:
        card = await peer.publish(features={"x": {"y": [1]}})
        for _ in range(2):
            listing = await peer.list()
            for listed in listing:
                features = listed.card.get("features")
                if isinstance(features, dict):
                    features["x"] = "changed by the caller"
                listed.card["state"] = "changed by the caller"
            listing.clear()
            await peer.expect_card(card, "after changing an earlier listing")
            await other.expect_card(card, "after another process changed its listing")


@publishing_check
async def check_publish_keeps_no_reference(stage: Stage) -> None:
    """What a caller does to a card after publishing it is not seen in any listing."""
    async with stage.peer("worker-1") as peer:
        card = await peer.publish(features={"x": {"y": [1]}})
        kept = make_card(peer.worker, peer.instance, features={"x": {"y": [1]}})
        card["features"]["x"]["y"].append(2)
        card["state"] = "changed by the caller"
        await peer.expect_card(kept, "after changing the card that was published")


CARD_CHECKS: Final[tuple[PublishingCheck, ...]] = (
    check_card_comes_back,
    check_any_worker_name,
    check_publish_replaces,
    check_one_card_per_worker,
    check_vanished_card_is_published_whole,
    check_largest_card_is_stored,
    check_too_large_card_is_refused,
    check_what_is_not_json_is_refused,
    check_listing_is_the_callers_own,
    check_publish_keeps_no_reference,
)


def _card_of(peer: Peer, size: int, filler: str) -> Card:
    card = make_card(peer.worker, peer.instance, x_filler="")
    room = size - len(encode_card(card))
    width = len(filler.encode())
    card["x_filler"] = filler * (room // width) + "x" * (room % width)
    return card


async def _expect_refusal(peer: Peer, card: Card, what: str) -> None:
    try:
        await peer.provider.publish(card)
    except Exception:  # noqa: BLE001 - which error a provider refuses with is its own affair
        return
    expect(False, f"expected publish to refuse {what}, it accepted it")
