"""A fleet in virtual time that shares fan-outs: each process sees the others' cards as a registry shows them,
late and for a while after they died."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from drakkar.fleet.liveness import liveness
from drakkar.fleet.service import Peer
from drakkar.leases.backend import Held, Lease, Renewal
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.supervisor.chosen import Supervised
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.worker import Dependencies, RunContext, Runner
from support.supervised import REFRESH, Body, Process, forever, memory

HEARTBEAT = 10.0
OFFLINE_AFTER = 30.0


class CutLeases(MemoryLeases):
    """Of a process whose link to the store can be cut."""

    cut = False

    async def acquire(self, name: str) -> Lease | Held:
        self._check()
        return await super().acquire(name)

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        self._check()
        return await super().renew(leases)

    async def release(self, name: str, token: int | None = None) -> None:
        self._check()
        await super().release(name, token)

    def _check(self) -> None:
        if self.cut:
            raise OSError("no route to the store")


@dataclass
class Witness:
    """Sees every run of the fleet. Faults are two at once under one lease, and a token that does not rise."""

    running: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    ended: dict[str, tuple[float, bool]] = field(default_factory=dict)
    gaps: list[tuple[float, str]] = field(default_factory=list)
    """Of every hand-over: how long nobody was at work, and under which lease."""

    starts: int = 0
    faults: list[str] = field(default_factory=list)

    def begins(self, ctx: RunContext, process: str) -> None:
        assert ctx.lease is not None
        name, token, now = ctx.lease.name, ctx.lease.token, asyncio.get_running_loop().time()
        if name in self.running:
            self.faults.append(f"{name}: {process} beside {self.running[name]}")
        if token <= self.tokens.get(name, 0):
            self.faults.append(f"{name}: token {token} after {self.tokens[name]}")
        if name in self.ended:
            self.gaps.append((now - self.ended[name][0], name))
        self.running[name], self.tokens[name] = process, token
        self.starts += 1

    def ends(self, ctx: RunContext) -> None:
        assert ctx.lease is not None
        self.running.pop(ctx.lease.name, None)
        self.ended[ctx.lease.name] = (asyncio.get_running_loop().time(), True)


class Member(Process):
    """A process of a `Fleet`."""

    def __init__(self, fleet: "Fleet", name: str, workers: Iterable[Supervised]) -> None:
        self.backend = CutLeases(fleet.store)
        self.state = "running"
        self.alive = True
        self.frozen_view = False
        self._fleet = fleet
        self._view: dict[str, tuple[dict[str, Any], float]] = {}
        self._loops: list[asyncio.Task[None]] = []
        super().__init__(workers, fleet.store, name, backend=self.backend, peers=self.peers)

    def peers(self) -> Sequence[Peer]:
        now = asyncio.get_running_loop().time()
        return [
            Peer(card, now - at, liveness(now - at, OFFLINE_AFTER))
            for name, (card, at) in sorted(self._view.items())
            if name != self.name
        ]

    def publish(self) -> None:
        if not self.alive:
            return
        card = {
            "schema": 1,
            "worker": self.name,
            "cluster": "",
            "url": "http://127.0.0.1/",
            "state": self.state,
            "features": self.supervisor.features(),
        }
        self._fleet.cards[self.name] = (card, asyncio.get_running_loop().time())

    def on_change(self) -> None:
        super().on_change()
        self.publish()

    def start(self) -> None:
        super().start()
        self.publish()
        self._loops = [asyncio.create_task(self._heartbeats()), asyncio.create_task(self._refreshes())]

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            self.publish()

    async def _refreshes(self) -> None:
        while True:
            if not self.frozen_view:
                self._view = dict(self._fleet.cards)
            await asyncio.sleep(REFRESH)

    async def leave(self) -> None:
        """A clean stop."""
        self.state = "draining"
        self.publish()
        self.alive = False
        await self.stop()
        self._fleet.cards.pop(self.name, None)
        await self._end()

    async def crash(self) -> None:
        """From one moment to the next nothing is done any more, and nothing is given back."""
        self.alive = False
        self.backend.cut = True
        await self.stop()
        await self._end()

    async def _end(self) -> None:
        for task in self._loops:
            task.cancel()
        await asyncio.wait(self._loops)

    def held(self, name: str = "gc") -> frozenset[int]:
        return self.supervisor.held_shards(name)


class Fleet:
    """Processes that come and go, over one store and one registry."""

    def __init__(self) -> None:
        self.store: MemoryStore = memory()
        self.cards: dict[str, tuple[dict[str, Any], float]] = {}
        self.witness = Witness()
        self.members: dict[str, Member] = {}

    def join(
        self,
        name: str,
        shards: int = 12,
        body: Body | None = None,
        body_of: Callable[[int], Body] | None = None,
        fan_out: str = "gc",
    ) -> Member:
        def build(_deps: Dependencies, shard: int) -> Runner:
            return Witnessed(self.witness, name, body_of(shard) if body_of is not None else body or forever)

        member = self.members[name] = Member(self, name, [FanOut(fan_out, shards, build)])
        member.start()
        return member

    async def leave(self, name: str) -> None:
        await self.members.pop(name).leave()

    async def crash(self, name: str) -> None:
        await self.members.pop(name).crash()

    async def end(self) -> None:
        for name in list(self.members):
            await self.leave(name)

    def held(self) -> dict[str, int]:
        """How many shards each process holds."""
        return {name: len(member.held()) for name, member in sorted(self.members.items())}

    def owners(self) -> Counter[int]:
        """By how many processes each shard is held."""
        return Counter(shard for member in self.members.values() for shard in member.held())

    def sheds(self) -> int:
        """How many shards were given up for peers, by the processes that are there now."""
        return sum(len(member.log.named("fanout_shard_shed")) for member in self.members.values())


class Witnessed:
    def __init__(self, witness: Witness, process: str, body: Body) -> None:
        self._witness = witness
        self._process = process
        self._body = body

    async def run(self, ctx: RunContext) -> None:
        self._witness.begins(ctx, self._process)
        try:
            await self._body(ctx)
        finally:
            self._witness.ends(ctx)


async def settles(
    fleet: Fleet, settled: Callable[[], bool], limit_seconds: float, look_seconds: float = 1.0
) -> float:
    """Return how long it took; fails after `limit_seconds`."""
    began = asyncio.get_running_loop().time()
    while not settled():
        took = asyncio.get_running_loop().time() - began
        assert took < limit_seconds, f"not settled after {took:.0f} s: {fleet.held()}"
        await asyncio.sleep(look_seconds)
    return asyncio.get_running_loop().time() - began
