"""How keys, names and values look in requests and answers of etcd's JSON gateway: arithmetic only.

Everything in bytes is base64, every 64-bit number is text, and what is zero, empty or false is left out.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

from drakkar_etcd._answers import UnansweredError

Json = Mapping[str, Any]


def encoded(data: str | bytes) -> str:
    """`data` as a request has it. Raises `UnicodeEncodeError` for half a character."""
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


def decoded(text: object) -> bytes:
    """The bytes of a field of an answer; none when it was left out. What is not in base64, which no etcd
    sends, is left as it is."""
    if not isinstance(text, str):
        return b""
    try:
        return b64decode(text)
    except ValueError:
        return text.encode("utf-8", "replace")


def number(text: object) -> int:
    """A number of an answer; 0 when it was left out."""
    return int(text) if isinstance(text, str | int) else 0


def revision_of(answer: Json) -> int:
    """The revision that the store had when it answered. Raises `UnansweredError` when it did not say."""
    revision = number(answer.get("header", {}).get("revision"))
    if revision <= 0:
        raise UnansweredError("etcd answered without the revision of its store")
    return revision


@lru_cache(maxsize=4096)  # a renewal names all leases of the process
def _key(path: str, name: str) -> str:
    return encoded(path + quote(name, safe=""))


class Folder:
    """The keys that begin with `path`, one for each name.

    Names are written with percent signs, so that any of them comes back as it was, none leads out of the
    folder, and all can be read and typed in a shell.
    """

    def __init__(self, path: str) -> None:
        self.path: Final = path
        data = path.encode()
        self.range: Final = {"key": encoded(data), "range_end": encoded(data[:-1] + bytes([data[-1] + 1]))}

    def key(self, name: str) -> str:
        """The key of `name` as a request has it. Raises `UnicodeEncodeError` for half a character."""
        return _key(self.path, name)

    def name(self, key: object) -> str | None:
        """Whose key this is; None for one that none of us wrote."""
        tail = decoded(key)[len(self.path.encode()) :]
        try:
            text = tail.decode("ascii")
            name = unquote(text, errors="strict")
        except ValueError:
            return None
        return name if name and quote(name, safe="") == text else None

    def shown(self, key: object) -> str:
        """The part of the key after the folder, for a log line."""
        tail = decoded(key)[len(self.path.encode()) :].decode(errors="backslashreplace")
        return tail if tail.isprintable() else ascii(tail)[1:-1]


def put(key: str, value: str | bytes, lease: int) -> Json:
    return {"key": key, "value": encoded(value), "lease": str(lease)}


def compare(key: str, target: str, wanted: int | str) -> Json:
    """That `target` of a key is `wanted`: `create`, `mod` (0 means that there is no such key) or `value`."""
    field, given = f"{target}_revision", str(wanted)
    if target == "value":
        field, given = "value", encoded(str(wanted))
    return {"key": key, "target": target.upper(), "result": "EQUAL", field: given}


def transaction(conditions: Iterable[Json], then: Iterable[Json], otherwise: Iterable[Json] = ()) -> Json:
    return {"compare": [*conditions], "success": [*then], "failure": [*otherwise]}


def then_put(key: str, value: str | bytes, lease: int) -> Json:
    return {"request_put": put(key, value, lease)}


def then_delete(key: str) -> Json:
    return {"request_delete_range": {"key": key}}


def then_get(key: str) -> Json:
    return {"request_range": {"key": key}}


def got(answer: Json, index: int) -> Json | None:
    """What the `index`-th read of a transaction found; None when there is no such key. Raises
    `UnansweredError` when there was no such read."""
    responses = answer.get("responses", ())
    if index >= len(responses):
        raise UnansweredError("etcd answered a part of what it was asked")
    found: list[Json] = responses[index].get("response_range", {}).get("kvs", [])
    return found[0] if found else None
