"""What is wrong with the file of a cache, told without flooding the log."""

from drakkar.clock import Clock
from drakkar.errors import describe
from drakkar.fleet.provider import EventLogger
from drakkar.telemetry.outages import Outage


class Trouble:
    """Counts the failures of reading and of writing."""

    def __init__(self, clock: Clock, logger: EventLogger) -> None:
        self.file = ""
        """The file that it is about."""

        self._clock = clock
        self._logger = logger
        self._outages = {"write": Outage(), "read": Outage()}

    def failing(self, op: str) -> bool:
        """Whether `op`, which is `write` or `read`, has failed since it last worked."""
        return self._outages[op].failures > 0

    def failed(self, op: str, error: Exception) -> bool:
        """Whether it was told, as it is at most once a minute for one reason."""
        reason = describe(error)
        suppressed = self._outages[op].failed(self._clock.elapsed(), reason)
        if suppressed is None:
            return False
        self._logger.warning(
            "cache_file_unusable", file=self.file, op=op, error=reason, suppressed=suppressed
        )
        return True

    def recovered(self, op: str) -> None:
        failures = self._outages[op].failures
        lasted = self._outages[op].recovered(self._clock.elapsed())
        if lasted is not None:
            self._logger.info("cache_file_recovered", op=op, after_seconds=lasted, failures=failures)

    def lost(self, rows: int, reason: str) -> None:
        """So many changes are not going to be written; nothing is told of none."""
        if rows:
            self._logger.error("cache_changes_lost", file=self.file, rows=rows, error=reason)
