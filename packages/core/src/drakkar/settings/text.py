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


def one_line(text: str, limit: int = _MAX_NAME_CHARS, *, exact: bool = False) -> str:
    """Return `text` as something that can stand in one printed line: what cannot be printed or seen is shown
    as an escape, a space at an end as well, and what is longer than `limit` characters is cut.

    With `exact` the escapes are those of the operator's page, and no two texts become the same one unless
    they are cut: a backslash that could be taken for the beginning of an escape is shown twice. What came of
    it must not go through here again.
    """
    text = text[: limit + 1]
    unseen = {at for found in _UNSEEN.finditer(text) for at in range(*found.span())}
    escape = _number if exact else _escape
    parts = [escape(char) if at in unseen or not char.isprintable() else char for at, char in enumerate(text)]
    if exact:
        pairs = zip(parts, [*parts[1:], ""], strict=False)
        parts = ["\\\\" if part == "\\" and after[:1] in ("u", "\\") else part for part, after in pairs]
    shown = "".join(parts)
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def _escape(char: str) -> str:
    return "\\x20" if char == " " else char.encode("unicode_escape").decode()


def _number(char: str) -> str:
    digits = f"{ord(char):04x}"
    return f"\\u{digits}" if len(digits) == 4 else f"\\u{{{digits}}}"


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
