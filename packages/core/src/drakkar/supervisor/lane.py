"""One lane: the lease of one name and the runs under it, one after the other, until the supervisor stops.

A plain background worker is one lane, a fan-out one for each shard. The order within a lane is what safety
hangs on: acquire, build, run; cancel, await the end, release; and only then wait or begin again.
"""

import asyncio
import math
from collections.abc import Callable

from drakkar.errors import LeaseLost
from drakkar.leases.candidates import AfterRefusal, BeforeAttempt
from drakkar.leases.handle import LeaseHandle
from drakkar.supervisor.acquire import acquire
from drakkar.supervisor.backoff import Backoff, courtesy
from drakkar.supervisor.run import Run
from drakkar.supervisor.status import Status
from drakkar.supervisor.surroundings import LaneReport, Surroundings
from drakkar.supervisor.waking import Wake
from drakkar.supervisor.worker import Runner


class Lane:
    """Runs `build()` again and again: under `lease`, or without one for None. Begins to live at once.

    `leads` is called with True when a run begins and with False when it has ended or its lease is lost;
    `before_attempt` is awaited each time before the lease is asked for, `after_refusal` called when another
    has it; `on_backoff` is called when `backing_off` changes, `on_over` when `over` turns true. `label` is
    the shard's in the metrics.
    """

    def __init__(
        self,
        name: str,
        shard: str,
        lease: str | None,
        build: Callable[[], Runner],
        around: Surroundings,
        leads: Callable[[bool], None],
        *,
        label: str = "-",
        before_attempt: BeforeAttempt | None = None,
        after_refusal: AfterRefusal | None = None,
        on_backoff: Callable[[], None] | None = None,
        on_over: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self._lease = lease
        self._build = build
        self._around = around
        self._leads = leads
        self._before_attempt = before_attempt
        self._after_refusal = after_refusal
        self._on_backoff = on_backoff
        self._on_over = on_over
        self._status = Status(name, shard, lease, label, around)
        self._backoff = Backoff()
        self._wake = Wake(around.clock)
        self._leaving = False
        self._stopping = False
        self._yield_asked = False
        self._leading = False
        self._run: Run | None = None
        self._handle: LeaseHandle | None = None
        self._cool_until = -math.inf
        self._task = asyncio.create_task(self._live(), name=f"drakkar lane {name} {shard}")
        self._task.add_done_callback(self._done)

    @property
    def backing_off(self) -> bool:
        return self._status.restart_at is not None

    @property
    def yielding(self) -> bool:
        """Whether there is a run that was asked to yield."""
        return self._yield_asked and self._run is not None

    @property
    def unstopped(self) -> bool:
        """Whether the lane has ended and its run has not."""
        return self._task.done() and self._run is not None and not self._run.finished

    @property
    def over(self) -> bool:
        """Whether the lane has ended and nothing of its last run is left."""
        return self._task.done() and not self.unstopped

    def retire(self) -> None:
        """Begin to end: acquire nothing more, cancel the run. The lane is over when the run has ended,
        however long that takes."""
        self._leaving = True
        self._wake.ring()

    def stop(self) -> None:
        """Like `retire`, but do not wait for a run longer than `stop_timeout_seconds`."""
        self._stopping = True
        self.retire()

    def ask_to_yield(self) -> None:
        """Have the run return at its next good point, cancelled after `stop_timeout_seconds`, and give the
        lease back. Neither counts as a crash nor waits. Does nothing when there is no run."""
        if self._run is not None:
            self._yield_asked = True
            self._run.yielding.set()
            self._wake.ring()

    def step_down(self, lease: str, cool_down_seconds: float) -> bool:
        """If there is a run under `lease`, have it yield; tell whether there is one.

        For `cool_down_seconds` the lease is left to others, but not to nobody: each time that it may be free
        they have as long as `courtesy` says before it is asked for.
        """
        if lease != self._lease or self._run is None:
            return False
        self._cool_until = self._around.clock.elapsed() + cool_down_seconds
        self.ask_to_yield()
        return True

    async def ended(self) -> None:
        """Return when the lane has ended after `stop`: its run had `stop_timeout_seconds` to end, and its
        lease the time of one call to be given back."""
        await asyncio.wait({self._task})

    def report(self) -> LaneReport:
        return self._status.report(self._handle, self._backoff)

    async def _live(self) -> None:
        clock = self._around.clock
        while not self._leaving:
            try:
                await self._once()
            except Exception as error:  # noqa: BLE001  a lane that died would never lead again, unnoticed
                self._status.broken(error)
                self._restart_after(self._backoff.ended(0.0))
            if self._status.restart_at is not None:
                self._status.be("backing_off")
                await self._wake.until(lambda: self._leaving, self._status.restart_at - clock.elapsed())
                self._restart_after(0.0)

    async def _once(self) -> None:
        """Acquire, run once, release."""
        self._status.be("waiting")
        if self._lease is not None:
            self._handle = await acquire(
                self._around.keeper,
                self._lease,
                self._until_welcome,
                self._after_refusal,
                lambda: self._leaving,
                self._wake,
            )
            if self._handle is None:
                return
        try:
            await self._run_once(self._handle)
        finally:
            await self._let_go()

    async def _until_welcome(self) -> None:
        if (left := self._cool_until - self._around.clock.elapsed()) > 0:
            await self._around.clock.sleep(courtesy(left))
        if self._before_attempt is not None:
            await self._before_attempt()

    async def _run_once(self, handle: LeaseHandle | None) -> None:
        if handle is not None and handle.lost:
            return  # the event loop was held up since the grant
        clock = self._around.clock
        began = clock.elapsed()
        self._yield_asked = False
        self._run = run = Run(self._name, self._build, handle, self._around.logger, self._run_changed)
        self._status.be("running" if handle is None else "leading")
        self._lead(True)
        await self._until_to_end(run, handle)
        ran_seconds = clock.elapsed() - began
        lost = handle is not None and handle.lost  # also when only the run has noticed yet
        from_outside = lost or not run.ending
        if lost:
            self._lead(False)
        if not run.finished:
            await self._end(run)
        self._lead(False)
        self._judge(run, from_outside, ran_seconds)

    async def _until_to_end(self, run: Run, handle: LeaseHandle | None) -> None:
        """Return when the run is ending by itself, or has to."""
        losing = None
        if handle is not None:
            losing = asyncio.create_task(handle.wait_lost(), name=f"drakkar loss of {handle.name}")
            losing.add_done_callback(lambda _: self._wake.ring())

        def must_end() -> bool:
            return run.ending or self._leaving or (handle is not None and handle.lost)

        try:
            await self._wake.until(lambda: must_end() or self._yield_asked)
            if self._yield_asked:
                await self._wake.until(must_end, self._around.stop_timeout_seconds)
        finally:
            if losing is not None:
                losing.cancel()
                await asyncio.wait({losing})

    async def _end(self, run: Run) -> None:
        """Cancel the run and wait for it. One that would not end is given up, and waited for all the same."""
        grace = self._around.stop_timeout_seconds
        self._status.be("stopping")
        run.end()
        await self._wake.until(lambda: run.finished, grace)
        if not run.finished:
            self._status.be("stuck")
            self._status.would_not_end(grace)
            if self._handle is not None:
                self._around.keeper.abandon(self._handle)
            self._lead(False)
            await self._wake.until(lambda: run.finished or self._stopping)

    def _judge(self, run: Run, from_outside: bool, ran_seconds: float) -> None:
        """What the end of a run means, and when the next may start."""
        crash = run.crash
        if from_outside and isinstance(crash, LeaseLost):
            crash = None  # the run has noticed, as it should
        if crash is not None:
            self._status.crashed(crash, counts=not from_outside)
        if from_outside or (crash is None and self._yield_asked):
            self._backoff.lasted(ran_seconds)
            return
        if crash is None:
            self._status.returned()
        self._restart_after(self._backoff.ended(ran_seconds))

    async def _let_go(self) -> None:
        """Give the lease back if its run has ended, else leave it to run out."""
        handle, run = self._handle, self._run
        if run is None or run.finished:
            self._handle = self._run = None
            if handle is not None:
                self._status.be("releasing")
                await self._around.keeper.release(handle)
        else:
            run.end()
            self._lead(False)
            if handle is not None:
                self._around.keeper.abandon(handle)

    def _restart_after(self, seconds: float) -> None:
        was = self.backing_off
        self._status.restart_at = self._around.clock.elapsed() + seconds if seconds > 0 else None
        if self.backing_off != was and self._on_backoff is not None:
            self._call(self._on_backoff)

    def _lead(self, leading: bool) -> None:
        if leading != self._leading:
            self._leading = leading
            self._call(lambda: self._leads(leading))

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001  what others make of the news must not cost the run
            self._status.broken(error)

    def _run_changed(self) -> None:
        self._wake.ring()
        self._look_whether_over()

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._status.broken(RuntimeError("the lane was cancelled by somebody else"))
        self._status.be("stuck" if self.unstopped else "stopped")
        self._look_whether_over()

    def _look_whether_over(self) -> None:
        if self.over:
            self._status.be("stopped")
            if self._on_over is not None:
                self._on_over()
