"""Reading a page that a peer sends: piece by piece, never more at a time than the event loop can wait for.

A page of 64 MiB in one call of `json.loads` would hold the interpreter, and so the event loop, for a second,
in whatever thread. Rows are cut out of the stream as they come, each of at most `MAX_ROW_BYTES`, and are
flat: what nests is refused before it is parsed.
"""

import json
import re
from typing import Any, Final

from drakkar.cache.changes import MAX_LIMIT
from drakkar.cache.rows import MAX_KEY_BYTES, MAX_MS, MAX_STAMP_MS, Cursor, Row
from drakkar.cache.thread import breathe

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
MAX_ROW_BYTES: Final = 1024 * 1024
"""As it is sent: twice what the largest of our own takes at the worst."""

_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_VALUE: Final = rb"(?:" + _TEXT + rb"|[-+.\w]++)"
_PAIR: Final = rb"\s*+" + _TEXT + rb"\s*+:\s*+" + _VALUE + rb"\s*+(?:,(?=\s*+\")|(?=\}))"
_ROW: Final = rb"\s*+\{(?:" + _PAIR + rb"){0,32}+\}"
_ROWS: Final = re.compile(_ROW + rb"(?:\s*+," + _ROW + rb"){0,99}+", re.DOTALL)
_ONE_ROW: Final = re.compile(_ROW, re.DOTALL)
_MEMBER: Final = re.compile(
    rb'\s*+("rows"\s*+:\s*+\[)|\s*+' + _TEXT + rb"\s*+:\s*+(?:" + _TEXT + rb"|[-+.\w]++)(?=\s*+[,}])",
    re.DOTALL,
)
_PUNCTUATION: Final = re.compile(rb"\s*+([][{},])")
_MORE: Final = re.compile(rb'\s*+"more"\s*+:\s*+(true|false)\s*+')
_DECODER: Final = json.JSONDecoder()


class BadPageError(ValueError):
    """The body is no page."""


class PageReader:
    """Takes the body of one answer in pieces; runs on the cache's thread."""

    def __init__(self, after: Cursor | None) -> None:
        self._last = after
        self._buffer = b""
        self._next = self._begin
        self._look_again_at = 0
        self._size = 0
        self._more: bool | None = None
        self._has_rows = False
        self.rows: list[Row] = []

    def feed(self, data: bytes) -> None:
        """Raises `BadPageError` as soon as it is certain that this is no page."""
        self._size += len(data)
        if self._size > MAX_BODY_BYTES:
            raise BadPageError(f"more than {MAX_BODY_BYTES} bytes")
        self._buffer += data
        if len(self._buffer) < self._look_again_at:
            return  # a large row is not looked at anew with every piece of it
        at = 0
        while (end := self._next(at)) is not None:
            at = end
        self._buffer = self._buffer[at:].lstrip()
        self._check_size(len(self._buffer))
        self._look_again_at = 2 * len(self._buffer)

    def end(self) -> bool:
        """The body has ended; whether there is more to ask for. Raises `BadPageError` for half a page."""
        if self._look_again_at:
            self._look_again_at = 0
            self.feed(b"")
        if self._next != self._nothing or self._more is None or not self._has_rows or self._buffer.strip():
            raise BadPageError("the body is no page, or not a whole one")
        return self._more

    # Each step looks at the buffer from `at` on; it returns where it came to, None when it needs more.

    def _begin(self, at: int) -> int | None:
        return self._punctuation(at, {b"{": self._member})

    def _member(self, at: int) -> int | None:
        found = _MEMBER.match(self._buffer, at)
        if found is None:
            return None
        if found[1]:
            self._has_rows = True
            self._next = self._first_row
        else:
            if more := _MORE.fullmatch(found[0]):
                self._more = more[1] == b"true"
            self._next = self._after_member
        return found.end()

    def _after_member(self, at: int) -> int | None:
        return self._punctuation(at, {b",": self._member, b"}": self._nothing})

    def _first_row(self, at: int) -> int | None:
        found = _PUNCTUATION.match(self._buffer, at)
        if found is not None and found[1] == b"]":
            self._next = self._after_member
            return found.end()
        self._next = self._row
        return at

    def _row(self, at: int) -> int | None:
        some = len(self._buffer) - at <= MAX_ROW_BYTES  # else one at a time, which may be too large
        found = (_ROWS if some else _ONE_ROW).match(self._buffer, at)
        if found is None:
            head = self._buffer[at : at + 100].lstrip()
            if head and not head.startswith(b"{"):
                raise BadPageError("what stands where a row should is none")
            return None
        self._check_size(len(found[0].lstrip()))
        self._take(found[0])
        self._next = self._after_row
        return found.end()

    def _after_row(self, at: int) -> int | None:
        return self._punctuation(at, {b",": self._row, b"]": self._after_member})

    def _nothing(self, _at: int) -> int | None:
        return None

    def _punctuation(self, at: int, steps: dict[bytes, Any]) -> int | None:
        found = _PUNCTUATION.match(self._buffer, at)
        if found is None or found[1] not in steps:
            if self._buffer[at:].strip():
                raise BadPageError("not a page of rows")
            return None
        self._next = steps[found[1]]
        return found.end()

    def _check_size(self, size: int) -> None:
        if size > MAX_ROW_BYTES:
            raise BadPageError(f"a row of more than {MAX_ROW_BYTES} bytes, or what is no row")

    def _take(self, text: bytes) -> None:
        try:
            rows = [_checked(fields) for fields in _DECODER.decode(f"[{text.decode()}]")]
        except (ValueError, RecursionError) as error:
            raise BadPageError(f"a row does not hold: {error}"[:200]) from error
        for row in rows:
            if self._last is not None and row.cursor <= self._last:
                raise BadPageError("rows are out of order, or do not come after what was asked for")
            self._last = row.cursor
        self.rows += rows
        if len(self.rows) > MAX_LIMIT:
            raise BadPageError(f"more than {MAX_LIMIT} rows")
        breathe()


def _checked(fields: dict[str, Any]) -> Row:
    get = fields.get
    key, scope, value, origin = get("key"), get("scope"), get("value"), get("origin_worker_id")
    if not (
        isinstance(key, str) and isinstance(scope, str) and isinstance(value, str) and isinstance(origin, str)
    ):
        raise ValueError("key, scope, value and origin_worker_id must be text")
    created, updated, expires = get("created_at_ms"), get("updated_at_ms"), get("expires_at_ms")
    for ms in (created, updated, 0 if expires is None else expires):
        if type(ms) is not int or not 0 <= ms <= MAX_MS:
            raise ValueError("times must be in milliseconds since 1970")
    if updated > MAX_STAMP_MS:  # type: ignore[operator]  # in the loop
        raise ValueError("updated_at_ms is after the year 8999")
    # Raises for half a surrogate pair, which could not be stored.
    size = len(value) if value.isascii() else len(value.encode())
    if not (origin.isascii() and scope.isascii()):
        _ = origin.encode(), scope.encode()
    if not 0 < (len(key) if key.isascii() else len(key.encode())) <= MAX_KEY_BYTES:
        raise ValueError("the key is empty or too long")
    if "\0" in key:
        raise ValueError("the key holds a NUL character")
    return Row(key, scope, value, size, created, updated, expires, origin)  # type: ignore[arg-type]  # in the loop
