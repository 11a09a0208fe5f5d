"""What the cards of the peers say of a fan-out.

Cards are untrusted, and up to a refresh old: they decide who is preferred, never who leads.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

MAX_SHARDS: Final = 1024


@dataclass(frozen=True, slots=True)
class PeerShare:
    """A peer at work: online and `running`."""

    worker: str
    shards: int
    held: int
    ready: bool
    """Whether it can take more."""


def shares_of(peers: Iterable[Any], name: str) -> list[PeerShare]:
    """What `peers`, as `Dependencies.peers` gives them, say of the fan-out `name`. Nothing from those that
    are not at work, that do not run it, or whose cards make no sense there."""
    online = (peer.card for peer in peers if peer.liveness == "online")
    running = (card for card in online if card.get("state") == "running")
    return [share for card in running if (share := _read(card, name)) is not None]


def _read(card: dict[str, Any], name: str) -> PeerShare | None:
    features = card.get("features")
    fan_outs = features.get("fanouts") if isinstance(features, dict) else None
    entry = fan_outs.get(name) if isinstance(fan_outs, dict) else None
    if not isinstance(entry, dict):
        return None
    shards, held, ready = (entry.get(key) for key in ("shards", "held", "ready"))
    if not (_is_count(shards) and _is_count(held) and isinstance(ready, bool)):
        return None
    if not held <= shards or not 1 <= shards <= MAX_SHARDS:
        return None
    return PeerShare(str(card.get("worker")), shards, held, ready)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
