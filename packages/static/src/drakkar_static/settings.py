"""The options of `fleet.registry.static`, checked once so that nothing later has to be.

Whether a peer answers at its URL is not looked at: the list is what its author says it is.

Of core only the size of a card is used, which every implementation of the card has under that name.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from drakkar.fleet.card import MAX_CARD_BYTES

MAX_NAME_CHARS: Final = 200

_SECTION: Final = "fleet.registry.static"
_UNSAFE: Final = re.compile(r"[\s\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Peer:
    """One worker of the list."""

    name: str
    cluster: str
    """Empty for a worker of no cluster."""

    url: str

    def card(self) -> dict[str, Any]:
        """A new card, the caller's own, with the required fields and no other: nothing else is known."""
        return {"schema": 1, "worker": self.name, "cluster": self.cluster, "url": self.url}


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """What the lease half needs."""

    peers: tuple[Peer, ...]
    assignments: tuple[tuple[str, str], ...]
    """Pairs of a pattern of lease names (`*`, `?`, `[...]`) and the worker that owns what it matches."""


def read_lease_options(options: Mapping[str, Any]) -> LeaseOptions:
    """Like `read_options`, with an option `assignments` more: a map of patterns to worker names."""
    entries = options.get("assignments", {})
    key = "supervisor.leases.plugin_options.assignments"
    if not isinstance(entries, Mapping):
        raise ValueError(f"{key} must map lease names to worker names, not be {type(entries).__name__}")
    assignments = []
    for pattern, worker in entries.items():
        if not isinstance(pattern, str) or not pattern:
            raise ValueError(f"{key} has a lease name that is no text: {pattern!r}")
        if not isinstance(worker, str) or not worker:
            raise ValueError(f"{key}[{pattern!r}] must be a worker name")
        assignments.append((pattern, worker))
    others = {name: value for name, value in options.items() if name != "assignments"}
    return LeaseOptions(read_options(others), tuple(assignments))


def read_options(options: Mapping[str, Any]) -> tuple[Peer, ...]:
    """Return the peers in the order of the list; none when the list is missing or empty.

    Raises `ValueError` with one line that names the option, and never shows a URL, which may hold a secret.
    """
    _refuse_unknown(_SECTION, options, ["peers"])
    entries = options.get("peers", ())
    if not isinstance(entries, list | tuple):
        raise ValueError(f"{_SECTION}.peers must be a list of peers, not {type(entries).__name__}")
    peers: dict[str, Peer] = {}
    for index, entry in enumerate(entries):
        key = f"{_SECTION}.peers[{index}]"
        peer = _read_peer(key, entry)
        if peer.name in peers:
            first = [*peers].index(peer.name)
            raise ValueError(f"{key}.name must differ from peers[{first}].name, both are {peer.name!r}")
        peers[peer.name] = peer
    return tuple(peers.values())


def _read_peer(key: str, entry: object) -> Peer:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{key} must have a name and a url, not be {type(entry).__name__}")
    _refuse_unknown(key, entry, ["name", "cluster", "url"])
    name = _text(f"{key}.name", entry.get("name"))
    if not name.strip():
        raise ValueError(f"{key}.name must not be empty")
    if len(name) > MAX_NAME_CHARS:
        raise ValueError(f"{key}.name must have at most {MAX_NAME_CHARS} characters, not {len(name)}")
    url = _text(f"{key}.url", entry.get("url"))
    _check_url(f"{key}.url", url)
    peer = Peer(name, _text(f"{key}.cluster", entry.get("cluster", "")), url)
    try:
        size = len(json.dumps(peer.card(), ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise ValueError(f"{key} holds half a character, which no card can carry") from None
    if size > MAX_CARD_BYTES:
        raise ValueError(f"{key} makes a card of {size} bytes, more than {MAX_CARD_BYTES}")
    return peer


def _text(key: str, value: object) -> str:
    if value is None:
        raise ValueError(f"{key} is missing")
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a string, not {type(value).__name__}")
    return value


def _check_url(key: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port that is none, and only when it is asked for
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or _UNSAFE.search(url):
        raise ValueError(f"{key} must be an http:// or https:// address with a host")
    if "@" in parts.netloc:
        raise ValueError(f"{key} must not hold a user name or password: every card is public")


def _refuse_unknown(key: str, given: Mapping[Any, Any], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there is {', '.join(known)}"
            raise ValueError(f"{key} has no option {str(name)!r}, {hint}")
