"""Settings as they may be printed or served: without their secrets.

Free-form options are other people's, so what is a secret there can only be guessed, by the name of the option
and by the form of its value. The guess hides rather too much.
"""

import re
from typing import Any, Final

from pydantic import SecretStr

from drakkar.settings.models import Settings

MASK: Final = "***"

_WORD: Final = r"(?:token|passw|passphrase|secret|credential|api_?-?key|private_?-?key|access_?-?key)"
_SECRET_NAME: Final = re.compile(_WORD, re.IGNORECASE)
_SECRET_PARAMETER: Final = re.compile(rf"({_WORD}[\w.%-]*=)[^\s&;,#]+", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"(://)\S+@|(?<!\S)(?!\S*://)[^\s/]*:\S*@")
"""Greedy up to the last `@`: a password may hold a slash that should have been encoded and was not."""


def masked(settings: Settings) -> dict[str, Any]:
    """Return all settings as plain data, each secret replaced by `***`; an empty secret stays empty."""
    data: dict[str, Any] = _mask(settings.model_dump(mode="python"))
    return data


def mask_text(text: str) -> str:
    """`text` without user-info of URLs and values of parameters that are secrets by their name."""
    return _SECRET_PARAMETER.sub(rf"\g<1>{MASK}", _USER_INFO.sub(rf"\g<1>{MASK}@", text))


def is_secret_name(name: str) -> bool:
    """Whether an option of this name is taken for a secret."""
    return _SECRET_NAME.search(name) is not None


def _mask(value: Any, name: str = "") -> Any:
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if is_secret_name(name) and value not in ("", None):
        return MASK
    if isinstance(value, dict):
        return {key: _mask(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_mask(inner) for inner in value]
    return mask_text(value) if isinstance(value, str) else value
