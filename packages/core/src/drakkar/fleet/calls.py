"""The calls to a provider: bounded, measured, their failures counted and told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeVar

from drakkar.calls import CallError, contained, finish
from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger
from drakkar.telemetry.metrics import RegistryMetrics
from drakkar.telemetry.outages import Outage

_T = TypeVar("_T")

Operation = Literal["publish", "list", "withdraw"]
_FAILED_EVENTS: Final[dict[Operation, str]] = {
    "publish": "fleet_registry_publish_failed",
    "list": "fleet_registry_list_failed",
    "withdraw": "fleet_registry_withdraw_failed",
}


class ProviderCalls:
    """The calls `publish`, `list` and `withdraw`: each under a limit, measured, its failures counted and
    logged at most once a minute. All raise `CallError`."""

    def __init__(self, clock: Clock, logger: EventLogger, metrics: RegistryMetrics) -> None:
        self._clock = clock
        self._logger = logger
        self._metrics = metrics
        self._tasks: dict[Operation, asyncio.Future[Any]] = {}
        self._outages: dict[Operation, Outage] = {}
        self.errors: dict[str, str] = {}
        """Why each operation that fails now failed the last time."""

    async def run(self, op: Operation, call: Callable[[], Awaitable[_T]], limit_seconds: float) -> _T:
        """Like `drakkar.calls.bounded`. While an earlier call of `op` ignores its cancellation a new one is
        refused, so that such calls never pile up."""
        began = self._clock.elapsed()
        try:
            earlier = self._tasks.get(op)
            if earlier is not None and not earlier.done():
                raise CallError("an earlier call was cancelled and has not ended")
            task = asyncio.ensure_future(contained(call))
            self._tasks[op] = task
            result = await finish(task, limit_seconds)
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
        reason = self.errors[op] = str(error)
        suppressed = self._outages.setdefault(op, Outage()).failed(self._clock.elapsed(), reason)
        if suppressed is not None:
            self._logger.warning(_FAILED_EVENTS[op], error=reason, suppressed=suppressed)

    def _log_recovery(self, op: Operation) -> None:
        self.errors.pop(op, None)
        outage = self._outages.get(op)
        if outage is None or outage.since is None:
            return
        failures, after = outage.failures, outage.recovered(self._clock.elapsed())
        if after is not None:
            self._logger.info("fleet_registry_recovered", op=op, after_seconds=after, failures=failures)
