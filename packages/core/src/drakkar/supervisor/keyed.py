"""A background worker with one lease for each key of a changing set."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from drakkar.supervisor.fanout import FanOut, FanOutGroup
from drakkar.supervisor.keys import Keys, KeySet, lease_of
from drakkar.supervisor.lane import Lane
from drakkar.supervisor.shares import fnv32a
from drakkar.supervisor.surroundings import LaneReport, Surroundings
from drakkar.supervisor.worker import Dependencies, Runner, check_name


@dataclass(frozen=True, slots=True)
class KeyedFanOut:
    """Each key has a lease `<name>-leader-<key>`; `build_item` is called for every run of a key.

    `keys` is asked again `keys_seconds` after each answer, and may take 30 s for one. While it fails, the
    keys stay what they were, and it is asked every 30 s at least; at most 10,000 keys are possible. When a
    key vanishes its run is cancelled.

    With a `gate`, a key is worked on only by the worker that holds the gate's shard
    `fnv32a(key) % gate.shards`; the gate must be among the workers that run. Without one, by whichever worker
    gets its lease. Raises `ValueError` for what cannot be a name or a time.
    """

    name: str
    keys: Keys
    build_item: Callable[[Dependencies, str], Runner]
    gate: FanOut | None = None
    keys_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_name(self.name)
        if not (math.isfinite(self.keys_seconds) and self.keys_seconds > 0):
            raise ValueError(f"{self.name}: keys_seconds must be a number above 0")
        if self.gate is not None and not isinstance(self.gate, FanOut):
            raise ValueError(f"{self.name}: the gate must be a FanOut")


class KeyedGroup:
    """The lanes of a `KeyedFanOut` in this process: as many as there are keys for it."""

    def __init__(
        self, keyed: KeyedFanOut, gate: FanOutGroup | None, deps: Dependencies, around: Surroundings
    ) -> None:
        self._keyed = keyed
        self._gate = gate
        self._deps = deps
        self._around = around
        self._lanes: dict[str, Lane] = {}
        self._ending: dict[str, Lane] = {}
        self._led: set[str] = set()
        self._hashes: dict[str, int] = {}
        self._look = asyncio.Event()
        self._keys = KeySet(keyed.name, keyed.keys, keyed.keys_seconds, around, self._look.set)
        if gate is not None:
            gate.watch(self._look.set)
        self._following = asyncio.create_task(self._follow(), name=f"drakkar lanes of {keyed.name}")

    def stop(self) -> None:
        self._keys.stop()
        self._following.cancel()
        for lane in (*self._lanes.values(), *self._ending.values()):
            lane.stop()

    async def ended(self) -> None:
        await self._keys.ended()
        await asyncio.wait({self._following})
        for lane in (*self._lanes.values(), *self._ending.values()):
            await lane.ended()

    def reports(self) -> Sequence[LaneReport]:
        lanes = {**self._ending, **self._lanes}
        return [lanes[key].report() for key in sorted(lanes)]

    def unstopped(self) -> Sequence[str]:
        lanes = {**self._ending, **self._lanes}
        return [f"{self._keyed.name}/{key}" for key, lane in sorted(lanes.items()) if lane.unstopped]

    def step_down(self, lease: str, cool_down_seconds: float) -> bool:
        return any(lane.step_down(lease, cool_down_seconds) for lane in self._lanes.values())

    async def _follow(self) -> None:
        """Keep a lane for each key that is ours, and end those of keys that no longer are.

        A key that is ours again before its old run has ended gets its new lane after that.
        """
        while True:
            await self._look.wait()
            self._look.clear()
            wanted = self._ours()
            for key in self._lanes.keys() - wanted:
                lane = self._ending[key] = self._lanes.pop(key)
                lane.retire()
            for key in [key for key, lane in self._ending.items() if lane.over]:
                del self._ending[key]
            for key in sorted(wanted - self._lanes.keys() - self._ending.keys()):
                self._lanes[key] = self._make_lane(key)

    def _ours(self) -> frozenset[str]:
        keys = self._keys.current
        if self._gate is None:
            return keys
        self._hashes = {key: self._hashes.get(key) or fnv32a(key) for key in keys}
        shards, held = self._gate.shards, self._gate.held_shards()
        return frozenset(key for key, number in self._hashes.items() if number % shards in held)

    def _make_lane(self, key: str) -> Lane:
        return Lane(
            self._keyed.name,
            key,
            lease_of(self._keyed.name, key),
            partial(self._keyed.build_item, self._deps, key),
            self._around,
            lambda leading: self._leads(key, leading),
            on_over=self._look.set,
        )

    def _leads(self, key: str, leading: bool) -> None:
        if leading:
            self._led.add(key)
        else:
            self._led.discard(key)
        self._deps.emit_leader(self._keyed.name, bool(self._led))
