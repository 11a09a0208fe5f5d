"""Keys as they are read, and what a transaction can do to one: plain data."""

import asyncio
import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Op = dict[str, Any]

_SLICE: Final = 100
LONG_TEXT: Final = 1_000_000
"""More would take longer to parse than the event loop should stand still."""

_DECODER: Final = json.JSONDecoder()


@dataclass(slots=True)
class Entry:
    """One key. Not frozen, which would take three times as long to make."""

    key: str
    text: str
    """The value as the agent sends it, in base64: most are never looked at."""

    session: str | None
    """Who holds it. A session that has ended holds nothing: the agent sees to that."""

    index: int
    """Of the last change to it in the log of the servers: it rises with each, whoever makes it."""

    created: int
    flags: int

    @property
    def value(self) -> bytes:
        return decoded(self.text)


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys below a prefix at one moment."""

    index: int
    """No smaller than that of any entry. It goes down only when the servers lost data or forgot a
    deletion."""

    entries: Mapping[str, Entry]


async def read_entries(text: str) -> dict[str, Entry]:
    """The keys in an answer, in slices."""
    entries: dict[str, Entry] = {}
    for found in _objects(text):
        entries[found["Key"]] = read_entry(found)
        if len(entries) % _SLICE == 0:
            await asyncio.sleep(0)
    return entries


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects of the array in `text`; those of a long one each when it is wanted, which takes twice as
    long in all."""
    if len(text) <= LONG_TEXT:
        yield from json.loads(text)
        return
    at = text.index("[") + 1
    while True:
        while text[at] in " \n,":
            at += 1
        if text[at] == "]":
            return
        found, at = _DECODER.raw_decode(text, at)
        yield found


def read_entry(found: dict[str, Any]) -> Entry:
    """A key as the agent tells of it. An empty value comes as None."""
    text = found["Value"] or ""
    if not isinstance(text, str):
        raise TypeError("a value is in base64")
    return Entry(
        found["Key"],
        text,
        found.get("Session"),
        found["ModifyIndex"],
        found["CreateIndex"],
        found["Flags"],
    )


def read_decoded(found: dict[str, Any]) -> Entry:
    """A key as the library tells of a single one, its value decoded."""
    return read_entry({**found, "Value": encoded(found["Value"] or b"")})


def read_result(found: dict[str, Any]) -> Entry:
    """A key in the answer to a transaction, which has no values."""
    return read_entry({**found, "Value": ""})


def encoded(value: bytes) -> str:
    """`value` as transactions want it."""
    return base64.b64encode(value).decode()


def decoded(text: str) -> bytes:
    """The value that is sent as `text`. What is not in base64, which no agent sends, is left as it is."""
    try:
        return binascii.a2b_base64(text)
    except ValueError:
        return text.encode("utf-8", "replace")


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
