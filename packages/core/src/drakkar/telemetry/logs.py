"""Logging: every line is an event name and fields, through the standard library's logger `drakkar`.

A program that embeds a worker sees our events in its own logging, as text with `event` and `fields` as
attributes of the record, and decides where they go. `configure_logging` is for our own commands only.

Passwords in the user-info of an address are masked in every field, also in text that a store's client
library has written into its error message.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

import structlog
from structlog.typing import EventDict, WrappedLogger

LogFormat = Literal["auto", "console", "json"]
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_USER_INFO: Final = re.compile(r"(?<=://)[^\s/?#]*@")


def get_logger() -> structlog.stdlib.BoundLogger:
    """The logger of a worker; the embedding program's configuration of structlog does not touch it."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger("drakkar"),
        processors=[structlog.stdlib.filter_by_level, structlog.processors.format_exc_info, _to_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return logger


def configure_logging(level: str, fmt: LogFormat = "auto") -> None:
    """Write all log records to standard error: lines for a person on a terminal, else one JSON object each.

    Raises `ValueError` for a `level` that is none of `LOG_LEVELS`.
    """
    if level not in LOG_LEVELS:
        raise ValueError(f"log level {level!r}: choose one of {', '.join(LOG_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    as_json = fmt == "json" or (fmt == "auto" and not sys.stderr.isatty())
    handler.setFormatter(_JsonFormatter() if as_json else _ConsoleFormatter(colors=sys.stderr.isatty()))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("drakkar").setLevel(level.upper())


def masked(value: Any) -> Any:
    """`value`, with the user-info of every address in a text replaced."""
    return _USER_INFO.sub("***@", value) if isinstance(value, str) else value


def _to_record(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    event = event_dict.pop("event")
    fields = {key: masked(value) for key, value in event_dict.items()}
    text = " ".join([str(event), *(f"{key}={value!r}" for key, value in fields.items())])
    return {"msg": text, "extra": {"event": event, "fields": fields}}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What both formats show; records of other libraries have their message as the event."""
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    head = {"timestamp": moment.replace("+00:00", "Z"), "level": record.levelname.lower()}
    if hasattr(record, "fields"):
        return {**record.fields, **head, "event": getattr(record, "event", "")}
    return {**head, "logger": record.name, "event": masked(record.getMessage())}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), default=repr)


class _ConsoleFormatter(logging.Formatter):
    def __init__(self, colors: bool) -> None:
        super().__init__()
        self._render = structlog.dev.ConsoleRenderer(colors=colors)

    def format(self, record: logging.LogRecord) -> str:
        return str(self._render(None, record.levelname.lower(), _fields(record)))
