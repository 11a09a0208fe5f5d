"""Which peers to ask, for what, and which not for a while: arithmetic only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from drakkar.cache.rows import SERVED_SCOPES, Cursor
from drakkar.fleet.card import Card
from drakkar.fleet.liveness import Liveness

CHANGES_PATH: Final = "api/v1/peer/cache/changes"
MAX_MARK_KEY_CHARS: Final = 128
MAX_SKIPPED: Final = 16
FORGET_CYCLES: Final = 120
"""After how many cycles a peer whose card has no instance is read from the beginning: nothing else tells that
it began anew, with a clock that was set back."""


@dataclass(slots=True)
class PeerState:
    """What is remembered of one peer from cycle to cycle."""

    scopes: tuple[str, ...] = ()
    cursor: Cursor | None = None
    instance: str | None = None
    """The process that the cursor is of; None for a card that does not say."""

    to_verify: bool = False
    """The peer has started again since: the cursor counts only if the row at it is still there."""

    failures: int = 0
    skip: int = 0
    last_asked: int = -1
    began: int = 0

    def failed(self) -> int:
        """Count a failure; how many cycles to leave the peer alone."""
        self.failures += 1
        self.skip = min(2 ** (min(self.failures, 10) - 1), MAX_SKIPPED)
        return self.skip

    def succeeded(self) -> None:
        self.failures = self.skip = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A peer to ask in this cycle."""

    name: str
    url: str
    state: PeerState = field(compare=False)


def scopes_for(cluster: str, own_cluster: str) -> tuple[str, ...]:
    return SERVED_SCOPES if cluster == own_cluster else ("global",)


def changes_url(url: str) -> str | None:
    """Where the peer at `url` answers; None for what is no address to ask."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            return None
        _ = parts.port
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/{CHANGES_PATH}"


def choose(
    peers: Iterable[tuple[Card, Liveness]], states: dict[str, PeerState], own_cluster: str, cycle: int
) -> list[Target]:
    """The peers that have news, or may have; who was not asked for longest comes first. Brings `states` up to
    date, and counts the cycle for those that sit it out."""
    targets = []
    for card, liveness in peers:
        name = card["worker"]
        url = changes_url(card["url"])
        if liveness == "offline" or card.get("state") == "starting" or url is None:
            continue
        state = states.setdefault(name, PeerState(began=cycle))
        if state.skip > 0:
            state.skip -= 1
            continue
        _follow(state, card, scopes_for(card["cluster"], own_cluster), cycle)
        if _has_news(state, card.get("features")):
            targets.append(Target(name, url, state))
    return sorted(targets, key=lambda target: target.state.last_asked)


def mark_of(cursor: Cursor) -> dict[str, Any]:
    """How a card shows the newest row of a scope."""
    ms, key = cursor
    return {"key": key[:MAX_MARK_KEY_CHARS], "ms": ms}


def _follow(state: PeerState, card: Card, scopes: tuple[str, ...], cycle: int) -> None:
    """Start from the beginning, or look whether to, when the peer is not what it was."""
    instance = card.get("instance") or None
    if scopes != state.scopes or (instance is None and cycle - state.began >= FORGET_CYCLES):
        state.cursor, state.scopes, state.began = None, scopes, cycle
    if instance != state.instance:
        state.instance = instance
        state.to_verify = state.cursor is not None


def _has_news(state: PeerState, features: object) -> bool:
    if not isinstance(features, dict):
        return True  # a static peer, or an implementation that shows no marks
    marks = features.get("cache")
    found = [_cursor(marks.get(scope)) for scope in state.scopes] if isinstance(marks, dict) else []
    return any(
        mark is not None and (state.cursor is None or state.to_verify or mark > state.cursor)
        for mark in found
    )


def _cursor(mark: object) -> Cursor | None:
    if not isinstance(mark, Mapping):
        return None
    ms, key = mark.get("ms"), mark.get("key")
    return (ms, key) if type(ms) is int and isinstance(key, str) else None
