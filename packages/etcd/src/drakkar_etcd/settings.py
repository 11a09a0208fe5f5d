"""The options of the provider, checked. Nothing here asks a server.

Both halves take the same options. No message shows what was given, as anything may be a password in the wrong
place; names of options that look like names, and numbers, are the exception.
"""

import difflib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

SECTION: Final = "fleet.registry.etcd"
MAX_PREFIX_CHARS: Final = 200

_DEFAULT_PORT: Final = 2379
_NAME: Final = re.compile(r"[A-Za-z_]{1,30}")
_LONGEST: Final = 9e9  # what etcd grants at most, some 285 years


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Options that hold."""

    endpoints: tuple[str, ...] = (f"http://127.0.0.1:{_DEFAULT_PORT}",)
    """Addresses of one cluster, `scheme://host:port`, in the order in which they are tried."""

    prefix: str = "/drakkar"
    """What every key of the fleet begins with; no slash at its end."""

    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    """The authority to trust; None: those of the system."""

    cert_file: Path | None = None
    key_file: Path | None = None
    prune_after_seconds: float | None = None
    """Delete cards older than this; None: what the worker says at `start`."""

    @property
    def is_tls(self) -> bool:
        return self.endpoints[0].startswith("https:")


_KNOWN: Final = tuple(option.name for option in fields(EtcdSettings))


def read_settings(options: Mapping[str, Any]) -> EtcdSettings:
    """Return the settings in `options`.

    Raises `ValueError`, one line that names the option, when one is unknown or no good, or when two do not
    go together.
    """
    for name in options:
        if name not in _KNOWN:
            raise ValueError(f"{SECTION} {_unknown(name)}")
    default = EtcdSettings()
    settings = EtcdSettings(
        endpoints=_endpoints(options["endpoints"]) if "endpoints" in options else default.endpoints,
        prefix=_prefix(options.get("prefix", default.prefix)),
        username=_text("username", options.get("username", "")),
        password=_text("password", options.get("password", "")),
        ca_file=_file("ca_file", options.get("ca_file")),
        cert_file=_file("cert_file", options.get("cert_file")),
        key_file=_file("key_file", options.get("key_file")),
        prune_after_seconds=_seconds(options.get("prune_after_seconds")),
    )
    _check_pairs(settings)
    return settings


def _unknown(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"has an option of a name that is none; those that it has are {', '.join(_KNOWN)}"
    (nearest,) = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.0)
    return f"has no option {name!r}, did you mean {nearest}?"


def _check_pairs(settings: EtcdSettings) -> None:
    for one, other in (("username", "password"), ("cert_file", "key_file")):
        for given, missing in ((one, other), (other, one)):
            if getattr(settings, given) and not getattr(settings, missing):
                raise ValueError(f"{SECTION}.{given} needs {SECTION}.{missing} beside it")
    for name in ("ca_file", "cert_file"):
        if getattr(settings, name) is not None and not settings.is_tls:
            raise ValueError(f"{SECTION}.{name} is for endpoints that begin with https://")


def _endpoints(value: object) -> tuple[str, ...]:
    key = f"{SECTION}.endpoints"
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]  # as in ETCDCTL_ENDPOINTS
    if not isinstance(value, list | tuple):
        raise ValueError(f"{key} must be a list of addresses, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{key} is empty: name at least one address, such as http://127.0.0.1:2379")
    found = tuple(_endpoint(f"{key}[{index}]", entry) for index, entry in enumerate(value))
    if len({urlsplit(endpoint).scheme for endpoint in found}) > 1:
        raise ValueError(f"{key} must be all http:// or all https://")
    return tuple(dict.fromkeys(found))


def _endpoint(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{key} must be an address, not {type(value).__name__}")
    example = f"must be an address such as http://127.0.0.1:{_DEFAULT_PORT}"
    if not value.lower().startswith(("http://", "https://")):
        raise ValueError(f"{key} {example}: it must begin with http:// or https://")
    try:
        parts = urlsplit(value)
        (parts.hostname or "").encode("idna")  # what looks a name up would raise it each time
    except ValueError:
        parts = urlsplit("")
    if not parts.hostname or not value.isprintable() or " " in value:
        raise ValueError(f"{key} {example}: it names no possible host")
    if "@" in parts.netloc:
        raise ValueError(f"{key} must not hold a user name or password: see {SECTION}.username")
    try:
        port = _DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError(f"{key} {example}: its port must be a number from 1 to 65535")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"{key} must end after the port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _prefix(value: object) -> str:
    prefix = _text("prefix", value).rstrip("/")
    if not prefix:
        raise ValueError(f"{SECTION}.prefix is empty: name what all keys of the fleet begin with")
    if len(prefix) > MAX_PREFIX_CHARS:
        raise ValueError(f"{SECTION}.prefix must have at most {MAX_PREFIX_CHARS} characters")
    if not prefix.isprintable():
        raise ValueError(f"{SECTION}.prefix holds a character that cannot be printed")
    return prefix


def _text(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # an environment variable of digits comes as a number
    if not isinstance(value, str):
        how = "; put it in quotes, in the settings file or in the JSON of its section"
        simple = isinstance(value, bool | float)
        raise ValueError(
            f"{SECTION}.{name} must be a text, not {type(value).__name__}{how if simple else ''}"
        )
    return value


def _file(name: str, value: object) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise ValueError(f"{SECTION}.{name} must be a path")
    return Path(value).absolute()


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not is_number or not 0 < value < math.inf:
        shown = f"{value!r}" if is_number else type(value).__name__
        raise ValueError(f"{SECTION}.prune_after_seconds must be a number of seconds above 0, not {shown}")
    return float(min(value, _LONGEST))
