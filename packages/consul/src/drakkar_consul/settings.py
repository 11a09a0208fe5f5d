"""The options of the provider, checked. Nothing here opens a connection or looks at the disk."""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SECTION: Final = "fleet.registry.consul"
_PORTS: Final = {"http": 8500, "https": 8501}
_FOREVER: Final = 1e11
_MAX_PREFIX_CHARS: Final = 200
_NAME: Final = re.compile(r"[A-Za-z_-]{1,30}")
_PLACE: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::(?P<port>[0-9]{1,5}))?/?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class ConsulSettings:
    """Options that hold. What is printed of it holds no secret."""

    host: str = "127.0.0.1"
    """An IPv6 address has its brackets."""

    port: int = 8500
    tls: bool = False
    token: str = field(default="", repr=False)
    datacenter: str = ""
    """Empty: that of the agent."""

    prefix: str = "drakkar"
    """Of every key, without a slash at either end."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    prune_after_seconds: float | None = None
    """Delete cards older than this; None: what the worker says at `start`."""

    @property
    def address(self) -> str:
        """Where the agent is, for messages."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"


_KNOWN: Final = (
    *("address", "token", "datacenter", "prefix", "ca_file", "cert_file", "key_file"),
    "prune_after_seconds",
)


def read_settings(options: Mapping[str, Any]) -> ConsulSettings:
    """Return the settings in `options`, which serve both halves.

    None is as good as not given. Raises `ValueError`, one line that names the option and shows no secret,
    when one is unknown or no good, or when two do not go together.
    """
    for key in options:
        if key not in _KNOWN:
            raise ValueError(f"{SECTION} {_unknown(key)}")
    options = {key: value for key, value in options.items() if value is not None}
    text = {key: _text(key, options.get(key, "")) for key in _KNOWN if key != "prune_after_seconds"}
    tls, host, port = _address(text["address"])
    _check_files(text, tls)
    if not text["token"].isascii() or not text["token"].isprintable() or " " in text["token"]:
        raise no_good("token", "holds a character that cannot be sent")
    if text["datacenter"] and not re.fullmatch(r"[A-Za-z0-9_-]+", text["datacenter"]):
        raise no_good("datacenter", "must be letters, digits, - and _")
    return ConsulSettings(
        host=host,
        port=port,
        tls=tls,
        token=text["token"],
        datacenter=text["datacenter"],
        prefix=_prefix(text["prefix"]) if "prefix" in options else "drakkar",
        ca_file=text["ca_file"],
        cert_file=text["cert_file"],
        key_file=text["key_file"],
        prune_after_seconds=_seconds(options.get("prune_after_seconds")),
    )


def _unknown(name: object) -> str:
    """A name that does not look like one is not repeated: it may be a secret in the wrong place."""
    there_is = f"there is {', '.join(_KNOWN)}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"has an option of a name that is none; {there_is}"
    nearest = difflib.get_close_matches(name, _KNOWN, n=1)
    return f"has no option {name!r}, {f'did you mean {nearest[0]}?' if nearest else there_is}"


def no_good(key: str, why: str) -> ValueError:
    """The error of the option `key`; `why` must show no secret."""
    return ValueError(f"{SECTION}.{key} {why}")


def _address(text: str) -> tuple[bool, str, int]:
    """Take `host`, `host:port` or `http[s]://host[:port]` apart: whether it is TLS, the host and the port.

    The text is never shown: whoever writes a password into it is told that it does not belong there.
    """
    scheme, separator, place = text.partition("://")
    scheme = scheme.lower()
    if not separator:
        scheme, place = "http", text
    if not text:
        place = "127.0.0.1"
    if scheme not in _PORTS:
        raise no_good("address", "must be host:port, http://host:port or https://host:port")
    if "@" in place:
        raise no_good("address", "holds an @; who may do what is told by the option token")
    found = _PLACE.fullmatch(place)
    if found is None:
        raise no_good("address", "must name a host and a port, as in 127.0.0.1:8500 or https://[::1]:8501")
    port = int(found["port"] or _PORTS[scheme])
    if not 0 < port < 65536:
        raise no_good("address", "has a port that cannot be one")
    return scheme == "https", found["name"] or f"[{found['v6']}]", port


def _check_files(text: Mapping[str, str], tls: bool) -> None:
    for key in ("ca_file", "cert_file", "key_file"):
        if text[key] and not tls:
            raise no_good(key, "is for TLS, which needs an https:// address")
        if "\0" in text[key]:
            raise no_good(key, "holds a character that no path can have")
        if "\n" in text[key]:
            raise no_good(key, "must be the path of a file, not what is in it")
    if bool(text["cert_file"]) != bool(text["key_file"]):
        missing, there = ("key_file", "cert_file") if text["cert_file"] else ("cert_file", "key_file")
        raise no_good(missing, f"is missing beside {there}")


def _prefix(text: str) -> str:
    """An agent rewrites keys that look like paths: `a//b` and `a/../b` would be stored elsewhere."""
    if not text:
        raise no_good("prefix", "is empty: every fleet has one")
    if len(text) > _MAX_PREFIX_CHARS:
        raise no_good("prefix", f"must have at most {_MAX_PREFIX_CHARS} characters, not {len(text)}")
    if not text.isprintable():
        raise no_good("prefix", "holds a character that cannot be in a key")
    if any(part in ("", ".", "..") for part in text.split("/")):
        raise no_good("prefix", "must not begin or end with /, nor hold //, /./ or /../")
    if {"cards", "leases"} & set(text.split("/")[1:]):  # a fleet `a` would see the keys of a fleet `a/cards`
        raise no_good("prefix", "must not have a part cards or leases, which are for keys")
    return text


def _text(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and key != "address":
        value = str(value)  # an environment variable of digits comes as a number
    if not isinstance(value, str):
        how = "; put it in quotes, in the settings file or in the JSON of its section"
        simple = isinstance(value, bool | int | float)
        raise no_good(key, f"must be text, not {type(value).__name__}{how if simple else ''}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise no_good(key, "holds half a character, which cannot be sent") from None
    return value


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not is_number or not 0 < value < math.inf:
        shown = f"{value!r}" if is_number else type(value).__name__
        raise no_good("prune_after_seconds", f"must be a number of seconds above 0, not {shown}")
    return float(min(value, _FOREVER))
