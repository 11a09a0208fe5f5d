"""The leases that runs of this process work under: all renewed at once, each lost when it must be.

The one renewal loop, and the one that looks at deadlines. Both go on whatever happens in them: a loop that
died would cost every lease, without a word.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from drakkar.calls import CallError
from drakkar.clock import SHORTEST_SECONDS, Clock
from drakkar.errors import describe
from drakkar.fleet.provider import EventLogger
from drakkar.leases.backend import Lease
from drakkar.leases.calls import LeaseCalls
from drakkar.leases.deadline import LeaseTiming, failure_delay
from drakkar.leases.handle import LeaseHandle, LeaseState
from drakkar.telemetry.metrics import LeaseMetrics

LOOK_SECONDS: Final = 1.0
"""How often the clock is looked at, at least: timers stand still while the host is suspended."""


class Holding:
    """The held leases by name. Whoever adds a handle removes it, unless it is lost before."""

    def __init__(
        self,
        calls: LeaseCalls,
        timing: LeaseTiming,
        *,
        clock: Clock,
        logger: EventLogger,
        metrics: LeaseMetrics,
    ) -> None:
        self._calls = calls
        self._timing = timing
        self._clock = clock
        self._logger = logger
        self._metrics = metrics
        self._held: dict[str, LeaseHandle] = {}
        self._failures = 0
        self._added_for_renewal = asyncio.Event()
        self._added_for_deadline = asyncio.Event()

    def add(self, handle: LeaseHandle) -> None:
        self._held[handle.name] = handle
        self._added_for_renewal.set()
        self._added_for_deadline.set()
        self._metrics.held(handle.name)

    def remove(self, handle: LeaseHandle) -> None:
        """Stop renewing `handle`; answers about it are ignored from now on. May be repeated."""
        if self._held.get(handle.name) is handle:
            del self._held[handle.name]
            self._metrics.ended(handle.name)

    def handles(self) -> list[LeaseHandle]:
        """What is held at this moment, by name."""
        return [handle for _, handle in sorted(self._held.items()) if not handle.lost]

    async def renew_forever(self) -> None:
        await self._forever(self._renew_when_due)

    async def watch_forever(self) -> None:
        await self._forever(self._lose_when_due)

    async def _forever(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except Exception as error:  # whatever it is, the leases must still be looked at
                self._logger.error("lease_loop_failed", error=describe(error), exc_info=error)
                await self._clock.sleep(LOOK_SECONDS)

    async def _renew_when_due(self) -> None:
        began, chance = self._clock.elapsed(), random.random()  # noqa: S311  no secret
        left = self._delay(chance)
        while left > 0:  # at least once: a loop that never waits would leave nothing to any other
            self._added_for_renewal.clear()
            await self._clock.wait(self._added_for_renewal, min(max(left, SHORTEST_SECONDS), LOOK_SECONDS))
            left = began + self._delay(chance) - self._clock.elapsed()
        self._lose_overdue()
        self._failures += 1
        if not self._held or await self._renew():
            self._failures = 0

    def _delay(self, chance: float) -> float:
        """From the end of one renewal to the next, for the lease that was granted for the shortest time."""
        period = self._effective().period_seconds
        return min(period, failure_delay(self._failures, chance)) if self._failures else period

    def _effective(self) -> LeaseTiming:
        return self._timing.within(
            min((handle.ttl_seconds for handle in self._held.values()), default=self._timing.ttl_seconds)
        )

    async def _renew(self) -> bool:
        """Renew all; tell whether the fate of each is known."""
        asked = dict(self._held)
        sent_at = self._clock.elapsed()
        try:
            renewal = await self._calls.renew(
                [handle.lease for handle in asked.values()], self._effective().call_seconds
            )
        except CallError:
            return False
        for lease in renewal.lost:
            if (handle := self._asked_for(lease, asked)) is not None:
                self._lose(handle, "the store says that it is not ours any more")
        for lease in renewal.kept:
            if (handle := self._asked_for(lease, asked)) is not None and handle.renewed(
                sent_at, lease.ttl_seconds
            ):
                del asked[lease.name]
        self._lose_overdue()
        return not any(self._held.get(name) is handle for name, handle in asked.items())

    def _asked_for(self, lease: Lease, asked: Mapping[str, LeaseHandle]) -> LeaseHandle | None:
        """The handle that an answer is about; None if it was released, lost or replaced meanwhile."""
        handle = asked.get(lease.name)
        if handle is None or self._held.get(lease.name) is not handle or lease.token != handle.token:
            return None
        return handle

    async def _lose_when_due(self) -> None:
        self._added_for_deadline.clear()
        self._lose_overdue()
        soonest = min((handle.deadline for handle in self._held.values()), default=float("inf"))
        left = max(0.0, soonest - self._clock.elapsed())
        await self._clock.wait(self._added_for_deadline, min(LOOK_SECONDS, left))

    def _lose_overdue(self) -> None:
        for handle in [handle for handle in self._held.values() if handle.lost]:
            self._lose(handle, "it was not renewed in time")

    def _lose(self, handle: LeaseHandle, reason: str) -> None:
        handle.end(LeaseState.LOST)
        self.remove(handle)
        self._metrics.lost.inc()
        self._logger.warning("lease_lost", name=handle.name, token=handle.token, reason=reason)
