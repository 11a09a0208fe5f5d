"""Checks of any provider, those that publish nothing included. Each takes a provider that is not started."""

import json
import math

from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext, RegistryProvider
from drakkar.fleet.testkit.harness import expect


async def check_list_shape(provider: RegistryProvider, ctx: RegistryContext) -> None:
    """A listing is a list of `PeerCard`s whose cards are JSON objects, and it is the caller's own: what the
    caller does to it is not seen in the next one."""
    try:
        await provider.start(ctx)
        listing = await provider.list()
        _expect_shape(listing)
        before = _shown(listing)
        for peer in listing:
            peer.card["changed by the caller"] = True
        listing.clear()
        again = await provider.list()
        _expect_shape(again)
        expect(
            _shown(again) == before,
            f"expected a second listing to be like the first, {before}, got {_shown(again)}",
        )
    finally:
        await provider.stop()


async def check_age_is_none_or_non_negative(provider: RegistryProvider, ctx: RegistryContext) -> None:
    """The age of each listed card is None or a finite number of seconds, zero or more."""
    try:
        await provider.start(ctx)
        expect_ages_hold(await provider.list())
    finally:
        await provider.stop()


def expect_ages_hold(listing: PeerCardList) -> None:
    for peer in listing:
        age: object = peer.age_seconds
        holds = age is None or (
            isinstance(age, int | float) and not isinstance(age, bool) and math.isfinite(age) and age >= 0
        )
        worker = peer.card.get("worker")
        expect(holds, f"expected the age of {worker} to be None or a number from 0 up, got {age!r}")


def _expect_shape(listing: object) -> None:
    expect(isinstance(listing, list), f"expected a list, got {type(listing).__name__}")
    assert isinstance(listing, list)  # noqa: S101 - for the type checker; the line above did the checking
    for peer in listing:
        expect(isinstance(peer, PeerCard), f"expected PeerCards, the listing has {type(peer).__name__}")
        expect(isinstance(peer.card, dict), f"expected cards to be dicts, got {type(peer.card).__name__}")
        try:
            json.dumps(peer.card, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"expected a card of JSON values, got one with {error}") from error


def _shown(listing: PeerCardList) -> list[str]:
    return sorted(json.dumps(peer.card, sort_keys=True) for peer in listing)
