"""What is stored of a lease, and the numbers that its tokens are made of: arithmetic only.

A token is the milliseconds in which the fleet's first lease was taken, times a thousand, plus the revision
that made the record. Revisions rise within one history of a store. A store that lost its data begins anew at
1, but some milliseconds later; and no etcd makes a thousand revisions a millisecond. Tokens stay below 2**53
for two centuries, so that every JSON reader can hold them.
"""

import json
import math
from dataclasses import dataclass
from typing import Final

from drakkar_etcd._wire import Json, decoded, number

SCALE: Final = 1000
_MAX_RECORD_BYTES: Final = 4096
_MOST_SECONDS: Final = 1e9
_LAST_BASE: Final = 2**53 // SCALE


@dataclass(frozen=True, slots=True)
class Record:
    """Who has a lease, as it stands in the store."""

    holder: str
    base: int
    """The milliseconds that count for this grant."""

    ttl_seconds: float
    """How long it lasts after its holder was last heard of."""

    def encode(self) -> str:
        return json.dumps({"base": self.base, "holder": self.holder, "ttl": self.ttl_seconds}, sort_keys=True)

    def token(self, create_revision: int) -> int:
        return self.base * SCALE + create_revision


@dataclass(frozen=True, slots=True)
class Claim:
    """A grant of this process, as the store has it."""

    token: int
    create_revision: int
    value: str
    """The record, as requests and answers have it."""

    lease: int
    granted_at: float

    def is_in(self, kv: Json, session: int) -> bool:
        """Whether the key holds that very grant: not overwritten, taken off its lease, or made anew."""
        return (
            session != 0
            and number(kv.get("lease")) == self.lease == session
            and number(kv["create_revision"]) == self.create_revision
            and kv.get("value") == self.value
        )


def read_record(kv: Json) -> Record | None:
    """The record in a key; None for one that cannot be read, in bounded time for any bytes."""
    data = decoded(kv.get("value"))
    if len(data) > _MAX_RECORD_BYTES:
        return None
    try:
        found = json.loads(data)
        holder, base, ttl = found["holder"], found["base"], found["ttl"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    sound = (
        isinstance(holder, str)
        and isinstance(base, int)
        and not isinstance(base, bool)
        and 0 < base < _LAST_BASE
        and isinstance(ttl, int | float)
        and math.isfinite(ttl)
        and 0 < ttl < _MOST_SECONDS
    )
    return Record(holder, base, float(ttl)) if sound else None


def token_of(kv: Json, record: Record) -> int:
    return record.token(number(kv["create_revision"]))
