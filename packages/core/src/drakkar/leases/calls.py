"""One call to a lease backend: within its time, counted, and its answer looked at before it is believed.

A backend is other people's code. It may hang, raise anything, ignore its cancellation, or answer nonsense.
All of that reaches the keeper as a `CallError`, which means "unknown".
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, TypeVar

from drakkar.calls import CallError, bounded, wait_ended
from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger
from drakkar.leases.answers import sound_answer, sound_renewal, sound_rows
from drakkar.leases.backend import Held, Lease, LeaseBackend, LeaseContext, LeaseInfo, Renewal
from drakkar.telemetry.metrics import LeaseMetrics
from drakkar.telemetry.outages import Outage

_T = TypeVar("_T")

WAIT_SLACK_SECONDS: Final = 5.0
"""How much longer than it was asked to a `wait` may take."""

_LEADING: Final = ("acquire", "renew", "wait")
"""What must work for anybody to lead; that a listing fails harms nobody."""


class LeaseCalls:
    """The methods of one backend, each within `call_seconds` by `clock`. All raise `CallError`."""

    def __init__(
        self,
        backend: LeaseBackend,
        ctx: LeaseContext,
        call_seconds: float,
        *,
        clock: Clock,
        logger: EventLogger,
        metrics: LeaseMetrics,
    ) -> None:
        self._backend = backend
        self._ctx = ctx
        self._call_seconds = call_seconds
        self._clock = clock
        self._logger = logger
        self._metrics = metrics
        self._running: set[tuple[str, str]] = set()
        self._listing = asyncio.Lock()
        self._outages: dict[str, Outage] = {}
        self._errors: dict[str, str] = {}

    @property
    def problem(self) -> str | None:
        """Why no lease can be had or kept at present; None while the store does what it is asked for."""
        failing = next((op for op in _LEADING if op in self._errors), None)
        return None if failing is None else f"{failing}: {self._errors[failing]}"

    async def start(self) -> None:
        await self._call("start", lambda: self._backend.start(self._ctx))

    async def acquire(self, name: str) -> Lease | Held:
        async def call() -> Lease | Held:
            return sound_answer(await self._backend.acquire(name), name, self._ctx)

        return await self._call("acquire", call, name=name)

    async def renew(self, leases: Sequence[Lease], limit_seconds: float) -> Renewal:
        async def call() -> Renewal:
            return sound_renewal(await self._backend.renew(leases), self._ctx)

        with self._metrics.renew_duration_seconds.time():
            return await self._call("renew", call, limit_seconds)

    async def release(self, name: str, token: int | None) -> None:
        await self._call("release", lambda: self._backend.release(name, token), name=name)

    async def wait(self, names: frozenset[str], timeout_seconds: float) -> frozenset[str]:
        async def call() -> frozenset[str]:
            return names.intersection(await self._backend.wait(names, timeout_seconds))

        return await self._call("wait", call, timeout_seconds + WAIT_SLACK_SECONDS)

    async def list(self) -> Sequence[LeaseInfo]:
        async def call() -> Sequence[LeaseInfo]:
            return sound_rows(await self._backend.list())

        return await self._call("list", call, turn=self._listing)

    async def stop(self) -> None:
        await self._call("stop", self._backend.stop)

    async def _call(
        self,
        op: str,
        call: Callable[[], Awaitable[_T]],
        limit_seconds: float | None = None,
        name: str = "",
        turn: AbstractAsyncContextManager[object] = nullcontext(),  # noqa: B008  has no state
    ) -> _T:
        """`name` is that of the lease, for what is asked of one. No two calls of a kind run at once for one
        lease, even when the first ignores that it was cancelled. `turn` is waited for within the limit."""

        async def tracked() -> _T:
            async with turn:
                if (op, name) in self._running:
                    raise CallError("an earlier call was cancelled and has not ended")
                self._running.add((op, name))
                try:
                    return await call()
                finally:
                    self._running.discard((op, name))

        try:
            result = await self._bounded(
                tracked, self._call_seconds if limit_seconds is None else limit_seconds
            )
        except CallError as error:
            self._metrics.errors.labels(op).inc()
            self._failed(op, error)
            raise
        self._worked(op)
        return result

    async def _bounded(self, call: Callable[[], Awaitable[_T]], limit_seconds: float) -> _T:
        task = asyncio.create_task(bounded(call, math.inf))
        task.add_done_callback(_see)
        try:
            await wait_ended([task], limit_seconds, self._clock)
        finally:
            in_time = task.done()
            if not in_time:
                task.cancel()
                await asyncio.wait({task})  # short: `bounded` leaves alone what ignores its cancellation
        if not in_time:
            raise CallError(f"no answer within {limit_seconds:g} s")
        return task.result()

    def _failed(self, op: str, error: CallError) -> None:
        if op in ("start", "stop"):
            return  # the keeper tells of these
        reason = self._errors[op] = str(error)
        suppressed = self._outages.setdefault(op, Outage()).failed(self._clock.elapsed(), reason)
        if suppressed is not None:
            self._logger.warning("lease_call_failed", op=op, error=reason, suppressed=suppressed)

    def _worked(self, op: str) -> None:
        if op in ("acquire", "renew"):
            self._errors.clear()  # what failed before it need not be asked again
        else:
            self._errors.pop(op, None)
        outage = self._outages.get(op)
        if outage is None:
            return
        after = outage.recovered(self._clock.elapsed())
        if after is not None:
            self._logger.info("lease_call_recovered", op=op, after_seconds=after)


def _see(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # nobody may be left to look at it, and the event loop would complain
