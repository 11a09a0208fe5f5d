"""Who led what in the last hour, as this worker saw it: itself at once, its peers at every refresh.

For people. The times are of this worker's wall clock and nothing is decided by them.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drakkar.fleet.service import Peer

SHOWN_SECONDS: Final = 3600.0
MAX_SPANS: Final = 500
"""How many are remembered of those that are over, and as many of those that go on: a fleet with more is too
large to be drawn."""


@dataclass(slots=True)
class Span:
    """One worker of the fleet led under one name without a break."""

    name: str
    worker: str
    from_ts: float
    to_ts: float | None
    """None while it goes on."""


class Timeline:
    """Made of observations; one that was missed is one that does not show."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Span] = {}
        self._over: deque[Span] = deque(maxlen=MAX_SPANS)
        self.version = 0
        """Another number whenever there is another span, or one has ended."""

    def observe(self, now_ts: float, leaders: Mapping[str, Iterable[str]]) -> None:
        """Note who leads now: the names by worker."""
        leading = {(name, worker) for worker, names in leaders.items() for name in names}
        for pair in self._open.keys() - leading:
            span = self._open.pop(pair)
            span.to_ts = now_ts
            self._over.append(span)
            self.version += 1
        for pair in sorted(leading - self._open.keys()):
            if len(self._open) == MAX_SPANS:
                break
            self._open[pair] = Span(*pair, now_ts, None)
            self.version += 1

    def spans(self, now_ts: float) -> list[Span]:
        """Those of the last hour by name and time."""
        over = [span for span in self._over if (span.to_ts or 0.0) >= now_ts - SHOWN_SECONDS]
        return sorted((*over, *self._open.values()), key=lambda span: (span.name, span.from_ts, span.worker))


def names_led(card: Mapping[str, Any]) -> list[str] | None:
    """The background workers that a card says its worker leads, sorted; None when it does not say."""
    names = card.get("features", {}).get("leader_for")
    if not isinstance(names, list):
        return None
    return sorted({name for name in names if isinstance(name, str)})


def leaders(peers: Iterable[Peer]) -> dict[str, list[str]]:
    """What each peer leads. One that is offline leads no more, whatever its card still says."""
    return {peer.card["worker"]: names_led(peer.card) or [] for peer in peers if peer.liveness != "offline"}
