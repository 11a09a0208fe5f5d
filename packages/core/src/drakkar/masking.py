"""Texts without the secrets in them, in time that grows with their length alone: an error's text is somebody
else's, and may be long and odd."""

import re
from typing import Final

_RUN: Final = re.compile(r"\S+")
_NAME: Final = re.compile(r"(?<![\w.-])[\w.-]++=")
"""From the first character of a name on, and without a second look at it: anywhere else it would take the
square of the time."""

_SECRET_WORD: Final = re.compile(
    r"token|passw|passphrase|secret|credential|(?:api|private|access)_?-?key", re.IGNORECASE
)
_VALUE: Final = re.compile(r"(?!\d+\b)[^\s&;,#]+")
"""Spares numbers: a fencing token is none that opens anything."""


def mask_text(text: str) -> str:
    """`text`, with the user-info of every address and the value of every secret parameter replaced."""
    if "@" in text:
        text = _RUN.sub(_without_user_info, text)
    return _without_secret_values(text) if "=" in text else text


def _without_user_info(run: re.Match[str]) -> str:
    # Up to the last `@`: a password may hold characters that should have been encoded and were not.
    begin, end = run[0].find("://") + 3, run[0].rfind("@")
    return f"{run[0][:begin]}***{run[0][end:]}" if 3 <= begin <= end else run[0]


def _without_secret_values(text: str) -> str:
    parts, done = [], 0
    for name in _NAME.finditer(text):
        if name.start() < done or not _SECRET_WORD.search(name[0]):
            continue
        if value := _VALUE.match(text, name.end()):
            parts += [text[done : name.end()], "***"]
            done = value.end()
    return "".join([*parts, text[done:]])
