"""The options of the provider, checked. Nothing here opens a connection or looks at the disk."""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar_redis._address import SECTION, Address, Host, no_good, read_address, read_sentinels, shown

_FOREVER: Final = 1e9  # thirty years: in milliseconds still a number that Redis takes
_MAX_PREFIX_CHARS: Final = 200
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Options that hold. What is printed of it holds no secret."""

    hosts: tuple[Host, ...] = ()
    """The server, or some servers of the Cluster; empty with a socket or Sentinels."""

    path: str = ""
    """The Unix socket of the server."""

    db: int = 0
    sentinels: tuple[Host, ...] = ()
    service_name: str = ""
    cluster: bool = False
    prefix: str = "drakkar"
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    sentinel_username: str = field(default="", repr=False)
    sentinel_password: str = field(default="", repr=False)
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    prune_after_seconds: float | None = None
    """Delete cards older than this; None: what the worker says at `start`."""

    min_replicas: int = 0
    """How many replicas must have a lease before anybody counts on it."""

    @property
    def address(self) -> str:
        """Where the store is, for messages."""
        if self.path:
            return f"unix://{self.path}"
        hosts = ",".join(shown(host) for host in self.sentinels or self.hosts)
        if self.sentinels:
            return f"{self.service_name} of the Sentinels {hosts}"
        return f"{'rediss' if self.tls else 'redis'}://{hosts}"


_KNOWN: Final = (
    *("url", "sentinels", "service_name", "cluster", "prefix", "username", "password"),
    *("sentinel_username", "sentinel_password", "ca_file", "cert_file", "key_file"),
    *("prune_after_seconds", "min_replicas"),
)


def read_settings(options: Mapping[str, Any]) -> RedisSettings:
    """Return the settings in `options`.

    Raises `ValueError`, one line that names the option and shows no secret, when one is unknown, missing or
    no good, or when two do not go together.
    """
    for key in options:
        if key not in _KNOWN:
            if not _NAME.fullmatch(str(key)):  # perhaps a value that slipped into the wrong place: not shown
                raise ValueError(f"{SECTION} has a key that is no name; its options are {', '.join(_KNOWN)}")
            raise ValueError(f"{SECTION} has no option {str(key)!r}{_in_place_of(str(key))}")
    text = {key: _text(key, options.get(key, "")) for key in _KNOWN if key not in _NOT_TEXT}
    cluster = _flag("cluster", options.get("cluster", False))
    sentinels = read_sentinels(options.get("sentinels", ()))
    if sentinels:
        if text["url"]:
            raise no_good("url", "is for a single server or a Cluster; leave it out beside sentinels")
        if cluster:
            raise no_good("cluster", "and sentinels exclude each other")
        if not text["service_name"]:
            raise no_good("service_name", "is missing: the name that the Sentinels know the master by")
        found = Address(tls=bool(text["ca_file"]))
    else:
        for key in ("service_name", "sentinel_username", "sentinel_password"):
            if text[key]:
                raise no_good(key, "is for Sentinels, and there is no option sentinels")
        found = read_address(text["url"], cluster)
    _check_files(text, found, bool(sentinels))
    return RedisSettings(
        hosts=found.hosts,
        path=found.path,
        db=found.db,
        sentinels=sentinels,
        service_name=text["service_name"],
        cluster=cluster,
        prefix=_prefix(text["prefix"] if "prefix" in options else "drakkar"),
        username=text["username"] or found.username,
        password=text["password"] or found.password,
        sentinel_username=text["sentinel_username"],
        sentinel_password=text["sentinel_password"],
        tls=found.tls,
        ca_file=text["ca_file"],
        cert_file=text["cert_file"],
        key_file=text["key_file"],
        prune_after_seconds=_seconds(options.get("prune_after_seconds")),
        min_replicas=_count(options.get("min_replicas", 0)),
    )


def _in_place_of(key: str) -> str:
    """What to use instead of an option that there is not."""
    if key in _ELSEWHERE:
        return f": use {_ELSEWHERE[key]}"
    nearest = difflib.get_close_matches(key, _KNOWN, n=1)
    return f", did you mean {nearest[0]}?" if nearest else f"; its options are {', '.join(_KNOWN)}"


_IN_URL: Final = "url, as in redis://host:6379/0"
_WITH_TLS: Final = "a url that begins with rediss://"
_ELSEWHERE: Final = {
    "host": _IN_URL, "port": _IN_URL, "db": _IN_URL, "ssl": _WITH_TLS, "tls": _WITH_TLS,
    "user": "username", "master_name": "service_name",
}  # fmt: skip
_NOT_TEXT: Final = ("sentinels", "cluster", "prune_after_seconds", "min_replicas")


def _check_files(text: Mapping[str, str], found: Address, sentinels: bool) -> None:
    for key in ("ca_file", "cert_file", "key_file"):
        if not text[key].isprintable():
            raise no_good(key, "must be the path of a file, not what is in it")
        if text[key] and not found.tls:
            wanted = "a ca_file" if sentinels else "a rediss:// url"
            raise no_good(key, f"is for TLS, which needs {wanted}")
    if bool(text["cert_file"]) != bool(text["key_file"]):
        missing, there = ("key_file", "cert_file") if text["cert_file"] else ("cert_file", "key_file")
        raise no_good(missing, f"is missing beside {there}")


def _prefix(text: str) -> str:
    if not text:
        raise no_good("prefix", "is empty: every fleet has one")
    if len(text) > _MAX_PREFIX_CHARS:
        raise no_good("prefix", f"must have at most {_MAX_PREFIX_CHARS} characters, not {len(text)}")
    return text


def _text(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and key != "url":
        value = str(value)  # an environment variable of digits comes as a number
    if value is None:
        return ""
    if not isinstance(value, str):
        how = "; put it in quotes, in the settings file or in the JSON of its section"
        simple = isinstance(value, bool | int | float)
        raise no_good(key, f"must be text, not {_kind(value)}{how if simple else ''}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise no_good(key, "holds half a character, which cannot be sent") from None
    return value


def _flag(key: str, value: object) -> bool:
    found = _WORDS.get(str(value).lower()) if isinstance(value, bool | int | str) else None
    if found is None:
        raise no_good(key, f"must be true or false, not {_kind(value)}")
    return found


_WORDS: Final = {
    "true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip
"""As in the settings of the worker: a variable comes as text or a number."""


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        raise no_good("min_replicas", f"must be a whole number from 0 to 100, not {_shown(value)}")
    return value


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise no_good("prune_after_seconds", f"must be a number of seconds above 0, not {_shown(value)}")
    return float(min(value, _FOREVER))


def _kind(value: object) -> str:
    """What it is, and not what it says, which may be a secret."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", dict: "a map"}
    kinds |= {list: "a list", tuple: "a list", type(None): "nothing"}
    return kinds.get(type(value), "something else")


def _shown(value: object) -> str:
    """Of a small number what it says, too."""
    if isinstance(value, int | float) and not isinstance(value, bool) and -1e6 < value < 1e6:
        return str(value)
    return _kind(value)
