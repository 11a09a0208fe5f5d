"""The options of the provider, checked. Nothing here opens a connection or looks at the disk.

Addresses are taken apart here and not by the client library, whose own reading of a URL lets any parameter in
it change time limits or switch off the check of certificates, and takes a database that is no number for 0.
"""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

_SECTION: Final = "fleet.registry.redis"
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_FOREVER: Final = 1e9  # thirty years: in milliseconds still a number that Redis takes
_MAX_PREFIX_CHARS: Final = 200
_HOST: Final = re.compile(
    r"\[(?P<v6>[0-9A-Fa-f:.%\w]+)\](:(?P<v6_port>\d+))?|(?P<name>[^\s\[\]:@/]+)(:(?P<port>\d+))?"
)
_SCHEMES: Final = ("redis", "rediss", "unix")

Host = tuple[str, int]


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


def shown(host: Host) -> str:
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def read_settings(options: Mapping[str, Any]) -> RedisSettings:
    """Return the settings in `options`.

    Raises `ValueError`, one line that names the option and shows no secret, when one is unknown, missing or
    no good, or when two do not go together.
    """
    for key in options:
        if key not in _KNOWN:
            (nearest,) = difflib.get_close_matches(str(key), _KNOWN, n=1, cutoff=0.0)
            raise ValueError(f"{_SECTION} has no option {str(key)!r}, did you mean {nearest}?")
    text = {key: _text(key, options.get(key, "")) for key in _KNOWN if key not in _NOT_TEXT}
    cluster = _flag("cluster", options.get("cluster", False))
    sentinels = _sentinels(options.get("sentinels", ()))
    if sentinels:
        if text["url"]:
            raise _no_good("url", "is for a single server or a Cluster; leave it out beside sentinels")
        if cluster:
            raise _no_good("cluster", "and sentinels exclude each other")
        if not text["service_name"]:
            raise _no_good("service_name", "is missing: the name that the Sentinels know the master by")
        found = _Address(tls=bool(text["ca_file"]))
    else:
        for key in ("service_name", "sentinel_username", "sentinel_password"):
            if text[key]:
                raise _no_good(key, "is for Sentinels, and there is no option sentinels")
        found = _address(text["url"], cluster)
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


_NOT_TEXT: Final = ("sentinels", "cluster", "prune_after_seconds", "min_replicas")


@dataclass(frozen=True, slots=True)
class _Address:
    hosts: tuple[Host, ...] = ()
    path: str = ""
    db: int = 0
    username: str = ""
    password: str = ""
    tls: bool = False


def _address(url: str, cluster: bool) -> _Address:
    """Take `redis://[user[:password]@]host[:port][,host...][/db]` or `unix://[...@]/path[?db=n]` apart."""
    if not url:
        raise _no_good(
            "url", "is missing: redis://, rediss:// or unix:// (or set sentinels and service_name)"
        )
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise _no_good("url", "must begin with redis://, rediss:// or unix://")
    if "#" in rest or any(char.isspace() or not char.isprintable() for char in rest):
        raise _no_good("url", "holds a character that must be percent-encoded (as in %23 for #)")
    rest, _, query = rest.partition("?")
    login, _, place = rest.rpartition("@")
    username, _, password = (unquote(part) for part in login.partition(":"))
    if "/" in login and scheme != "unix":
        raise _no_good("url", "holds a / before the @; in a password write it as %2F")
    name, _, db = query.partition("=")
    if query and (name != "db" or not _is_number(db)):
        raise _no_good("url", "takes no parameter but db=<number>; everything else has an option of its own")
    if scheme == "unix":
        if cluster:
            raise _no_good("url", "must be redis:// or rediss:// for a Cluster")
        if not place.startswith("/"):
            raise _no_good("url", "must have an absolute path after unix://")
        return _Address((), unquote(place), int(db or 0), username, password)
    place, _, path_db = place.partition("/")
    if path_db and (db or not _is_number(path_db)):
        raise _no_good("url", "must end with the number of a database, or with none")
    hosts = tuple(_host("url", each, _PORT) for each in place.split(","))
    number = int(path_db or db or 0)
    if cluster and number:
        raise _no_good("url", "names a database, and a Cluster has none but 0")
    if len(hosts) > 1 and not cluster:
        raise _no_good("url", "names several servers, which only a Cluster has: set cluster")
    return _Address(hosts, "", number, username, password, scheme == "rediss")


def _host(key: str, text: str, port: int) -> Host:
    found = _HOST.fullmatch(text)
    if found is None:
        raise _no_good(key, "must name a host, with or without a port: example.org:6379 or [::1]:6379")
    number = int(found["port"] or found["v6_port"] or port)
    if not 0 < number < 65536:
        raise _no_good(key, "has a port that cannot be one")
    return found["v6"] or found["name"], number


def _sentinels(value: object) -> tuple[Host, ...]:
    entries = [part.strip() for part in value.split(",")] if isinstance(value, str) and value else value or ()
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
        raise _no_good("sentinels", "must be a list of host:port")
    return tuple(_host("sentinels", entry, _SENTINEL_PORT) for entry in entries)


def _check_files(text: Mapping[str, str], found: _Address, sentinels: bool) -> None:
    for key in ("ca_file", "cert_file", "key_file"):
        if text[key] and not found.tls:
            wanted = "a ca_file" if sentinels else "a rediss:// url"
            raise _no_good(key, f"is for TLS, which needs {wanted}")
    if bool(text["cert_file"]) != bool(text["key_file"]):
        missing, there = ("key_file", "cert_file") if text["cert_file"] else ("cert_file", "key_file")
        raise _no_good(missing, f"is missing beside {there}")


def _prefix(text: str) -> str:
    if not text:
        raise _no_good("prefix", "is empty: every fleet has one")
    if len(text) > _MAX_PREFIX_CHARS:
        raise _no_good("prefix", f"must have at most {_MAX_PREFIX_CHARS} characters, not {len(text)}")
    return text


def _text(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and key != "url":
        value = str(value)  # an environment variable of digits comes as a number
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _no_good(key, f"must be text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _no_good(key, "holds half a character, which cannot be sent") from None
    return value


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _no_good(key, f"must be true or false, not {type(value).__name__}")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        raise _no_good("min_replicas", f"must be a number of replicas from 0 to 100, not {value!r}")
    return value


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _no_good("prune_after_seconds", f"must be a number of seconds above 0, not {value!r}")
    return float(min(value, _FOREVER))


def _no_good(key: str, why: str) -> ValueError:
    return ValueError(f"{_SECTION}.{key} {why}")
