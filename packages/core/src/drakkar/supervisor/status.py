"""What a lane tells of itself: to the log, to the metrics, to people."""

from datetime import datetime

from drakkar.leases.handle import LeaseHandle
from drakkar.supervisor.backoff import HEALTHY_SECONDS, Backoff
from drakkar.supervisor.crash import describe_crash, traceable
from drakkar.supervisor.surroundings import LaneReport, LaneStatus, Surroundings
from drakkar.telemetry.unfailing import UnfailingLogger


class Status:
    """Nothing in here can fail, whatever the lane is told by other people's code."""

    def __init__(self, name: str, shard: str, lease: str | None, label: str, around: Surroundings) -> None:
        self.now: LaneStatus = "waiting"
        self.restart_at: float | None = None
        """When the lane starts again, by the elapsed clock; None unless it backs off."""
        self._name = name
        self._shard = shard
        self._lease = lease
        self._clock = around.clock
        self._logger = UnfailingLogger(around.logger)
        self._crashes = around.metrics.crashes
        self._history = around.history
        self._label = label
        self._since = around.clock.elapsed()
        self._last_error: str | None = None
        self._last_error_at: datetime | None = None

    def be(self, status: LaneStatus) -> None:
        self.now, self._since = status, self._clock.elapsed()

    def returned(self) -> None:
        self._logger.info("worker_returned", worker=self._name, shard=self._shard)

    def crashed(self, error: BaseException, *, counts: bool) -> None:
        """A run ended by raising. It does not count when the run was ended from outside: then it failed
        in its clean-up."""
        self._failed("worker_crashed" if counts else "worker_cleanup_failed", error)
        if counts:
            self._crashes.labels(self._name, self._label).inc()

    def broken(self, error: BaseException) -> None:
        """The lane itself failed, or was cancelled by somebody it does not belong to."""
        self._failed("worker_lane_failed", error)

    def would_not_end(self, after_seconds: float) -> None:
        self._logger.error(
            "worker_stop_timeout", worker=self._name, shard=self._shard, after_seconds=after_seconds
        )

    def report(self, handle: LeaseHandle | None, backoff: Backoff) -> LaneReport:
        now = self._clock.elapsed()
        since_seconds = now - self._since
        healthy = self.now in ("leading", "running") and since_seconds >= HEALTHY_SECONDS
        token = None if handle is None or handle.lost else handle.token
        return LaneReport(
            name=self._name,
            shard=self._shard,
            lease=self._lease,
            status="stopping" if self.now == "leading" and token is None else self.now,  # lost just now
            token=token,
            since_seconds=since_seconds,
            restarts_in_seconds=None if self.restart_at is None else max(0.0, self.restart_at - now),
            attempts=0 if healthy else backoff.attempts,
            last_error=self._last_error,
            last_error_at=self._last_error_at,
        )

    def _failed(self, event: str, error: BaseException) -> None:
        self._last_error, self._last_error_at = describe_crash(error), self._clock.wall()
        self._history.add(
            self._last_error_at, self._name, "crashed", shard=self._shard, error=self._last_error
        )
        self._logger.error(
            event,
            worker=self._name,
            shard=self._shard,
            error=self._last_error,
            exc_info=traceable(error),
        )
