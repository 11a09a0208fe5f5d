"""When a worker takes a shard, and when it gives one up for a peer that has fewer.

Fairness is a preference: a worker that has its share waits before it takes a free shard, and takes it all
the same if nobody else did. It gives up what it has above its share while a ready peer has less than that,
and the less so the more often that was in vain (`drakkar.supervisor.patience`).
"""

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from drakkar.clock import Clock
from drakkar.errors import describe
from drakkar.fleet.provider import EventLogger
from drakkar.supervisor.patience import Patience
from drakkar.supervisor.peers import PeerShare, shares_of
from drakkar.supervisor.shares import fair_share, to_shed

ABOVE_SHARE_SECONDS: Final = 2.0
"""How long a worker that has its share leaves a free shard to others, plus up to half of that again."""

PEERS_SECONDS: Final = 1.0
"""How old a look at the peers may be: every shard asks for it."""

ATTEMPT_SECONDS: Final = 0.5
"""How long a shard that was asked for counts as one that is held, unless it was refused."""

DISAGREE_HINT: Final = "stop all workers that have the old number, then start them with the new one"
_REMEMBERED_PEERS: Final = 1024


class Balance:
    """The sharing of one fan-out, as this process sees it. `held` tells which shards it works on now."""

    def __init__(
        self,
        name: str,
        shards: int,
        held: Callable[[], Collection[int]],
        peers: Callable[[], Sequence[Any]],
        refresh_seconds: float,
        clock: Clock,
        logger: EventLogger,
    ) -> None:
        self._name = name
        self._shards = shards
        self._held = held
        self._look = peers
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._logger = logger
        self._peers_at = -math.inf
        self._peers_then: Sequence[PeerShare] = ()
        self._failing = False
        self._attempts: dict[int, float] = {}
        self._patience = Patience(refresh_seconds)
        self._given: set[int] = set()
        self._wanting_then: Mapping[str, int] = {}
        self._tried: dict[str, None] = {}  # who was given something, the last ones last
        self._told: set[tuple[str, int]] = set()

    async def welcome(self, shard: int) -> None:
        """Return when this process should ask for `shard`.

        Not while a peer works under another number of shards: both would work on the same data.
        """
        waited = False
        while True:
            if self._outnumbering() is not None:
                await self._clock.sleep(self._refresh_seconds)
            elif not waited and self._in_hand() >= self._share(self._peers()):
                seconds = ABOVE_SHARE_SECONDS * (2 if shard in self._given else 1)
                await self._clock.sleep(seconds * (1 + random.random() / 2))  # noqa: S311  no secret
                waited = True
            else:
                self._attempts[shard] = self._clock.elapsed()
                return

    def refused(self, shard: int) -> None:
        """Another process works on `shard`."""
        self._attempts.pop(shard, None)

    def took(self, shard: int) -> None:
        """`shard` is worked on by this process again, and counts as held."""
        self._attempts.pop(shard, None)
        if shard in self._given or len(self._held()) > self._share(self._peers()):
            self._patience.took(self._clock.elapsed())
        self._given.discard(shard)

    def shed(self, yielding: Collection[int]) -> Sequence[int]:
        """The shards to give up now, for peers that lack them; called once a refresh. `yielding` are being
        given up already."""
        now, peers = self._clock.elapsed(), self._peers()
        self._tell_of_disagreement(peers)
        held = {peer.worker: peer.held for peer in self._same(peers)}
        share = self._share(peers)
        wanting = {peer.worker: peer.held for peer in self._same(peers) if peer.ready and peer.held < share}
        if wanting.keys() - self._tried.keys():
            self._patience.forgive()
        if not self._patience.is_due(now, self._grew(held)):
            return ()
        mine = sorted(set(self._held()) - set(yielding))
        wanted = sum(share - held for held in wanting.values())
        count = self._patience.most(to_shed(len(mine), share, wanted))
        if count == 0:
            return ()
        self._remember(wanting)
        self._patience.gave(now)
        self._wanting_then = wanting
        chosen = random.sample(mine, count)  # not always the same ones: they may be what a peer cannot keep
        self._given = set(chosen)
        return chosen

    def _remember(self, wanting: Collection[str]) -> None:
        """Of many names the last ones: a fleet may have new ones at every deployment."""
        for worker in wanting:
            self._tried.pop(worker, None)
            self._tried[worker] = None
        for worker in list(self._tried)[: -max(_REMEMBERED_PEERS, len(wanting))]:
            del self._tried[worker]

    def _grew(self, held: Mapping[str, int]) -> bool:
        """Whether a peer that something was given up for has more than it had then."""
        return any(held.get(worker, 0) > had for worker, had in self._wanting_then.items())

    def problem(self) -> str | None:
        """Why this process takes no shard; None while it may."""
        peer = self._outnumbering()
        if peer is None:
            return None
        works = f"{peer.worker[:200]} works with {peer.shards} shards and this worker has {self._shards}"
        return f"{self._name} takes no shard, since {works}; {DISAGREE_HINT}"

    def _outnumbering(self) -> PeerShare | None:
        """A peer at work under another number of shards."""
        return next((peer for peer in self._peers() if peer.held and peer.shards != self._shards), None)

    def _in_hand(self) -> int:
        """How many shards are held or were asked for just now."""
        since = self._clock.elapsed() - ATTEMPT_SECONDS
        self._attempts = {shard: at for shard, at in self._attempts.items() if at > since}
        return len(self._attempts.keys() | set(self._held()))

    def _share(self, peers: Sequence[PeerShare]) -> int:
        """Of this worker and each peer that can take shards or has some."""
        return fair_share(self._shards, 1 + sum(peer.ready or peer.held > 0 for peer in self._same(peers)))

    def _same(self, peers: Sequence[PeerShare]) -> list[PeerShare]:
        return [peer for peer in peers if peer.shards == self._shards]

    def _peers(self) -> Sequence[PeerShare]:
        """The peers, at most `PEERS_SECONDS` old; none while they cannot be told."""
        now = self._clock.elapsed()
        if now - self._peers_at < PEERS_SECONDS:
            return self._peers_then
        self._peers_at = now
        try:
            self._peers_then = shares_of(self._look(), self._name)
            self._failing = False
        except Exception as error:  # noqa: BLE001  no reason to leave a shard without an owner
            self._peers_then = ()
            if not self._failing:
                self._logger.error("fanout_peers_failed", worker=self._name, error=describe(error))
            self._failing = True
        return self._peers_then

    def _tell_of_disagreement(self, peers: Sequence[PeerShare]) -> None:
        for peer in peers:
            known = (peer.worker, peer.shards)
            if peer.shards == self._shards or known in self._told or len(self._told) >= _REMEMBERED_PEERS:
                continue
            self._told.add(known)
            self._logger.error(
                "fanout_shards_disagree",
                worker=self._name,
                shards=self._shards,
                peer=peer.worker[:200],
                peer_shards=peer.shards,
                hint=DISAGREE_HINT,
            )
