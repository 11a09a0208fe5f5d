"""Words for messages about settings: short, on one line, and never with a value in them."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

KeyPath = tuple[str | int, ...]
"""Where a value is: keys of maps, and places in lists."""

_MAX_NAME_CHARS: Final = 200
_UNSEEN: Final = re.compile(
    r"^ +| +$"
    r"|[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Spaces at an end, and characters that count as printable and of which nothing is seen."""

_NEAR: Final = 0.6
"""How alike (0 to 1) two keys must be for one to be offered in place of the other."""


def one_line(text: str, limit: int = _MAX_NAME_CHARS) -> str:
    """Return `text` as something that can stand in one printed line: what cannot be printed or seen is shown
    as an escape, a space at an end as well, and what is longer than `limit` characters is cut."""
    printable = "".join(char if char.isprintable() else _escape(char) for char in text[: limit + 1])
    shown = _UNSEEN.sub(lambda found: "".join(map(_escape, found.group())), printable)
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def _escape(char: str) -> str:
    return "\\x20" if char == " " else char.encode("unicode_escape").decode()


def kind(value: object) -> str:
    """What `value` is, in the words of the person who wrote the file."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case "":
            return "empty"
        case str():
            return "text"
        case dict():
            return "a map"
        case list() | tuple():
            return "a list"
    return f"a {type(value).__name__}"


def dotted(path: KeyPath) -> str:
    """`("fleet", "registry", "static", "peers", 0)` as `fleet.registry.static.peers[0]`."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            shown += f".{part}" if shown else part
    return one_line(shown)


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The known key that was probably meant by `key`, best one of the same section; None when none is
    alike."""
    best = max(known, key=lambda other: _likeness(key, other), default=None)
    return best if best is not None and _likeness(key, best) >= _NEAR else None


def _likeness(key: str, other: str) -> float:
    # Whole keys would all be alike, by the sections that they share.
    section, _, name = key[:_MAX_NAME_CHARS].lower().rpartition(".")
    other_section, _, other_name = other.rpartition(".")
    return SequenceMatcher(None, name, other_name).ratio() * (1 if section == other_section else 0.9)


def name_list(text: str) -> list[str]:
    """The names in a text with commas between them, such as `gc,lifecycle`."""
    return [name.strip() for name in text.split(",") if name.strip()]
