"""A background worker split into shards, each led by one process of the fleet.

How the shards spread over the processes is the matter of `drakkar.supervisor.balance`; which process leads a
shard is decided by its lease alone.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from drakkar.supervisor.balance import Balance
from drakkar.supervisor.crash import describe_crash
from drakkar.supervisor.lane import Lane
from drakkar.supervisor.peers import MAX_SHARDS
from drakkar.supervisor.surroundings import LaneReport, Surroundings
from drakkar.supervisor.worker import Dependencies, Runner, check_name
from drakkar.telemetry.unfailing import UnfailingLogger


@dataclass(frozen=True, slots=True)
class FanOut:
    """Each of the shards 0 to `shards` - 1 has a lease `<name>-leader-<shard>`, and crashes and waits on its
    own. `build_shard` is called for every run of a shard.

    Every worker must be configured with the same number of shards: workers that disagree say so
    (`fanout_shards_disagree`), and one that sees a live peer at work under another number takes none.
    Raises `ValueError` for a number outside of 1 to 1024, and for what cannot be a name.
    """

    name: str
    shards: int
    build_shard: Callable[[Dependencies, int], Runner]

    def __post_init__(self) -> None:
        check_name(self.name)
        if isinstance(self.shards, bool) or not isinstance(self.shards, int):
            raise ValueError(f"{self.name}: the number of shards must be a whole number")
        if not 1 <= self.shards <= MAX_SHARDS:
            raise ValueError(f"{self.name}: {self.shards} shards, but 1 to {MAX_SHARDS} are possible")


class FanOutGroup:
    """The lanes of a `FanOut` in this process, and the sharing with its peers."""

    def __init__(
        self, fan_out: FanOut, deps: Dependencies, around: Surroundings, on_change: Callable[[], None]
    ) -> None:
        self._fan_out = fan_out
        self._deps = deps
        self._around = around
        self._on_change = on_change
        self._logger = UnfailingLogger(around.logger)
        self._held: set[int] = set()
        self._backing_off: set[int] = set()
        self._was_ready = True
        self._watchers: list[Callable[[], None]] = []
        self._balance = Balance(
            fan_out.name,
            fan_out.shards,
            self.held_shards,
            deps.peers,
            around.refresh_seconds,
            around.clock,
            self._logger,
        )
        # In no order that processes have in common: else all would ask for the same shards first.
        lanes = {shard: self._make_lane(shard) for shard in random.sample(range(self.shards), self.shards)}
        self._lanes = [lanes[shard] for shard in range(self.shards)]
        self._sharing = asyncio.create_task(self._share(), name=f"drakkar shares of {fan_out.name}")

    @property
    def shards(self) -> int:
        return self._fan_out.shards

    def held_shards(self) -> frozenset[int]:
        """The shards that this process works on now."""
        return frozenset(self._held)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `held_shards` has changed."""
        self._watchers.append(changed)

    def feature(self) -> dict[str, Any]:
        """What the card says of this fan-out."""
        return {"shards": self.shards, "held": len(self._held), "ready": self._ready()}

    def problem(self) -> str | None:
        """Why no shard is taken here; None when shards are."""
        return self._balance.problem()

    def stop(self) -> None:
        self._sharing.cancel()
        for lane in self._lanes:
            lane.stop()

    async def ended(self) -> None:
        await asyncio.wait({self._sharing})
        for lane in self._lanes:
            await lane.ended()

    def reports(self) -> Sequence[LaneReport]:
        return [lane.report() for lane in self._lanes]

    def unstopped(self) -> Sequence[str]:
        return [f"{self._fan_out.name}/{shard}" for shard, lane in enumerate(self._lanes) if lane.unstopped]

    def step_down(self, lease: str, cool_down_seconds: float) -> bool:
        return any(lane.step_down(lease, cool_down_seconds) for lane in self._lanes)

    def _make_lane(self, shard: int) -> Lane:
        fan_out, deps = self._fan_out, self._deps
        return Lane(
            fan_out.name,
            str(shard),
            f"{fan_out.name}-leader-{shard}",
            lambda: fan_out.build_shard(deps, shard),
            self._around,
            lambda leading: self._leads(shard, leading),
            label=str(shard),
            before_attempt=lambda: self._balance.welcome(shard),
            after_refusal=lambda: self._balance.refused(shard),
            on_backoff=lambda: self._backs_off(shard),
        )

    def _leads(self, shard: int, leading: bool) -> None:
        if leading:
            self._held.add(shard)
            self._balance.took(shard)
        else:
            self._held.discard(shard)
        for changed in self._watchers:
            changed()
        self._deps.emit_leader(self._fan_out.name, bool(self._held))  # a change only of the first and last
        self._tell()

    def _backs_off(self, shard: int) -> None:
        if self._lanes[shard].backing_off:
            self._backing_off.add(shard)
        else:
            self._backing_off.discard(shard)
        if self._ready() != self._was_ready:
            self._tell()

    def _tell(self) -> None:
        self._was_ready = self._ready()
        self._on_change()

    def _ready(self) -> bool:
        """Whether peers should leave shards to this process: not while it crashes on what it takes. One
        shard that crashes, wherever it is, is no reason as long as others may work."""
        failing = len(self._backing_off)
        return failing == 0 or (self.shards > 1 and failing <= max(1, len(self._held)))

    async def _share(self) -> None:
        """Once a refresh, give up what peers should have."""
        while True:
            await self._around.clock.sleep(self._around.refresh_seconds)
            try:
                yielding = {shard for shard in self._held if self._lanes[shard].yielding}
                for shard in self._balance.shed(yielding):
                    self._logger.info("fanout_shard_shed", worker=self._fan_out.name, shard=shard)
                    self._lanes[shard].ask_to_yield()
            except Exception as error:  # noqa: BLE001  without this loop a late worker would never get a shard
                self._logger.error(
                    "fanout_sharing_failed", worker=self._fan_out.name, error=describe_crash(error)
                )
