"""The kinds of value that settings have.

Each kind refuses what it is not, and converts nothing: a number in quotes is text, `true` is no number.
Text that comes from the environment is converted before, by `drakkar.settings._environment`, where the kind
is known. Messages go on from the key, "must be ...", and never repeat the value, which may be a secret.
"""

import ipaddress
import math
import socket
import unicodedata
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, SecretStr

from drakkar.clock import SHORTEST_SECONDS
from drakkar.settings.text import kind

MAX_NAME_CHARS: Final = 200
MAX_URL_CHARS: Final = 1000
MAX_COUNT: Final = 1_000_000_000
MAX_PAGE_SIZE: Final = 1000
MAX_DEPTH: Final = 32
"""How deep maps and lists may nest in a file and in free-form options."""


def check_name(value: str) -> str:
    """The rules of worker and cluster names, wherever one comes from. Whether it may be empty, the caller
    knows.

    Raises `ValueError` whose message goes on from the name of the setting or the variable.
    """
    if len(value) > MAX_NAME_CHARS:
        raise ValueError(f"must have at most {MAX_NAME_CHARS} characters, not {len(value)}")
    return _plain(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        hint = "; put it in quotes" if isinstance(value, bool | int | float) else ""
        raise ValueError(f"must be text, not {kind(value)}{hint}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("must be valid UTF-8")
    return value


def _plain(value: object) -> str:
    text = _text(value)
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in text):
        raise ValueError("must not hold control characters or line breaks")
    return text


def _name(value: object) -> str:
    return check_name(_text(value))


def _full_name(value: object) -> str:
    if not (name := _name(value)):
        raise ValueError("must not be empty")
    return name


def _variable(value: object) -> str:
    name = _plain(value)
    if "=" in name:
        raise ValueError("must be the name of an environment variable, without a '='")
    return name


def _folder(value: object) -> str:
    folder = _text(value)
    if "\0" in folder:
        raise ValueError("must not hold a NUL character")
    if folder.startswith("~"):
        raise ValueError("must be written out, since ~ is not expanded")
    return folder


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {kind(value)}")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = "; write it without quotes, a power of ten as 1.0e-3" if _reads_as_number(value) else ""
        raise ValueError(f"must be a number of seconds, not {kind(value)}{hint}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not (math.isfinite(seconds) and seconds >= SHORTEST_SECONDS):
        raise ValueError(f"must be a finite number of seconds, at least {SHORTEST_SECONDS:g}")
    return seconds


def _reads_as_number(value: object) -> bool:
    """Whether `value` is text that a person may take for a number: YAML 1.1 has none without a dot before the
    power, nor without a sign in it."""
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def _optional_seconds(value: object) -> float | None:
    return None if value is None else _seconds(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number of at least 1, not {kind(value)}")
    if not 1 <= value <= MAX_COUNT:
        raise ValueError(f"must be a whole number from 1 to {MAX_COUNT}")
    return value


def _page_size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_PAGE_SIZE:
        raise ValueError(f"must be a whole number from 1 to {MAX_PAGE_SIZE}")
    return value


def _port(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number from 0 to 65535, not {kind(value)}")
    if not 0 <= value <= 65535:
        raise ValueError("must be a whole number from 0 to 65535")
    return value


def _host(value: object) -> str:
    host = _plain(value)
    if not host or len(host) > 255 or any(char in host for char in " []/@") or _is_broken_address(host):
        raise ValueError("must be a host name or an address, such as 127.0.0.1, ::1 or 0.0.0.0 (no brackets)")
    return host


def _is_broken_address(host: str) -> bool:
    """Whether it can only be an address, and is none."""
    try:
        if ":" in host:
            ipaddress.IPv6Address(host)
        elif not host.strip("0123456789."):
            socket.inet_aton(host)
    except (ValueError, OSError):
        return True
    return False


def _url(value: object) -> str:
    url = _plain(value)
    wanted = "must be an http:// or https:// URL with a host"
    if len(url) > MAX_URL_CHARS:
        raise ValueError(f"must have at most {MAX_URL_CHARS} characters, not {len(url)}")
    try:
        parts = urlsplit(url)
        host, user, _ = parts.hostname, "@" in parts.netloc, parts.port
    except ValueError as error:  # bad brackets, a port that is no number
        raise ValueError(wanted) from error
    if parts.scheme not in ("http", "https") or not host or any(char in url for char in ' \\<>"'):
        raise ValueError(wanted)
    if user:
        raise ValueError("must not hold a user name or password, since everybody who sees a card sees it")
    return url


def _optional_url(value: object) -> str:
    return "" if value == "" else _url(value)


def _token(value: object) -> SecretStr:
    if isinstance(value, SecretStr):
        return SecretStr(_token(value.get_secret_value()).get_secret_value())
    token = _text(value)
    if any(not "!" <= char <= "~" for char in token):
        raise ValueError(
            "must be visible ASCII characters without spaces, since it travels in an HTTP header"
        )
    return SecretStr(token)


def _options(value: object) -> dict[str, Any]:
    if value is None:  # a key with nothing under it
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"must be a map of options, not {kind(value)}")
    copy: dict[str, Any] = _json(value, MAX_DEPTH)
    return copy


def _json(value: object, depth_left: int) -> Any:  # a copy, so that nobody else can change a frozen setting
    if depth_left < 0:
        raise ValueError(f"must not nest deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("must not hold infinity or NaN")
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return [_json(inner, depth_left - 1) for inner in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("must have text for keys")
        return {_text(key): _json(inner, depth_left - 1) for key, inner in value.items()}
    raise ValueError(f"must hold text, numbers, true, false, null, lists and maps only, not {kind(value)}")


Name = Annotated[str, BeforeValidator(_name)]
FullName = Annotated[str, BeforeValidator(_full_name)]
VariableName = Annotated[str, BeforeValidator(_variable)]
Folder = Annotated[str, BeforeValidator(_folder)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
OptionalSeconds = Annotated[float | None, BeforeValidator(_optional_seconds)]
Count = Annotated[int, BeforeValidator(_count)]
PageSize = Annotated[int, BeforeValidator(_page_size)]
Port = Annotated[int | None, BeforeValidator(_port)]
Host = Annotated[str, BeforeValidator(_host)]
Url = Annotated[str, BeforeValidator(_url)]
OptionalUrl = Annotated[str, BeforeValidator(_optional_url)]
Token = Annotated[SecretStr, BeforeValidator(_token)]
Options = Annotated[dict[str, Any], BeforeValidator(_options)]
