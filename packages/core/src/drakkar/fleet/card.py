"""The card: what one worker publishes about itself, and the bytes it has in a store.

A card is a public statement, not a fact. Nothing here checks who wrote it, whether its URL answers, or
whether the writer is alive: anyone who can write the store can publish any card, so every reader treats
one as untrusted text. The times on a card are the writer's own and decide nothing.

The bytes are shared with other implementations: a JSON object with sorted keys, no space between tokens,
non-ASCII characters as raw UTF-8, no newline at the end, at most `MAX_CARD_BYTES`. Fields that this module
does not know are kept as they came.

Reading has two steps, because two parties report what is wrong. `decode_card` belongs to the store: it
turns bytes into an object, or says why the *bytes* are no card. `check_card` belongs to the worker: it
tells whether the object has the fields of a card.
"""

import json
import math
import re
from typing import Any, Final

SCHEMA_VERSION: Final = 1
MAX_CARD_BYTES: Final = 4096
MAX_CARD_DEPTH: Final = 32
"""How deep objects and arrays of a card may nest. The format sets no limit; this one keeps every later
walk over a card (encoding, escaping, rendering) far from the interpreter's recursion limit."""

Card = dict[str, Any]

_REQUIRED: Final = ("worker", "cluster", "url")
_NOT_EMPTY: Final = ("worker", "url")
_OPTIONAL: Final = ("instance", "backend", "version", "state", "started_at", "heartbeat_at")
# The closing quote may be missing: a search that fails starts over at each later quote, which takes a tenth
# of a second for a card of quotes and backslashes. Such a card is refused by the parser that comes next.
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


class CardError(ValueError):
    """This is no card. `reason` is one word for logs and counters, the message is for a person."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class CardSchemaError(CardError):
    """A card of another format version. Not a fault of its writer: a newer release may be rolling out."""


def encode_card(card: Card) -> bytes:
    """Return the bytes of `card`.

    Equal cards have equal bytes, whichever implementation wrote them.

    Raises `CardError` with reason `not_json` for a value that JSON does not have (NaN, infinity, a lone
    surrogate, any other type, a key that is no string), `not_object`, or `too_large`.
    """
    if not isinstance(card, dict):
        raise CardError("not_object", f"a card is an object, not {type(card).__name__}")
    try:
        _check_keys(card, MAX_CARD_DEPTH)
        text = json.dumps(card, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        data = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CardError("not_json", f"the card is not JSON: {error}") from error
    if len(data) > MAX_CARD_BYTES:
        raise CardError("too_large", f"the card has {len(data)} bytes, more than {MAX_CARD_BYTES}")
    return data


def decode_card(data: bytes) -> Card:
    """Return the object that `data` holds; its fields are not checked yet.

    Takes bounded time and stack for any input. Of a repeated key the last value counts.

    Raises `CardError` with reason `too_large`, `not_json` (also for a byte-order mark, bare `NaN`, a number
    beyond a float's range, a lone surrogate, nesting deeper than `MAX_CARD_DEPTH`) or `not_object`.
    """
    if len(data) > MAX_CARD_BYTES:
        raise CardError("too_large", f"{len(data)} bytes, more than {MAX_CARD_BYTES}")
    try:
        _check_depth(data)
        card = _DECODER.decode(data.decode())
        if b"\\u" in data:  # the only way to a lone surrogate, which no reader could encode again
            json.dumps(card, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CardError("not_json", f"not JSON: {error}") from error
    if not isinstance(card, dict):
        raise CardError("not_object", "JSON, but not an object")
    return card


def check_card(card: Card) -> None:
    """Check the fields of `card`: the schema first, then the required fields, then types of optional ones.

    Unknown fields and unknown values of `state` are allowed.

    Raises `CardSchemaError` for another format version, which is an integer other than 1, else `CardError`
    for the first rule that does not hold; its message names the field.
    """
    if "schema" not in card:
        raise CardError("missing_field", "schema is missing")
    schema = card["schema"]
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise CardError("wrong_type", "schema must be an integer")
    if schema != SCHEMA_VERSION:
        shown = schema if abs(schema) < 1000 else "of many digits"
        raise CardSchemaError("schema", f"format version {shown}, not {SCHEMA_VERSION}")
    for field in _REQUIRED:
        if field not in card:
            raise CardError("missing_field", f"{field} is missing")
        if not isinstance(card[field], str):
            raise CardError("wrong_type", f"{field} must be a string")
        if field in _NOT_EMPTY and not card[field]:
            raise CardError("empty_field", f"{field} is empty")
    for field in _OPTIONAL:
        if field in card and not isinstance(card[field], str):
            raise CardError("wrong_type", f"{field} must be a string")
    if "features" in card and not isinstance(card["features"], dict):
        raise CardError("wrong_type", "features must be an object")


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= MAX_CARD_DEPTH:
        return  # nearly every card: no need to look where the brackets stand
    depth = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"[{":
            depth += 1
            if depth > MAX_CARD_DEPTH:
                raise ValueError(f"nested deeper than {MAX_CARD_DEPTH}")
        elif byte in b"]}":
            depth -= 1


def _check_keys(value: object, depth_left: int) -> None:
    # json.dumps would silently turn the key 1 into "1", and then sort it by another rule.
    if depth_left == 0 and isinstance(value, dict | list | tuple):
        raise ValueError(f"nested deeper than {MAX_CARD_DEPTH}")
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
"""Made once: `json.loads` would make one for each card, which takes longer than most cards do."""
