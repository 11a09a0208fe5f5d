"""Show what a running worker tells: once, or again every second until Ctrl-C."""

import argparse
import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from drakkar.cli._client import Answer, connect, worker_url
from drakkar.cli._options import add_json_option, add_settings_options, settings_from
from drakkar.cli._output import make_console, make_table, print_json
from drakkar.cli._signals import run_until_signal, unless
from drakkar.errors import DrakkarError, UnavailableError
from drakkar.settings import Settings
from drakkar.settings.text import one_line

_REFRESH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Subject:
    """What to ask for, and how an answer is a table."""

    ask: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Answer]]
    columns: Sequence[str]
    cells: Callable[[Answer], Sequence[dict[str, Any]]]
    note: Callable[[Answer], str] = lambda _: ""
    """What is to be said below the table; empty for nothing."""

    ask_to_show: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Answer]] | None = None
    """Asks for what a person should know, too; None when `ask` gets all."""

    def asking(self, as_json: bool) -> Callable[[httpx.AsyncClient], Coroutine[Any, Any, Answer]]:
        return self.ask if as_json or self.ask_to_show is None else self.ask_to_show


def add_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--url", help="the worker to ask (default: the one of these settings on this host)")
    parser.add_argument("--watch", action="store_true", help="ask every second, until Ctrl-C")
    add_settings_options(parser)
    add_json_option(parser, f"{what}, with --watch on a line of its own each time,")


def show(arguments: argparse.Namespace, subject: Subject) -> int:
    settings = settings_from(arguments)
    url = worker_url(settings, arguments.url)
    show_it = _watch if arguments.watch else _once
    return run_until_signal(lambda stopping: show_it(settings, url, subject, arguments.json, stopping))


async def _once(
    settings: Settings, url: str, subject: Subject, as_json: bool, stopping: asyncio.Event
) -> int:
    async with connect(url, settings) as client:
        answer = await unless(stopping, subject.asking(as_json)(client))
    if answer is None:
        raise DrakkarError("interrupted")
    if as_json:
        print_json(answer.data)
    else:
        make_console().print(table(subject, answer, None))
    return 0


async def _watch(
    settings: Settings, url: str, subject: Subject, as_json: bool, stopping: asyncio.Event
) -> int:
    """The first answer must come; after that, a worker that does not answer is shown as such."""
    console = make_console()
    async with connect(url, settings) as client:
        answer = await unless(stopping, subject.asking(as_json)(client))
        if as_json:
            while answer is not None:
                print(json.dumps(answer.data), flush=True)  # noqa: T201
                answer = await _next(client, subject.asking(as_json=True), stopping)
            return 0
        with Live(console=console, auto_refresh=False, transient=False) as live:
            error = ""
            while answer is not None:
                live.update(_view(subject, answer, error, console), refresh=True)
                try:
                    latest = await _next(client, subject.asking(as_json=False), stopping)
                except UnavailableError as failure:
                    error = str(failure)
                    continue
                answer, error = latest, ""
    return 0


async def _next(
    client: httpx.AsyncClient,
    asking: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Answer]],
    stopping: asyncio.Event,
) -> Answer | None:
    async def ask_later() -> Answer:
        await asyncio.sleep(_REFRESH_SECONDS)
        return await asking(client)

    return await unless(stopping, ask_later())


def _view(subject: Subject, answer: Answer, error: str, console: Console) -> Group:
    shown = table(subject, answer, max(1, console.height - 6))
    return Group(shown, Text(one_line(error, 1000), style="red")) if error else Group(shown)


def table(subject: Subject, answer: Answer, most_rows: int | None) -> Table:
    """The answer as a table of at most `most_rows`; None for all."""
    rows = subject.cells(answer)
    shown = make_table(subject.columns, rows[:most_rows])
    hidden = len(rows) - (len(rows) if most_rows is None else most_rows)
    below = [f"and {hidden} more"] if hidden > 0 else []
    if note := subject.note(answer):
        below.append(note)
    shown.caption = Text("\n".join(below)) if below else None
    return shown
