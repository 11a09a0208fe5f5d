"""Keys as they are read, and what a transaction can do to one: plain data."""

import base64
from dataclasses import dataclass
from typing import Any

Op = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One key."""

    key: str
    value: bytes
    session: str | None
    """Who holds it. A session that has ended holds nothing: the agent sees to that."""

    index: int
    """Of the last change to it in the log of the servers: it rises with each, whoever makes it."""

    created: int
    flags: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys below a prefix at one moment."""

    index: int
    """No smaller than that of any entry. It goes down only when the servers lost data or forgot a
    deletion."""

    entries: dict[str, Entry]


def encoded(value: bytes) -> str:
    """`value` as transactions want it."""
    return base64.b64encode(value).decode()


def check_index(key: str, index: int) -> Op:
    """A condition: the last change to `key` was `index`."""
    return {"Verb": "check-index", "Key": key, "Index": index}


def check_missing(key: str) -> Op:
    return {"Verb": "check-not-exists", "Key": key}


def lock(key: str, session: str, value: bytes, flags: int = 0) -> Op:
    """Write `key`, held by `session` from now on; fails when another session holds it."""
    return {"Verb": "lock", "Key": key, "Session": session, "Value": encoded(value), "Flags": flags}


def unlock(key: str, session: str, value: bytes) -> Op:
    """Write `key`, held by nobody from now on; fails unless `session` holds it."""
    return {"Verb": "unlock", "Key": key, "Session": session, "Value": encoded(value)}


def put(key: str, value: bytes, index: int, flags: int = 0) -> Op:
    """Write `key` if its last change was `index`; 0: if there is none. Leaves alone who holds it."""
    return {"Verb": "cas", "Key": key, "Index": index, "Value": encoded(value), "Flags": flags}


def delete(key: str, index: int) -> Op:
    """Delete `key` if its last change was `index`."""
    return {"Verb": "delete-cas", "Key": key, "Index": index}
