"""Telling without risk."""

import contextlib
from typing import Any

from drakkar.fleet.provider import EventLogger


class UnfailingLogger:
    """Passes every event on and lets nothing out: a full disk below the log must cost no lease."""

    def __init__(self, logger: EventLogger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: Any) -> None:
        with contextlib.suppress(Exception):
            self._logger.debug(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        with contextlib.suppress(Exception):
            self._logger.info(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        with contextlib.suppress(Exception):
            self._logger.warning(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        with contextlib.suppress(Exception):
            self._logger.error(event, **fields)
