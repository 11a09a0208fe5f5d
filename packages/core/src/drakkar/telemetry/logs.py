"""Logging: every line is an event name and fields, through the standard library's logger `drakkar`.

A program that embeds a worker sees our events in its own logging, as text with `event` and `fields` as
attributes of the record, and decides where they go. `configure_logging` is for our own commands only.

A field may have any value: it becomes plain data, and what JSON does not have is shown as its `repr`.
Passwords in the user-info of an address and secret parameters are masked in every text, also in one that a
store's client library has written into its error message.
"""

import json
import logging
import math
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

import structlog
from structlog.typing import EventDict, WrappedLogger

from drakkar.masking import mask_text

LogFormat = Literal["auto", "console", "json"]
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

MAX_TEXT_CHARS: Final = 20_000
"""What is logged of one text. An error may hold megabytes, and its traceback holds them again."""

_LOOKED_AT_CHARS: Final = 5 * MAX_TEXT_CHARS
"""More than is logged, so that a secret is not cut in its middle and taken for none."""

_MAX_DEPTH: Final = 8
_COLORS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}


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


def _shown(text: str) -> str:
    """`text` without secrets, cut when it is very long."""
    if len(text) <= MAX_TEXT_CHARS:
        return mask_text(text)
    return f"{mask_text(text[:_LOOKED_AT_CHARS])[:MAX_TEXT_CHARS]}... (cut, of {len(text)} characters)"


def _plain(value: Any, depth_left: int = _MAX_DEPTH) -> Any:
    """`value` as data that JSON has, without secrets and very long texts."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _shown(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, int):
        return value if value.bit_length() <= 1024 else f"{value:#x}"[:200]  # longer ones refuse to be shown
    if isinstance(value, list | tuple) and depth_left:
        return [_plain(inner, depth_left - 1) for inner in value]
    if isinstance(value, dict) and depth_left:
        return {_key(key): _plain(inner, depth_left - 1) for key, inner in value.items()}
    return _repr(value)


def _key(key: Any) -> str:
    return _shown(key) if isinstance(key, str) else _repr(key)


def _repr(value: object) -> str:
    try:
        return _shown(repr(value))
    except Exception:  # noqa: BLE001  what cannot be shown must not stop who tells of it
        return f"<{type(value).__name__}>"


def _to_record(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    event = event_dict.pop("event")
    fields = {key: _plain(value) for key, value in event_dict.items()}
    text = " ".join([str(event), *(f"{key}={value!r}" for key, value in fields.items())])
    return {"msg": text, "extra": {"event": event, "fields": fields}}


class _Formatter(logging.Formatter):
    """What both formats show. Records of other libraries have their message as the event."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"timestamp": moment.replace("+00:00", "Z"), "level": record.levelname.lower()}
        fields = getattr(record, "fields", None)
        if record.name == "drakkar" and isinstance(fields, dict):
            head["event"] = str(getattr(record, "event", ""))
            return head | {f"{key}_" if key in head else key: value for key, value in fields.items()}
        head |= {"event": _shown(record.getMessage()), "logger": record.name}
        if record.exc_info:
            head["exception"] = _shown(self.formatException(record.exc_info))
        return head


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record))


class _ConsoleFormatter(_Formatter):
    def __init__(self, colors: bool) -> None:
        super().__init__()
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        moment, level, event = (fields.pop(key) for key in ("timestamp", "level", "event"))
        trace = fields.pop("exception", None)
        color, reset = (_COLORS.get(level, ""), "\x1b[0m") if self._colors else ("", "")
        # As reprs, since a name on a card may hold what a terminal obeys.
        shown = " ".join(f"{key}={value!r}" for key, value in fields.items())
        line = f"{moment} {color}{level:<8}{reset} {_printable(event)}  {shown}".rstrip()
        return line if trace is None else f"{line}\n{_printable(str(trace))}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)
