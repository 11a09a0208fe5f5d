"""All background workers of one process: started together, independent of each other, stopped together."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from drakkar.supervisor.chosen import Supervised, check_together
from drakkar.supervisor.events import LeaderEvent, LeaderEvents
from drakkar.supervisor.fanout import FanOut, FanOutGroup
from drakkar.supervisor.history import HistoryEvent
from drakkar.supervisor.keyed import KeyedFanOut, KeyedGroup
from drakkar.supervisor.lag import watch_lag
from drakkar.supervisor.single import Group, SingleLane
from drakkar.supervisor.surroundings import LaneReport, Surroundings
from drakkar.supervisor.worker import BackgroundWorker, Dependencies
from drakkar.telemetry.unfailing import UnfailingLogger


class Supervisor:
    """Runs `workers` from `start` to `stop`, each called once.

    `on_change` is called whenever what `features` returns may have changed. Raises `ConfigError` when two
    have one name or a gate is not among them.
    """

    def __init__(
        self,
        workers: Iterable[Supervised],
        deps: Dependencies,
        around: Surroundings,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self._workers = list(workers)
        check_together(self._workers)
        self._around = around
        self._on_change = on_change
        self._events = LeaderEvents(around.clock, around.metrics, around.history, on_change)
        self._deps = replace(deps, emit_leader=self._events.emit)
        self._groups: dict[str, Group] = {}
        self._lag: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; nothing waits for the store."""
        logger = UnfailingLogger(self._around.logger)
        self._lag = asyncio.create_task(
            watch_lag(self._around.clock, logger, lambda: self._events.leader_for), name="drakkar lag"
        )
        fan_outs: dict[str, FanOutGroup] = {}
        for worker in self._workers:
            if isinstance(worker, FanOut):
                group = FanOutGroup(worker, self._deps, self._around, self._on_change)
                self._groups[worker.name] = fan_outs[worker.name] = group
        for worker in self._workers:
            if isinstance(worker, KeyedFanOut):
                gate = None if worker.gate is None else fan_outs[worker.gate.name]
                self._groups[worker.name] = KeyedGroup(worker, gate, self._deps, self._around)
            elif isinstance(worker, BackgroundWorker):
                self._groups[worker.name] = SingleLane(worker, self._deps, self._around)

    async def stop(self) -> Sequence[str]:
        """End every run and give back every lease; return the names of what would not end.

        Takes `stop_timeout_seconds` and one call of the lease backend, however many lanes there are. Returns
        at once when nothing was started. After a cancellation, which leaves the end under way, it may be
        called again.
        """
        for group in self._groups.values():
            group.stop()
        if self._lag is not None:
            self._lag.cancel()
            await asyncio.wait({self._lag})
        for group in self._groups.values():
            await group.ended()
        self._events.close()
        return [name for group in self._groups.values() for name in group.unstopped()]

    def leader_events(self) -> AsyncIterator[LeaderEvent]:
        """What this process begins and ceases to lead, from now on; ends when the supervisor has ended. A
        slow reader loses the oldest events."""
        return self._events.stream()

    def features(self) -> dict[str, Any]:
        """What the worker's card tells of the background workers."""
        return {
            "leader_for": self._events.leader_for,
            "workers": sorted(worker.name for worker in self._workers),
            "fanouts": {
                name: group.feature()
                for name, group in sorted(self._groups.items())
                if isinstance(group, FanOutGroup)
            },
        }

    def reports(self) -> dict[str, Sequence[LaneReport]]:
        """The lanes of each background worker, by its name."""
        return {name: self._groups[name].reports() for name in sorted(self._groups)}

    def single(self) -> dict[str, bool]:
        """Of each background worker, by its name, whether it is one lane and no fan-out."""
        return {worker.name: isinstance(worker, BackgroundWorker) for worker in self._workers}

    def problem(self) -> str | None:
        """Why a fan-out takes nothing here although the leases work; None when there is no such reason."""
        found = (group.problem() for group in self._groups.values() if isinstance(group, FanOutGroup))
        return next((problem for problem in found if problem is not None), None)

    def history(self) -> Sequence[HistoryEvent]:
        """The last leader changes and crashes, oldest first."""
        return self._around.history.events()

    def held_shards(self, name: str) -> frozenset[int]:
        """The shards of the fan-out `name` that this process works on; empty when it is no fan-out here."""
        group = self._groups.get(name)
        return group.held_shards() if isinstance(group, FanOutGroup) else frozenset()

    def step_down(self, lease: str, cool_down_seconds: float) -> bool:
        """Have the run under `lease` yield, and not ask for the lease again for a while. Tell whether this
        process has a run under it."""
        return any(group.step_down(lease, cool_down_seconds) for group in self._groups.values())
