"""The one place that acquires, renews, loses, abandons and releases leases.

A backend stores; the keeper decides, by the arithmetic of `drakkar.leases.deadline` on a clock that counts
suspend. What it must never do: let a run act past its deadline, start a run on a token that an earlier run
had or that was given back, start a run beside one of the same name, give a lease back while its run may
still be at work, or forget a grant whose answer got lost.
"""

import asyncio
import random
from collections.abc import Sequence

from drakkar.calls import CallError, see_through
from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger
from drakkar.leases.backend import MAX_NAME_CHARS, LeaseBackend, LeaseContext, LeaseInfo
from drakkar.leases.calls import LeaseCalls
from drakkar.leases.candidates import AfterRefusal, BeforeAttempt, Candidates
from drakkar.leases.deadline import LeaseTiming, failure_delay
from drakkar.leases.givebacks import GiveBacks
from drakkar.leases.handle import LeaseHandle, LeaseState
from drakkar.leases.holding import Holding
from drakkar.telemetry.metrics import LeaseMetrics
from drakkar.telemetry.outages import MAX_REASONS
from drakkar.telemetry.unfailing import UnfailingLogger


class LeaseKeeper:
    """The leases of one process on one backend, which belongs to the keeper from `start` on."""

    def __init__(
        self,
        backend: LeaseBackend,
        ctx: LeaseContext,
        timing: LeaseTiming,
        *,
        clock: Clock,
        logger: EventLogger,
        metrics: LeaseMetrics,
        local_hint: str = "workers elsewhere do not see these leases",  # what is told of a local backend
    ) -> None:
        logger = UnfailingLogger(logger)
        self._local_hint = local_hint if backend.local else None
        self._timing = timing
        self._clock = clock
        self._logger = logger
        self._metrics = metrics
        self._calls = LeaseCalls(
            backend, ctx, timing.call_seconds, clock=clock, logger=logger, metrics=metrics
        )
        self._holding = Holding(self._calls, timing, clock=clock, logger=logger, metrics=metrics)
        self._givebacks = GiveBacks(self._calls, clock)
        self._candidates = Candidates(
            self._calls, self._givebacks, timing, fenced=backend.fenced, clock=clock, logger=logger
        )
        self._turns: dict[str, asyncio.Event] = {}
        self._runs: dict[str, LeaseHandle] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        self._not_started: str | None = "the lease backend has not started"

    @property
    def problem(self) -> str | None:
        """Why nothing can begin to lead at present; None while the store does what it is asked for. What is
        held already is held until its deadline."""
        return self._not_started or self._calls.problem

    def start(self) -> None:
        """Start the backend and the loops in the background. A backend that cannot start is tried again
        with growing delays, and until then nothing leads."""
        if self._loops or self._stopping is not None:
            raise RuntimeError("a keeper is started once; make a new one")
        for loop in (self._start_backend, self._holding.renew_forever, self._holding.watch_forever):
            self._loops.append(asyncio.create_task(loop(), name=f"drakkar leases {loop.__name__}"))

    def drain(self) -> None:
        """Ask for no lease from now on: `acquire` waits until it is cancelled, and what one that is under
        way is granted is given back."""
        self._candidates.end()
        self._givebacks.end_acquiring()

    async def stop(self) -> None:
        """End the loops, finish giving back within one call's time, stop the backend.

        To be called when all runs have ended or are abandoned: leases that are still held become abandoned,
        and run out in the store. Bounded. May be called again; every call returns when the one stop has
        ended. A cancellation is passed on after that, never in the middle.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="drakkar leases stop")
        await see_through(self._stopping)

    async def acquire(
        self,
        name: str,
        before_attempt: BeforeAttempt | None = None,
        after_refusal: AfterRefusal | None = None,
    ) -> LeaseHandle:
        """Wait until the lease is ours. `before_attempt` is awaited each time before the store is asked,
        `after_refusal` called when it has said that somebody else has the lease.

        Every handle must be given to `release` when its run has ended, however the lease ended: until then
        the name is taken in this process, and further calls for it wait. Raises `ValueError` for a name that
        cannot be one, and whatever these two raise.

        A cancellation leaves nothing behind: what the store may have granted meanwhile is given back in the
        background. Await it directly, under `asyncio.timeout` if need be: a handle that is lost on its way
        to the caller (as `asyncio.wait_for` does) is renewed for ever.
        """
        _check_name(name)
        while (turn := self._turns.get(name)) is not None:
            await turn.wait()
        self._turns[name] = asyncio.Event()
        try:
            handle = self._runs[name] = await self._candidates.win(name, before_attempt, after_refusal)
        except BaseException:
            self._end_turn(name)
            raise
        self._holding.add(handle)
        return handle

    async def release(self, handle: LeaseHandle) -> None:
        """Give the lease back; to be called when its run has ended, also after a loss or `abandon`.

        Waits for the store as long as one call may take, and goes on trying in the background after that,
        until the store answers. May be repeated.
        """
        self._holding.remove(handle)
        self._givebacks.start(handle.name, handle.token)
        if self._runs.get(handle.name) is handle:
            del self._runs[handle.name]
            self._end_turn(handle.name)
        if handle.end(LeaseState.RELEASED):
            self._logger.info("lease_released", name=handle.name, token=handle.token)
        await self._givebacks.done(handle.name, handle.token, self._timing.call_seconds)

    def abandon(self, handle: LeaseHandle) -> None:
        """Stop renewing a lease whose run would not end. It is given back when it has run out in any case,
        for a store-side lease that siblings share may stay alive; or by `release` when the run did end.
        Until then this process does not take the name."""
        if handle.state in (LeaseState.HELD, LeaseState.LOST):
            self._givebacks.start(handle.name, handle.token, not_before=handle.free_at)
            self._abandon(handle)

    def held(self) -> Sequence[LeaseHandle]:
        """The leases that are held at this moment, by name."""
        return self._holding.handles()

    async def list(self) -> Sequence[LeaseInfo]:
        """Every lease of the fleet, from the store. Raises `CallError` when it does not answer."""
        if self._not_started is not None:
            raise CallError(self._not_started)
        return await self._calls.list()

    def _end_turn(self, name: str) -> None:
        self._turns.pop(name).set()

    def _abandon(self, handle: LeaseHandle) -> None:
        self._holding.remove(handle)
        if handle.end(LeaseState.ABANDONED):
            self._metrics.abandoned.inc()
            self._logger.error("lease_abandoned", name=handle.name, token=handle.token)

    async def _start_backend(self) -> None:
        failures, began, reasons = 0, self._clock.elapsed(), set[str]()
        while True:
            try:
                await self._calls.start()
                break
            except CallError as error:
                failures += 1
                reason = str(error)
                if isinstance(error.cause, ValueError):  # the way to refuse options: its text is for the user
                    reason = reason.removeprefix(f"{type(error.cause).__name__}: ")
                self._not_started = reason
                is_new = reason not in reasons and len(reasons) < MAX_REASONS
                if is_new or failures & (failures - 1) == 0:  # the 1st, 2nd, 4th ...: no flood of lines
                    reasons.add(reason)
                    self._logger.error("lease_backend_start_failed", error=reason, failures=failures)
                await self._clock.sleep(failure_delay(failures, random.random()))  # noqa: S311
        self._not_started = None
        if failures:
            after = round(self._clock.elapsed() - began, 3)
            self._logger.info("lease_backend_started", after_seconds=after, failures=failures)
        self._candidates.begin()
        if self._local_hint is not None:
            self._logger.warning("lease_scope_local", hint=self._local_hint)

    async def _stop(self) -> None:
        self.drain()
        for task in self._loops:
            task.cancel()
        for handle in self._runs.values():
            self._abandon(handle)
        self._candidates.settle_doubts()
        await self._givebacks.stop(self._timing.call_seconds)
        if self._loops:
            await asyncio.wait(self._loops)
        await self._candidates.stop()
        try:
            await self._calls.stop()
        except CallError as error:
            self._logger.warning("lease_backend_stop_failed", error=str(error))


def _check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME_CHARS:
        raise ValueError(f"a lease name has 1 to {MAX_NAME_CHARS} characters, not {len(name)}")
    name.encode()  # refuses what no store could be sent
