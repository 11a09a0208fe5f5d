"""What a card shows of the background workers, within the size that a card may have."""

from typing import Any, Final

from drakkar.fleet.card import Card, CardError, encode_card

_SHORTENED: Final = ("workers", "leader_for", "fanouts")
"""In this order: peers act on the fan-outs, people look for the leaders, the rest is in the configuration."""


def fit_features(card: Card, features: dict[str, Any]) -> Card:
    """Return `card` with `features` added to its own, in at most `MAX_CARD_BYTES`.

    When that is too much, the keys in the marks of `cache` go first, which tell peers little beside their
    times; then `workers`, `leader_for` and `fanouts` are cut, one after the other and no more than needed,
    and `features.shortened` is true. Everything else stays: a card that is too large or no JSON
    without them remains so, for its publisher to refuse.
    """
    own = card.get("features", {})
    if _fits(whole := {**card, "features": {**own, **features}}):
        return whole
    if isinstance(marks := features.get("cache"), dict):
        features = {**features, "cache": {scope: {**mark, "key": ""} for scope, mark in marks.items()}}
        if _fits(whole := {**card, "features": {**own, **features}}):
            return whole
    cut = {**own, **features, "shortened": True}
    for key in _SHORTENED:
        if isinstance(items := cut.get(key), list | dict):
            kept, refused = 0, len(items) + 1
            while refused - kept > 1:
                middle = (kept + refused) // 2
                if _fits({**card, "features": {**cut, key: _first(items, middle)}}):
                    kept = middle
                else:
                    refused = middle
            cut[key] = _first(items, kept)
        if _fits({**card, "features": cut}):
            break
    return {**card, "features": cut}


def _first(items: list[Any] | dict[str, Any], count: int) -> list[Any] | dict[str, Any]:
    return items[:count] if isinstance(items, list) else dict(list(items.items())[:count])


def _fits(card: Card) -> bool:
    try:
        encode_card(card)
    except CardError:
        return False
    return True
