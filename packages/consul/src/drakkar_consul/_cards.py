"""Cards as bytes, and as they were read. Nothing here asks the agent.

The bytes are those of `drakkar.fleet.card`; its functions for them are not used, as other implementations of
that module have others.
"""

import json
import marshal
import math
import re
from typing import Any, Final, cast

from drakkar.fleet.card import MAX_CARD_BYTES

from drakkar_consul._keys import decoded
from drakkar_consul._names import place_of

_MAX_DEPTH: Final = 32
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)

Card = dict[str, Any]


def encode_card(card: Card) -> bytes:
    """The bytes of `card`. Raises `ValueError`, one line, when it is not JSON, too large, or names no
    worker."""
    if not isinstance(card, dict):
        raise ValueError(f"a card is an object, not {type(card).__name__}")
    try:
        _check_keys(card, _MAX_DEPTH)
        data = json.dumps(
            card, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the card is not JSON: {error}") from error
    if len(data) > MAX_CARD_BYTES:
        raise ValueError(f"the card has {len(data)} bytes, more than {MAX_CARD_BYTES}")
    if not isinstance(card.get("worker"), str) or not card["worker"]:
        raise ValueError("the card names no worker, so there is no key for it")
    return data


class CardEntry:
    """What a key among the cards held."""

    __slots__ = ("_bytes", "_unused", "reason", "text")

    def __init__(self, place: str, text: str) -> None:
        card, self.reason = _decode(decoded(text))
        """Why it is no card, in one word; empty when it is one."""

        self.reason = self.reason or _misplaced(card, place)
        self.text = "" if self.reason == "too_large" else text
        """The value as it was sent, unless it is long: the next one that is the same is the same card."""

        self._unused: Card | None = card
        self._bytes = b""

    def card(self) -> Card:
        """The card, each time a new one that is the caller's own.

        From the third time on made by marshal, from bytes that are nobody's but ours, which takes a third of
        what parsing takes. Most cards change before that.
        """
        card, self._unused = self._unused, None
        if card is not None:
            return card
        if not self._bytes:
            self._bytes = marshal.dumps(_decode(decoded(self.text))[0])
        return cast("Card", marshal.loads(self._bytes))  # noqa: S302


def instance_in(data: bytes) -> object:
    """The instance that the card in `data` names; None when there is none."""
    card, _ = _decode(data)
    return card.get("instance")


def _misplaced(card: Card, place: str) -> str:
    """Why a card cannot be what a worker put in this place; empty when it can. A copy must not be a second
    row of its worker. Only here is the place known, so one that names no worker is told of here, too."""
    if "worker" not in card:
        return "missing_field"
    worker = card["worker"]
    if not isinstance(worker, str):
        return "wrong_type"
    if not worker:
        return "empty_field"
    return "" if place_of(worker) == place else "wrong_name"


def _decode(data: bytes) -> tuple[Card, str]:
    """The object in `data`, or an empty one and why there is none. Takes bounded time and stack."""
    if len(data) > MAX_CARD_BYTES:
        return {}, "too_large"
    try:
        _check_depth(data)
        text = data.decode().strip(" \t\n\r")
        card, end = _DECODER.raw_decode(text)  # `decode` takes half as long again
        if end != len(text):
            return {}, "not_json"
        if b"\\u" in data:  # the only way to a lone surrogate, which no reader could encode again
            json.dumps(card, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}, "not_json"
    return (card, "") if isinstance(card, dict) else ({}, "not_object")


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= _MAX_DEPTH:
        return
    depth = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"[{":
            depth += 1
            if depth > _MAX_DEPTH:
                raise ValueError("nested too deeply")
        elif byte in b"]}":
            depth -= 1


def _check_keys(value: object, depth_left: int) -> None:
    # json.dumps would silently turn the key 1 into "1", and then sort it by another rule.
    if depth_left == 0 and isinstance(value, dict | list | tuple):
        raise ValueError(f"nested deeper than {_MAX_DEPTH}")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a string")
            _check_keys(inner, depth_left - 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner, depth_left - 1)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is beyond the range of a float")
    return number


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
