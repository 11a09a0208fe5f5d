"""`drakkar workers`: the fleet as a running worker sees it."""

import argparse
import asyncio
import json
from datetime import UTC, datetime
from typing import Any, Final

import httpx
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from drakkar.cli._client import Answer, Row, ask_workers, connect, worker_url
from drakkar.cli._options import add_json_option, add_settings_options, settings_from
from drakkar.cli._output import make_console, make_table, print_json
from drakkar.cli._signals import run_until_signal, unless
from drakkar.errors import DrakkarError, UnavailableError
from drakkar.settings import Settings
from drakkar.settings.text import one_line

_REFRESH_SECONDS: Final = 1.0
_COLUMNS: Final = ("", "worker", "cluster", "state", "online", "last seen", "version", "url")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="the worker to ask (default: the one of these settings on this host)")
    parser.add_argument("--watch", action="store_true", help="ask every second, until Ctrl-C")
    add_settings_options(parser)
    add_json_option(parser, "the list, with --watch on a line of its own each time,")


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    url = worker_url(settings, arguments.url)
    show = _watch if arguments.watch else _once
    return run_until_signal(lambda stopping: show(settings, url, arguments.json, stopping))


async def _once(settings: Settings, url: str, as_json: bool, stopping: asyncio.Event) -> int:
    async with connect(url, settings) as client:
        answer = await unless(stopping, ask_workers(client))
    if answer is None:
        raise DrakkarError("interrupted")
    if as_json:
        print_json(answer.rows)
    else:
        make_console().print(_table(answer, len(answer.rows)))
    return 0


async def _watch(settings: Settings, url: str, as_json: bool, stopping: asyncio.Event) -> int:
    """The first answer must come; after that, a worker that does not answer is shown as such."""
    console = make_console()
    async with connect(url, settings) as client:
        answer = await unless(stopping, ask_workers(client))
        if as_json:
            while answer is not None:
                print(json.dumps(answer.rows), flush=True)  # noqa: T201
                answer = await _next(client, stopping)
            return 0
        with Live(console=console, auto_refresh=False, transient=False) as live:
            error = ""
            while answer is not None:
                live.update(_view(answer, error, console), refresh=True)
                try:
                    latest = await _next(client, stopping)
                except UnavailableError as failure:
                    error = str(failure)
                    continue
                answer, error = latest, ""
    return 0


async def _next(client: httpx.AsyncClient, stopping: asyncio.Event) -> Answer | None:
    async def ask_later() -> Answer:
        await asyncio.sleep(_REFRESH_SECONDS)
        return await ask_workers(client)

    return await unless(stopping, ask_later())


def _view(answer: Answer, error: str, console: Console) -> Group:
    table = _table(answer, max(1, console.height - 6))
    return Group(table, Text(one_line(error, 1000), style="red")) if error else Group(table)


def _table(answer: Answer, most_rows: int) -> Table:
    table = make_table(_COLUMNS, [_cells(row, answer.now) for row in answer.rows[:most_rows]])
    hidden = len(answer.rows) - most_rows
    if hidden > 0:
        table.caption = Text(f"and {hidden} more")
    return table


def _cells(row: Row, now: datetime | None) -> dict[str, Any]:
    return {
        "": "*" if row.get("is_current") is True else "",
        "worker": row["worker_name"],
        "cluster": row.get("cluster"),
        "state": row.get("state"),
        "online": _online(row.get("online")),
        "last seen": _last_seen(row.get("last_seen_ts"), now),
        "version": row.get("version"),
        "url": row.get("url"),
    }


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
    seconds = max(0, round((now - seen).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"
