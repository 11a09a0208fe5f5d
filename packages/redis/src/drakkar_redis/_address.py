"""Where a server is, and who we are there: addresses taken apart.

Not by the client library, whose own reading of a URL lets any parameter in it change time limits or switch
off the check of certificates, and takes a database that is no number for 0. No message shows an address: it
may hold a password.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

SECTION: Final = "fleet.registry.redis"
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_HOST: Final = re.compile(
    r"\[(?P<v6>[\w:.%]+)\](:(?P<v6_port>[0-9]{1,5}))?|(?P<name>[^\s\[\]:@/]+)(:(?P<port>[0-9]{1,5}))?"
)
_SCHEMES: Final = ("redis", "rediss", "unix")

Host = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Address:
    hosts: tuple[Host, ...] = ()
    path: str = ""
    db: int = 0
    username: str = ""
    password: str = ""
    tls: bool = False


def read_address(url: str, cluster: bool) -> Address:
    """Take `redis://[user[:password]@]host[:port][,host...][/db]` or `unix://[...@]/path[?db=n]` apart."""
    if not url:
        raise no_good("url", "is missing: redis://, rediss:// or unix:// (or set sentinels and service_name)")
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise no_good("url", "must begin with redis://, rediss:// or unix://")
    if "#" in rest or any(char.isspace() or not char.isprintable() for char in rest):
        raise no_good("url", "holds a character that must be percent-encoded (as in %23 for #)")
    rest, _, query = rest.partition("?")
    login, _, place = rest.rpartition("@")
    username, _, password = (unquote(part) for part in login.partition(":"))
    if "/" in login and scheme != "unix":
        raise no_good("url", "holds a / before the @; in a password write it as %2F")
    name, _, db = query.partition("=")
    if query and (name != "db" or not _is_number(db)):
        raise no_good("url", "takes no parameter but db=<number>; everything else has an option of its own")
    if scheme == "unix":
        if cluster:
            raise no_good("url", "must be redis:// or rediss:// for a Cluster")
        if not place.startswith("/"):
            raise no_good("url", "must have an absolute path after unix://")
        return Address((), unquote(place), int(db or 0), username, password)
    place, _, path_db = place.partition("/")
    if path_db and (db or not _is_number(path_db)):
        raise no_good("url", "must end with the number of a database, or with none")
    hosts = tuple(_host("url", each, _PORT) for each in place.split(","))
    number = int(path_db or db or 0)
    if cluster and number:
        raise no_good("url", "names a database, and a Cluster has none but 0")
    if len(hosts) > 1 and not cluster:
        raise no_good("url", "names several servers, which only a Cluster has: set cluster")
    return Address(hosts, "", number, username, password, scheme == "rediss")


def _host(key: str, text: str, port: int) -> Host:
    found = _HOST.fullmatch(text)
    if found is None:
        raise no_good(key, "must name a host, with or without a port: example.org:6379 or [::1]:6379")
    number = int(found["port"] or found["v6_port"] or port)
    if not 0 < number < 65536:
        raise no_good(key, "has a port that cannot be one")
    return found["v6"] or found["name"], number


def read_sentinels(value: object) -> tuple[Host, ...]:
    entries = [part.strip() for part in value.split(",")] if isinstance(value, str) and value else value or ()
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
        raise no_good("sentinels", "must be a list of host:port")
    return tuple(_host("sentinels", entry, _SENTINEL_PORT) for entry in entries)


def shown(host: Host) -> str:
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def no_good(key: str, why: str) -> ValueError:
    return ValueError(f"{SECTION}.{key} {why}")
