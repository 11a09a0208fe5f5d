"""The bytes of a card: written and read as the contract of the fleet wants them.

Of core only the size is used, which every implementation of the card has under that name; so the rest is
here once more.
"""

import json
import math
import re
from typing import Any, Final

from drakkar.fleet.card import MAX_CARD_BYTES

_MAX_DEPTH: Final = 32
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


class UnreadableError(ValueError):
    """No card. `reason` is one word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def encode_card(card: dict[str, Any]) -> bytes:
    """The bytes of `card`: sorted keys, no space, raw UTF-8.

    Raises `ValueError` for what is no JSON object, larger than `MAX_CARD_BYTES`, or names no worker.
    """
    if not isinstance(card.get("worker"), str) or not card["worker"]:
        raise ValueError("a card is an object that names its worker")
    try:
        _check_keys(card, _MAX_DEPTH)
        text = json.dumps(card, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        data = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the card is not JSON: {error}") from error
    if len(data) > MAX_CARD_BYTES:
        raise ValueError(f"the card has {len(data)} bytes, more than {MAX_CARD_BYTES}")
    return data


def decode_card(data: bytes) -> dict[str, Any]:
    """The object in `data`, in bounded time for any bytes. Raises `UnreadableError`."""
    if len(data) > MAX_CARD_BYTES:
        raise UnreadableError("too_large")
    try:
        _check_depth(data)
        card = _DECODER.decode(data.decode())
        if b"\\u" in data:  # the only way to a lone surrogate, which no reader could encode again
            json.dumps(card, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UnreadableError("not_json") from error
    if not isinstance(card, dict):
        raise UnreadableError("not_object")
    return card


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= _MAX_DEPTH:
        return  # nearly every card
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
        raise ValueError("nested too deeply")
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
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is beyond the range of a float")
    return value


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
