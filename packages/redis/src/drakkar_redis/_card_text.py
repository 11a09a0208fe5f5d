"""A card as text and back.

The same rules as those of `drakkar.fleet.card`, on the one name of it that every implementation has: the
size.
"""

import json
import math
import re
from typing import Any, Final

from drakkar.fleet.card import MAX_CARD_BYTES

_MAX_DEPTH: Final = 32
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def encode(card: dict[str, Any]) -> bytes:
    """Return the bytes of `card`. Raises `ValueError`: not JSON, not an object, or too large."""
    if not isinstance(card, dict):
        raise ValueError(f"a card is an object, not {type(card).__name__}")
    try:
        _check_keys(card, _MAX_DEPTH)
        text = json.dumps(card, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        data = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the card is not JSON: {error}") from error
    if len(data) > MAX_CARD_BYTES:
        raise ValueError(f"the card has {len(data)} bytes, more than {MAX_CARD_BYTES}")
    return data


def decode(data: bytes) -> dict[str, Any] | str:
    """Return the card, or in one word why there is none: `too_large`, `not_json` or `not_object`."""
    if len(data) > MAX_CARD_BYTES:
        return "too_large"
    try:
        _check_depth(data)
        card = _DECODER.decode(data.decode())
        if b"\\u" in data:  # the only way to a lone surrogate, which no reader could encode again
            json.dumps(card, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return "not_json"
    return card if isinstance(card, dict) else "not_object"


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= _MAX_DEPTH:
        return
    depth = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"[{":
            depth += 1
            if depth > _MAX_DEPTH:
                raise ValueError(f"nested deeper than {_MAX_DEPTH}")
        elif byte in b"]}":
            depth -= 1


def _check_keys(value: object, depth_left: int) -> None:
    # json.dumps would silently turn the key 1 into "1".
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
