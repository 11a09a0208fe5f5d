"""`drakkar workers`: the fleet as a running worker sees it."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import httpx
from rich.text import Text

from drakkar.cli import _watching
from drakkar.cli._client import Answer, Row, ask, ask_workers
from drakkar.cli._output import seconds
from drakkar.errors import UnavailableError

_COLUMNS: Final = ("", "worker", "cluster", "state", "online", "last seen", "version", "leads", "url")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _watching.add_arguments(parser, "the list")


def run(arguments: argparse.Namespace) -> int:
    return _watching.show(arguments, SUBJECT)


async def _ask_to_show(client: httpx.AsyncClient) -> Answer:
    """The list, and whether it is an old one: it looks the same while the store cannot be read."""
    answer = await ask_workers(client)
    try:
        since = seconds((await ask(client, "readyz")).data["registry"]["failing_for_seconds"]["list"])
    except (UnavailableError, TypeError, KeyError):  # it works, or there is none
        return answer
    why = f"the store could not be read for {since}; this is the last list, and its ages grow"
    return replace(answer, remark=why if since else "")


def _rows(answer: Answer) -> Sequence[dict[str, Any]]:
    return [_cells(row, answer.now) for row in answer.data]


def _cells(row: Row, now: datetime | None) -> dict[str, Any]:
    return {
        "": "*" if row.get("is_current") is True else "",
        "worker": row["worker_name"],
        "cluster": row.get("cluster"),
        "state": row.get("state"),
        "online": _online(row.get("online")),
        "last seen": _last_seen(row.get("last_seen_ts"), now),
        "version": row.get("version"),
        # What a dead worker told last is no more: another one may lead by now.
        "leads": "" if row.get("online") is False else _names(row.get("leader_for")),
        "url": row.get("url"),
    }


def _names(value: object) -> str:
    return ", ".join(str(name) for name in value) if isinstance(value, list) else ""


def _online(value: object) -> Text:
    if value is True:
        return Text("yes", style="green")
    return Text("no", style="red") if value is False else Text("unknown", style="dim")


def _last_seen(value: object, now: datetime | None) -> str:
    """How long ago on the clock of the worker that was asked; the time itself when that clock is unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    try:
        seen = datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):  # no time that there can be
        return ""
    if now is None:
        return f"{seen:%Y-%m-%d %H:%M:%S}Z"
    ago = max(0, round((now - seen).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if ago >= 2 * length:
            return f"{ago // length} {unit} ago"
    return f"{ago} s ago"


SUBJECT: Final = _watching.Subject(
    ask_workers, _COLUMNS, _rows, lambda answer: answer.remark, ask_to_show=_ask_to_show
)
