"""The kinds of value that settings have.

Each kind refuses what it is not, and converts nothing: a number in quotes is text, `true` is no number.
Text that comes from the environment is converted before, by `drakkar.settings._environment`, where the kind
is known. Messages go on from the key, "must be ...", and never repeat the value, which may be a secret,
except for a number where one is wanted.
"""

import ipaddress
import math
import socket
import unicodedata
from decimal import Decimal, InvalidOperation
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
        raise _no_number(value, "must be a number of seconds")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not (math.isfinite(seconds) and seconds >= SHORTEST_SECONDS):
        raise ValueError(f"must be a finite number of seconds, at least {SHORTEST_SECONDS:g}")
    return seconds


def _no_number(value: object, wanted: str) -> ValueError:
    """The error for a `value` that is not what is `wanted`. Text that a person may take for a number, such as
    `+5`, `0123` and `1e3`, is told how to write it."""
    plain = _as_number(value)
    if plain is not None and plain != value:
        return ValueError(f"is not a number as it stands; write {plain}")
    if isinstance(value, float):
        return ValueError(wanted)
    return ValueError(f"{wanted}, not {kind(value)}{'' if plain is None else '; write it without quotes'}")


def _as_number(value: object) -> str | None:
    """The number that the text `value` stands for, in plain digits."""
    try:
        number = Decimal(value if isinstance(value, str) and len(value) <= 40 else "NaN")
    except InvalidOperation:
        return None
    return f"{number:f}" if number.is_finite() and abs(number.adjusted()) <= 20 else None


def _optional_seconds(value: object) -> float | None:
    return None if value is None else _seconds(value)


def _whole(value: object, least: int, most: int) -> int:
    wanted = f"must be a whole number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise _no_number(value, wanted)
    if not least <= value <= most:
        raise ValueError(wanted)
    return value


def _count(value: object) -> int:
    return _whole(value, 1, MAX_COUNT)


def _page_size(value: object) -> int:
    return _whole(value, 1, MAX_PAGE_SIZE)


def _port(value: object) -> int | None:
    return None if value is None else _whole(value, 0, 65535)


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
