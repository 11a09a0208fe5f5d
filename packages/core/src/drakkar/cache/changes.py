"""What a peer asks for, and what it is answered: the wire that all implementations share."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from drakkar.cache.rows import SERVED_SCOPES, Cursor, Row
from drakkar.cache.thread import breathe

MAX_LIMIT: Final = 1000
DEFAULT_LIMIT: Final = 500
MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
"""Of keys and values in one answer. Peers refuse a body of more than 64 MiB."""

_ROWS_AT_ONCE: Final = 100
_INTEGER: Final = re.compile(r"-?[0-9]+", re.ASCII)
_INTEGER_CHARS: Final = 20
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


class ChangesError(ValueError):
    """The question does not hold; the message is part of the wire."""


@dataclass(frozen=True, slots=True)
class ChangesQuery:
    scopes: tuple[str, ...]
    after: Cursor | None
    limit: int


def parse_query(params: Mapping[str, str]) -> ChangesQuery:
    """Check what was asked, in the order that is part of the wire. Raises `ChangesError`."""
    scopes = params.get("scopes", "").split(",")
    if not {*scopes} <= {*SERVED_SCOPES}:
        raise ChangesError("scopes must be cluster, global or both")
    after = None
    if ("after_ms" in params) != ("after_key" in params):
        raise ChangesError("after_ms and after_key must be given together")
    if "after_ms" in params:
        ms = _int64(params["after_ms"])
        if ms is None:
            raise ChangesError("after_ms must be an integer")
        after = (ms, params["after_key"])
    limit = _int64(params["limit"]) if "limit" in params else DEFAULT_LIMIT
    if limit is None or not 1 <= limit <= MAX_LIMIT:
        raise ChangesError(f"limit must be an integer from 1 to {MAX_LIMIT}")
    return ChangesQuery(tuple(scope for scope in SERVED_SCOPES if scope in scopes), after, limit)


def encode_page(rows: Sequence[Row], more: bool) -> bytes:
    """The body of an answer. Takes a while for a large page: not for the event loop."""
    parts = []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = [row._asdict() for row in rows[start : start + _ROWS_AT_ONCE]]
        parts.append(_ENCODER.encode(part)[1:-1])
        breathe()
    return f'{{"rows":[{",".join(parts)}],"more":{"true" if more else "false"}}}'.encode()


def _int64(text: str) -> int | None:
    # More characters than a 64-bit integer has are refused even when they are leading zeros.
    if len(text) > _INTEGER_CHARS or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
