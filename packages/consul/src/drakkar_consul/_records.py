"""What is in the key of a lease: who holds it, for people. That it is held, and by whom, the session
tells."""

import json
from dataclasses import asdict, dataclass
from typing import Final

from drakkar_consul._names import place_of

FREE: Final = b""
"""The value of a key that nobody holds."""

_MAX_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class Record:
    holder: str
    name: str


def encode(record: Record) -> bytes:
    return json.dumps(asdict(record), sort_keys=True).encode()


def decode(place: str, value: bytes) -> Record | None:
    """The record in `value`; None when it is garbage, or not of the lease that has this place."""
    if len(value) > _MAX_BYTES:
        return None
    try:
        fields = json.loads(value)
        holder, name = fields["holder"], fields["name"]
        sound = isinstance(holder, str) and place_of(name) == place
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Record(holder, name) if sound else None
