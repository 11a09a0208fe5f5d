"""What a lease looks like on the disk: names of folders and files, and the content of a record.

Pure text work; nothing here touches the disk.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

MAX_TTL_SECONDS: Final = 86400.0
MAX_RECORD_BYTES: Final = 8192

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_MAX_PLACE_CHARS: Final = 200
_PLACE: Final = re.compile(r"(?:[a-z0-9_-]|=[0-9a-f]{2})+")

# The record is JSON. What changes has a fixed place and width, so that it can be changed in the file: JSON
# allows blanks around a value.
_HEAD: Final = b'{"counter":'
_WIDTH: Final = 20
COUNTER_AT: Final = len(_HEAD)
_AFTER_COUNTER: Final = COUNTER_AT + _WIDTH
RELEASED_AT: Final = _AFTER_COUNTER + len(b',"released":')
RELEASED: Final = b"true "
_LIVE: Final = b"false"


def place_of(name: str) -> str:
    """The name of the folder of the lease or instance `name`.

    No two names get one folder, also where upper and lower case are the same, and no place begins with a
    dot. Every byte that is not a plain character is written as `=xx`; a name that gets too long that way
    is a hash after `==`, which no other place begins with.
    """
    data = name.encode("utf-8", "surrogatepass")
    place = "".join(chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in data)
    return place if len(place) <= _MAX_PLACE_CHARS else "==" + hashlib.sha256(data).hexdigest()


def name_of(place: str) -> str | None:
    """The name that has this place; None for a hash, and for what is no place."""
    if not _PLACE.fullmatch(place):
        return None
    data = re.sub(r"=(..)", lambda found: chr(int(found[1], 16)), place).encode("latin-1")
    try:
        name = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return name if place_of(name) == place else None


@dataclass(frozen=True, slots=True)
class Record:
    """One grant, as its holder wrote it down."""

    name: str
    holder: str
    claim: str
    """Random, new for every grant. Who knows it is the holder; two processes may have one name."""

    ttl_seconds: float
    """How long the record must have stood unchanged before somebody else may have the lease."""

    instance: str
    """The holder's file in `.holders` is named after it."""

    boot_id: str | None = None
    device: int | None = None
    inode: int | None = None
    """Of the holder's file; with `boot_id` they tell whether a free lock on it is a proof of death."""

    released: bool = False


def encode(record: Record, counter: int) -> bytes:
    """The content of a record's file."""
    fields: dict[str, Any] = {
        field: getattr(record, field) for field in Record.__dataclass_fields__ if field != "released"
    }
    rest = json.dumps(fields, separators=(",", ":")).encode()[1:]
    released = RELEASED if record.released else _LIVE
    return _HEAD + counter_field(counter) + b',"released":' + released + b"," + rest + b"\n"


def counter_field(counter: int) -> bytes:
    """What is to be written at `COUNTER_AT`."""
    return b"%*d" % (_WIDTH, counter)


def decode(data: bytes) -> Record | None:
    """The record in `data`; None when it is garbage."""
    if len(data) > MAX_RECORD_BYTES:
        return None
    try:
        fields = json.loads(data)
        known = {field: fields[field] for field in Record.__dataclass_fields__}
        return Record(**known) if _holds(known) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def is_unchanged(data: bytes, written: bytes, counter: int) -> bool:
    """Whether `data` is what we wrote, with a counter that we have set: at most `counter`."""
    if data[:COUNTER_AT] != _HEAD or data[_AFTER_COUNTER:] != written[_AFTER_COUNTER:]:
        return False
    try:
        return int(data[COUNTER_AT:_AFTER_COUNTER]) <= counter
    except ValueError:
        return False


def _holds(fields: dict[str, Any]) -> bool:
    texts = ("name", "holder", "claim", "instance")
    ttl = fields["ttl_seconds"]
    return (
        all(isinstance(fields[key], str) for key in texts)
        and isinstance(fields["boot_id"], str | None)
        and isinstance(fields["released"], bool)
        and all(fields[key] is None or type(fields[key]) is int for key in ("device", "inode"))
        and type(ttl) in (int, float)
        and 0 < ttl <= MAX_TTL_SECONDS
    )
