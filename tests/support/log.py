"""A logger that remembers."""

from typing import Any


class RecordingLogger:
    """Satisfies `drakkar.fleet.provider.EventLogger`."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.lines.append(("debug", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.lines.append(("error", event, fields))

    def named(self, event: str) -> list[dict[str, Any]]:
        """The fields of every line of this event."""
        return [fields for _, name, fields in self.lines if name == event]

    def level_of(self, event: str) -> str:
        return next(level for level, name, _ in self.lines if name == event)
