"""Who led what in the last hour, as this worker saw it: itself at once, its peers at every refresh.

For people. The times are of this worker's wall clock and nothing is decided by them.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drakkar.fleet.liveness import last_seen
from drakkar.fleet.service import Peer

SHOWN_SECONDS: Final = 3600.0
MAX_SPANS: Final = 500
"""How many are remembered of those that are over, and as many of those that go on: a fleet with more is too
large to be drawn."""

MAX_NAMES_OF_CARD: Final = 32
"""How many names that nobody here knows one card can have drawn: it could have so many that nothing else had
room."""

_NOTHING: Final[Mapping[str, float]] = {}
_NO_JOBS: Final[Mapping[str, bool]] = {}


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
        self._said: dict[tuple[str, str], float] = {}
        self._taken: dict[str, float] = {}
        self._over: deque[Span] = deque(maxlen=MAX_SPANS)
        self.version = 0
        """Another number whenever there is another span, or one has ended."""

    def observe(
        self,
        now_ts: float,
        leaders: Mapping[str, Iterable[str]],
        seen: Mapping[str, float] = _NOTHING,
        jobs: Mapping[str, bool] = _NO_JOBS,
    ) -> None:
        """Note who leads now: the names by worker; who is missing there is gone. `seen` tells when a worker
        said so last, if not now; `jobs` the names that are known here, and of each whether it is one lease.

        The span of who is gone ends when it was last seen. One of a name that is one lease ends as soon as
        another worker said later that it leads: a card that stays behind is no second leader.
        """
        said = {pair: seen.get(pair[1], now_ts) for pair in self._chosen(leaders, jobs)}
        for pair in self._open.keys() - said.keys():
            last = now_ts if pair[1] in leaders else self._said[pair]
            self._end(pair, min(now_ts, last))
        for pair in sorted(said.keys() - self._open.keys(), key=lambda pair: (pair[0] not in jobs, pair)):
            name = pair[0]
            if jobs.get(name):
                rivals = [other for other in said if other[0] == name and other != pair]
                if said[pair] <= self._taken.get(name, -math.inf) or any(
                    other not in self._open and said[other] > said[pair] for other in rivals
                ):
                    continue
                for other in rivals:
                    if other in self._open and said[other] <= said[pair]:
                        self._end(other, now_ts)
                self._taken[name] = now_ts
            if len(self._open) == MAX_SPANS:
                break
            self._open[pair] = Span(*pair, now_ts, None)
            self.version += 1
        self._said = {pair: said[pair] for pair in self._open}

    def _chosen(
        self, leaders: Mapping[str, Iterable[str]], jobs: Mapping[str, bool]
    ) -> Iterator[tuple[str, str]]:
        """What is drawn of each card: what is known here or drawn already, then what others lead as well."""
        every = {worker: set(names) for worker, names in leaders.items()}
        count = Counter(name for names in every.values() for name in names)
        for worker, names in every.items():
            known = {name for name in names if name in jobs or (name, worker) in self._open}
            others = sorted(names - known, key=lambda name: (-min(count[name], 2), name))
            for name in (*known, *others[: max(0, MAX_NAMES_OF_CARD - len(known))]):
                yield name, worker

    def _end(self, pair: tuple[str, str], at_ts: float) -> None:
        span = self._open.pop(pair)
        span.to_ts = max(span.from_ts, at_ts)
        self._over.append(span)
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


def seen_at(peers: Iterable[Peer], now_ts: float) -> dict[str, float]:
    """When each peer published its card last, in epoch seconds here; without those of whom it is unknown."""
    seen = {peer.card["worker"]: last_seen(now_ts, peer.age_seconds) for peer in peers}
    return {worker: at_ts for worker, at_ts in seen.items() if at_ts is not None}
