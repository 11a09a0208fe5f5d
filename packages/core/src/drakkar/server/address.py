"""Where the server listens, and where others reach it."""

import errno
import ipaddress
import os
import socket
from typing import Final
from urllib.parse import urlsplit

from drakkar.errors import ConfigError, UnavailableError

DEFAULT_PORT: Final = 8080
_DEFAULT_PORTS: Final = range(DEFAULT_PORT, DEFAULT_PORT + 100)


def listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket on `port`; for None on the first free one from 8080 on, so that several
    workers run on one host with nothing configured. Port 0 is any free port.

    Raises `ConfigError` when the address is not of this host or the port not for this user,
    `UnavailableError` when the port is taken: by a worker that is still stopping, perhaps, so that the same
    start may work later.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    error: OSError | None = None
    where = host
    for candidate in (*_DEFAULT_PORTS, 0) if port is None else (port,):
        where = _netloc(host, candidate)
        try:
            return socket.create_server(
                (host, candidate), family=family, backlog=1024, dualstack_ipv6=_both_families(host)
            )
        except OSError as failure:
            error = failure
            if not _taken(failure):
                break
    if error is None or _taken(error):
        raise UnavailableError(f"ui.port: {where} is in use; end what listens there, or choose another port")
    number = error.errno or 0  # by which the reason is told: the text of the error has an address of its own
    # Of a name that is not found the text is all there is, with the address behind it.
    reason = os.strerror(number) if number > 0 else (error.strerror or "").partition(" (while ")[0]
    if number == errno.EACCES:
        raise ConfigError(f"ui.port: cannot listen on {where}: {reason}; choose a port from 1024 on")
    raise ConfigError(f"ui.host: cannot listen on {host}: {reason}; set it to an address of this host")


def reachable_host(host: str) -> str:
    """The address under which a server bound to `host` is reached: of a wildcard, the outbound one."""
    if host not in ("", "0.0.0.0", "::"):  # noqa: S104  recognized, not bound
        return host
    return _outbound(host) or "127.0.0.1"


def url_of(host: str, port: int) -> str:
    return f"http://{_netloc(host, port)}/"


def host_names(host: str, public_url: str) -> frozenset[str]:
    """The names, beside addresses and `localhost`, under which a browser may ask a server bound to `host`."""
    names = {"localhost", host, socket.gethostname(), urlsplit(public_url).hostname or ""}
    return frozenset(name.lower() for name in names if name)


def origin_of(url: str) -> str:
    """As a browser tells the origin of a page at `url`; empty for no address."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port not in (None, {"http": 80, "https": 443}.get(parts.scheme)) else ""
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}" if host else ""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _outbound(host: str) -> str | None:
    """The source address that the kernel would pick towards other hosts; nothing is sent.

    The targets are the documentation networks of RFC 5737 and RFC 3849, which exist nowhere.
    """
    targets = [(socket.AF_INET, "192.0.2.1")]
    if host == "::":
        targets.append((socket.AF_INET6, "2001:db8::1"))
    for family, target in targets:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return None


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _both_families(host: str) -> bool:
    # The address published for a wildcard may be an IPv4 one, and it must answer.
    return host == "::" and socket.has_dualstack_ipv6()


def _taken(error: OSError) -> bool:
    return error.errno == errno.EADDRINUSE
