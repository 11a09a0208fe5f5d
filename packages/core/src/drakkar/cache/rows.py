"""A row of the cache: what may be in one, and which of two rows of one key counts.

`updated_at_ms` is a version first and a time second. Workers give each row that they write a greater one than
every row before, so it serves as the place in a worker's history at which a peer goes on reading, and the
greater one wins between workers. It is the one place where the wall clocks of hosts are compared: of two
workers that write one key at nearly the same moment, the one whose clock is ahead wins, everywhere.
"""

import json
import math
from typing import Any, Final, Literal, NamedTuple

Scope = Literal["memory", "local", "cluster", "global"]
SCOPES: Final[tuple[Scope, ...]] = ("memory", "local", "cluster", "global")
SERVED_SCOPES: Final = ("cluster", "global")

MAX_KEY_BYTES: Final = 2048
"""As UTF-8. A key must fit into the address of a request, where each byte may take three."""

MAX_VALUE_BYTES: Final = 256 * 1024
"""As JSON text. Rows travel a thousand at a time, and no reader may be held up by one of them."""

MAX_VALUE_DEPTH: Final = 64
MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

MAX_STAMP_MS: Final = 221_845_391_999_999
"""The end of the year 8999, for `updated_at_ms`: a page with a later one is refused, and none is given here.
Who has to exceed a row of a peer needs room for it, which what stands for "never" must not use up."""

Cursor = tuple[int, str]
"""The `updated_at_ms` and the key of the last row that was read; text compares as SQLite compares it, by code
points."""


class Row(NamedTuple):
    """One version of one key, as it is stored and as it travels; the order of the fields is that of both."""

    key: str
    scope: str
    value: str
    """JSON text."""

    size_bytes: int
    """Of the value, as UTF-8."""

    created_at_ms: int
    updated_at_ms: int
    expires_at_ms: int | None
    origin_worker_id: str
    """The worker that wrote it."""

    @property
    def cursor(self) -> Cursor:
        """Where a reader is who has read this row last."""
        return (self.updated_at_ms, self.key)

    def expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


def wins(row: Row, over: Row) -> bool:
    """Whether `row` replaces `over`: the later one, of two at one time that of the smaller worker name.

    A row does not win over itself, so that it may come any number of times.
    """
    if row.updated_at_ms != over.updated_at_ms:
        return row.updated_at_ms > over.updated_at_ms
    return row.origin_worker_id < over.origin_worker_id


def check_key(key: object) -> None:
    """Raise `ValueError` unless `key` is text that every store and every peer takes."""
    if not isinstance(key, str) or not key:
        raise ValueError(f"a cache key must be text that is not empty, not {key!r:.60}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise ValueError("a cache key must be valid Unicode; this one has half a surrogate pair") from error
    if size > MAX_KEY_BYTES:
        raise ValueError(f"a cache key has at most {MAX_KEY_BYTES} bytes; this one has {size}")
    if "\0" in key:
        raise ValueError("a cache key must not hold a NUL character")


def is_key(key: object) -> bool:
    """Whether there can be anything under `key`; false for all that `check_key` refuses."""
    try:
        check_key(key)
    except ValueError:
        return False
    return True


def encode_value(value: object) -> tuple[str, int]:
    """The JSON text of `value`, and its size in bytes.

    Raises `ValueError` that says what is wrong and where: a type that JSON does not have, a key that is no
    text, NaN or infinity, half a surrogate pair, nesting deeper than `MAX_VALUE_DEPTH` (so also what contains
    itself), or more than `MAX_VALUE_BYTES`.
    """
    _check_value(value, MAX_VALUE_DEPTH)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), check_circular=False)
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError("a cached value must be valid Unicode; this has half a surrogate pair") from error
    except ValueError as error:  # an integer of thousands of digits
        raise ValueError(f"a cached value must be JSON: {error}") from error
    if size > MAX_VALUE_BYTES:
        raise ValueError(f"a cached value has at most {MAX_VALUE_BYTES} bytes as JSON; this one has {size}")
    return text, size


def decode_value(text: str) -> Any:
    """What `text` stands for. Raises `ValueError` when it is nothing that could have been set: a peer may
    have sent anything."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if "\\u" in text:  # what was set here has no half of a character, nor a text that needs this for one
        encode_value(value)
    return value


def _check_value(value: object, depth_left: int) -> None:
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a cached value must be JSON, which has no {value}")
        return
    if not isinstance(value, dict | list | tuple):
        raise ValueError(f"a cached value must be JSON, which has no {type(value).__name__}")
    if depth_left == 0:
        raise ValueError(f"a cached value nests at most {MAX_VALUE_DEPTH} levels deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError(f"a cached value must be JSON, where keys are text, not {key!r:.60}")
            _check_value(inner, depth_left - 1)
    else:
        for inner in value:
            _check_value(inner, depth_left - 1)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
