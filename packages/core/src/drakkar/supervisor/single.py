"""A plain background worker: one lane."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from drakkar.supervisor.lane import Lane
from drakkar.supervisor.surroundings import LaneReport, Surroundings
from drakkar.supervisor.worker import BackgroundWorker, Dependencies


class Group(Protocol):
    """The lanes of one background worker in this process."""

    def stop(self) -> None:
        """Begin to end; returns at once."""

    async def ended(self) -> None:
        """Return when all lanes have ended; in bounded time after `stop`."""

    def reports(self) -> Sequence[LaneReport]: ...

    def unstopped(self) -> Sequence[str]:
        """Names for the log of the runs that would not end."""

    def step_down(self, lease: str, cool_down_seconds: float) -> bool:
        """Have the run under `lease` yield, if it is one of ours."""


class SingleLane:
    """The `Group` of a `BackgroundWorker`."""

    def __init__(self, worker: BackgroundWorker, deps: Dependencies, around: Surroundings) -> None:
        self._name = worker.name
        self._tell = deps.emit_leader
        self._said: set[str] = set()
        if worker.skip_lease:
            deps = replace(deps, emit_leader=self._emit)
        self._lane = Lane(
            worker.name,
            "-",
            None if worker.skip_lease else f"{worker.name}-leader",
            lambda: worker.build(deps),
            around,
            self._begins_or_ends if worker.skip_lease else self._leads,
        )

    def stop(self) -> None:
        self._lane.stop()

    async def ended(self) -> None:
        await self._lane.ended()

    def reports(self) -> Sequence[LaneReport]:
        return [self._lane.report()]

    def unstopped(self) -> Sequence[str]:
        return [self._name] if self._lane.unstopped else []

    def step_down(self, lease: str, cool_down_seconds: float) -> bool:
        return self._lane.step_down(lease, cool_down_seconds)

    def _leads(self, leading: bool) -> None:
        self._tell(self._name, leading)

    def _emit(self, name: str, leading: bool) -> None:
        """What a runner with leases of its own says."""
        self._tell(name, leading)
        if leading:
            self._said.add(name)
        else:
            self._said.discard(name)

    def _begins_or_ends(self, running: bool) -> None:
        """A runner that crashed cannot say any more that it does not lead."""
        if not running:
            for name in sorted(self._said):
                self._emit(name, False)
