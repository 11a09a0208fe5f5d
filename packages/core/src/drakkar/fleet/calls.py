"""One call to a provider: bounded, counted, and never trusted to end.

A provider is other people's code. It may raise anything, cancel itself, hang, or ignore its cancellation;
none of that reaches the caller as more than a `CallError`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger
from drakkar.telemetry.metrics import RegistryMetrics

_T = TypeVar("_T")

LOG_EVERY_SECONDS: Final = 60.0
UNWIND_SECONDS: Final = 1.0
"""How long a call that was cancelled may take to end."""

Operation = Literal["publish", "list", "withdraw"]
_FAILED_EVENTS: Final[dict[Operation, str]] = {
    "publish": "fleet_registry_publish_failed",
    "list": "fleet_registry_list_failed",
    "withdraw": "fleet_registry_withdraw_failed",
}


class CallError(Exception):
    """The call raised, took too long, or was refused because an earlier one has not ended.

    `cause` is what the provider raised, None where it raised nothing.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


async def bounded(call: Callable[[], Awaitable[_T]], limit_seconds: float) -> _T:
    """Return what `call` returns within `limit_seconds`, else raise `CallError`.

    A call that took too long is cancelled and gets `UNWIND_SECONDS` to end; one that goes on all the same is
    left alone. When this function is cancelled, so is the call.
    """
    return await _bounded(asyncio.ensure_future(_contained(call)), limit_seconds)


class ProviderCalls:
    """The calls `publish`, `list` and `withdraw`: each under a limit, measured, its failures counted and
    logged at most once in `LOG_EVERY_SECONDS`."""

    def __init__(self, clock: Clock, logger: EventLogger, metrics: RegistryMetrics) -> None:
        self._clock = clock
        self._logger = logger
        self._metrics = metrics
        self._tasks: dict[Operation, asyncio.Future[Any]] = {}
        self._outages: dict[Operation, _Outage] = {}

    async def run(self, op: Operation, call: Callable[[], Awaitable[_T]], limit_seconds: float) -> _T:
        """Like `bounded`. While an earlier call of `op` ignores its cancellation a new one is refused, so
        that such calls never pile up."""
        began = self._clock.elapsed()
        try:
            earlier = self._tasks.get(op)
            if earlier is not None and not earlier.done():
                raise CallError("an earlier call was cancelled and has not ended")
            task = asyncio.ensure_future(_contained(call))
            self._tasks[op] = task
            result = await _bounded(task, limit_seconds)
        except CallError as error:
            self._metrics.errors.labels(op).inc()
            self._log_failure(op, error)
            raise
        finally:
            self._metrics.duration_seconds.labels(op).observe(max(0.0, self._clock.elapsed() - began))
        self._log_recovery(op)
        return result

    def failing_since(self, op: Operation) -> float | None:
        """The `elapsed` time of the first failure since the last success of `op`; None while it works."""
        outage = self._outages.get(op)
        return None if outage is None else outage.since

    def _log_failure(self, op: Operation, error: CallError) -> None:
        now = self._clock.elapsed()
        outage = self._outages.setdefault(op, _Outage())
        if outage.since is None:
            outage.since = now
        outage.failures += 1
        if outage.logged_at is not None and now - outage.logged_at < LOG_EVERY_SECONDS:
            outage.suppressed += 1
            return
        self._logger.warning(_FAILED_EVENTS[op], error=str(error), suppressed=outage.suppressed)
        outage.logged_at, outage.suppressed, outage.told = now, 0, True

    def _log_recovery(self, op: Operation) -> None:
        outage = self._outages.get(op)
        if outage is None or outage.since is None:
            return
        if outage.told:
            after = round(self._clock.elapsed() - outage.since, 3)
            self._logger.info(
                "fleet_registry_recovered", op=op, after_seconds=after, failures=outage.failures
            )
        outage.since, outage.failures, outage.told = None, 0, False


@dataclass(slots=True)
class _Outage:
    """What is known of the failures of one operation; the time of the last line outlives the outage."""

    since: float | None = None
    failures: int = 0
    told: bool = False
    logged_at: float | None = None
    suppressed: int = 0


async def _contained(call: Callable[[], Awaitable[_T]]) -> _T:
    try:
        return await call()
    except (SystemExit, KeyboardInterrupt) as error:  # out of a task these would end the event loop
        raise CallError(_text(error), error) from error


async def _bounded(task: asyncio.Future[_T], limit_seconds: float) -> _T:
    task.add_done_callback(_consume)
    try:
        await asyncio.wait({task}, timeout=limit_seconds)
    finally:
        in_time = task.done()
        if not in_time:
            task.cancel()
            await asyncio.wait({task}, timeout=UNWIND_SECONDS)
    if not in_time:
        raise CallError(f"no answer within {limit_seconds:g} s")
    if task.cancelled():
        raise CallError("the call cancelled itself")
    error = task.exception()
    if isinstance(error, CallError):
        raise error
    if error is not None:
        raise CallError(_text(error), error)
    return task.result()


def _consume(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # else the loop would report an error that nobody can see any more


def _text(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  an error that cannot be shown is still only an error
        text = ""
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__
