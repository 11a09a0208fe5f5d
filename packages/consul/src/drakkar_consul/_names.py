"""Names as parts of keys: any text, and no two meet. Pure text work."""

import hashlib
import re
from functools import lru_cache
from typing import Final

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_MAX_CHARS: Final = 400
_ALL_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,400}")
_PLACE: Final = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9a-f]{2})+")


@lru_cache(maxsize=4096)  # a renewal names all leases of the process
def place_of(name: str) -> str:
    """The last part of the key of `name`, which is not empty.

    Every byte that is not a letter, digit, `_` or `-` is written as `=xx`: an agent takes a slash in a key
    for a real one, drops the second of two, follows `..` out of the prefix and refuses control characters. A
    name that gets too long that way is a hash after `==`, which no other place begins with.
    """
    if _ALL_PLAIN.fullmatch(name):
        return name
    data = name.encode("utf-8", "surrogatepass")
    place = "".join(chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in data)
    return place if len(place) <= _MAX_CHARS else "==" + hashlib.sha256(data).hexdigest()


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
