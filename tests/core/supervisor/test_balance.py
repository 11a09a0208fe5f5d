"""What one process takes and gives up, by the cards that it sees."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from drakkar.fleet.service import Peer
from drakkar.supervisor.balance import ABOVE_SHARE_SECONDS, Balance
from support.log import RecordingLogger
from support.supervised import REFRESH
from support.virtual_time import VirtualClock, virtual_time


@dataclass
class Sharing:
    """Twelve shards, of which this process holds `held`; the peers show `cards`."""

    held: set[int]
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.balance = Balance(
            "gc", 12, lambda: self.held, self._peers, REFRESH, VirtualClock(), RecordingLogger()
        )

    def _peers(self) -> list[Peer]:
        return [
            Peer({"worker": name, "state": "running", "features": {"fanouts": {"gc": card}}}, 0.0, "online")
            for name, card in self.cards.items()
        ]

    async def waits(self, shard: int) -> float:
        """How long it leaves `shard` to others."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.balance.welcome(shard)
        return loop.time() - began


def card(held: int, *, ready: bool = True) -> dict[str, Any]:
    return {"shards": 12, "held": held, "ready": ready}


@virtual_time
async def test_nothing_is_given_up_for_peers_that_cannot_take_more() -> None:
    sharing = Sharing(set(range(11)), {"worker-2": card(1, ready=False)})
    for _ in range(100):
        assert sharing.balance.shed(()) == ()
        await asyncio.sleep(REFRESH)
    sharing.cards["worker-2"] = card(1)
    await asyncio.sleep(REFRESH)
    assert len(sharing.balance.shed(())) == 1


@virtual_time
async def test_what_is_being_given_up_counts_as_gone() -> None:
    sharing = Sharing(set(range(7)), {"worker-2": card(5)})
    assert sharing.balance.shed({0}) == ()
    sharing.held = set(range(8))
    for seed in range(50):
        random.seed(seed)
        again = Sharing(sharing.held, sharing.cards)
        (shard,) = again.balance.shed({0})
        assert shard != 0


@pytest.mark.parametrize("seed", range(20))
@virtual_time
async def test_what_it_gave_up_it_leaves_to_others_that_have_their_share(seed: int) -> None:
    """Those wait as well, and go first."""
    random.seed(seed)
    giver, other = Sharing(set(range(7)), {"worker-2": card(5)}), Sharing({7, 8, 9, 10, 11, 0})
    other.cards["worker-1"] = card(6)
    (shard,) = giver.balance.shed(())
    giver.held.discard(shard)
    assert await other.waits(shard) <= 1.5 * ABOVE_SHARE_SECONDS
    assert await giver.waits(shard) >= 2 * ABOVE_SHARE_SECONDS


@virtual_time
async def test_a_shard_that_is_asked_for_counts_until_it_is_refused() -> None:
    sharing = Sharing(set(range(5)), {"worker-2": card(3)})
    assert await sharing.waits(5) == pytest.approx(0, abs=0.01)
    refused, waiting = Sharing(sharing.held, sharing.cards), sharing
    assert await refused.waits(5) == pytest.approx(0, abs=0.01)
    refused.balance.refused(5)
    assert await refused.waits(6) == pytest.approx(0, abs=0.01)
    assert await waiting.waits(6) >= ABOVE_SHARE_SECONDS


@virtual_time
async def test_a_peer_is_remembered_that_cannot_keep_what_it_gets_however_many_names_came_before() -> None:
    """Names may be new at every deployment, and a worker may live through many."""

    async def an_hour_with_one_that_crashes(name: str) -> int:
        given = 0
        sharing.cards = {name: card(0)}
        for _ in range(240):
            await asyncio.sleep(REFRESH)
            for shard in sharing.balance.shed(()):
                given += 1
                sharing.balance.took(shard)
        return given

    sharing = Sharing(set(range(12)))
    at_first = await an_hour_with_one_that_crashes("worker-2")
    for number in range(1100):
        sharing.cards = {f"worker-1-{number}": card(0)}
        await asyncio.sleep(REFRESH)
        sharing.balance.shed(())
    assert await an_hour_with_one_that_crashes("worker-3") <= at_first


@virtual_time
async def test_a_fleet_larger_than_what_is_remembered_is_still_known() -> None:
    """Else there would always be a peer that looks new, and nothing would ever count as given in vain."""
    sharing, given = Sharing(set(range(12))), 0
    for _ in range(240):
        sharing.cards = {f"worker-{number}": card(0) for number in range(2, 1200)}
        await asyncio.sleep(REFRESH)
        for shard in sharing.balance.shed(()):
            given += 1
            sharing.balance.took(shard)
    assert given < 20
