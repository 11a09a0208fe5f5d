"""`drakkar leases`: who leads what, and `drakkar leases step-down NAME`."""

import argparse
import asyncio
import difflib
from collections.abc import Sequence
from types import NoneType
from typing import Any, Final

import httpx

from drakkar.cli import _watching
from drakkar.cli._client import Answer, ask, ask_workers, connect, worker_url
from drakkar.cli._options import settings_from
from drakkar.cli._output import print_json, seconds
from drakkar.cli._signals import run_until_signal, unless
from drakkar.errors import ConfigError, DrakkarError, UnavailableError
from drakkar.settings import Settings
from drakkar.settings.text import one_line

_HOW_LONG: Final = (
    "that takes as long as its run does to come to a good point, at most twice its"
    " supervisor.stop_timeout_seconds (20 s unless that is set)"
)
_COLUMNS: Final = ("lease", "worker", "token", "age", "left")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _watching.add_arguments(parser, "the leases")
    parser.add_argument("action", nargs="?", choices=["step-down"], help="have the holder of NAME step down")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the lease, such as inventory-leader")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action is None:
        return _watching.show(arguments, SUBJECT)
    if arguments.name is None:
        raise ConfigError("leases step-down must be followed by the name of a lease; see drakkar leases")
    if arguments.watch:
        raise ConfigError("--watch shows the leases and goes with no step-down; leave one of the two out")
    settings = settings_from(arguments)
    url = worker_url(settings, arguments.url)
    return run_until_signal(
        lambda stopping: _step_down(settings, url, arguments.name, arguments.json, stopping)
    )


async def ask_leases(client: httpx.AsyncClient) -> Answer:
    """The leases. Raises `UnavailableError` for a worker that does not answer with them, and when the store
    has not answered it yet."""
    answer = await ask(client, "api/v1/leases")
    data = answer.data
    if not isinstance(data, dict) or not isinstance(data.get("leases"), list | NoneType):
        raise UnavailableError(f"{answer.url} answers with something that is no list of leases")
    if data["leases"] is None:
        reason = one_line(str(data.get("error")), 300)
        raise UnavailableError(f"{answer.url} cannot read the leases: {reason}")
    return answer


def _rows(answer: Answer) -> Sequence[dict[str, Any]]:
    return [
        {
            "lease": row.get("name"),
            "worker": row.get("worker"),
            "token": row.get("token"),
            "age": seconds(row.get("age_seconds")),
            "left": seconds(row.get("remaining_seconds")),
        }
        for row in answer.data["leases"]
        if isinstance(row, dict)
    ]


def _why_old(answer: Answer) -> str:
    """Why the leases are not those of this moment; empty when they are."""
    error = answer.data.get("error")
    if not isinstance(error, str):
        return ""
    age = seconds(answer.data.get("age_seconds"))
    return f"the store cannot be read; this was so {age} ago: {one_line(error, 300)}"


async def _step_down(settings: Settings, url: str, name: str, as_json: bool, stopping: asyncio.Event) -> int:
    done = await unless(stopping, _ask_holder(settings, url, name))
    if done is None:
        raise DrakkarError("interrupted")
    holder, answer = done
    if as_json:
        print_json(answer.data)
    else:
        who = f"{one_line(holder)} ({one_line(answer.url, 1000)})"
        print(f"{who} was asked to give up {one_line(name)}; {_HOW_LONG}")  # noqa: T201
    return 0


async def _ask_holder(settings: Settings, url: str, name: str) -> tuple[str, Answer]:
    """Find the holder through the worker at `url`, and ask it; its name, and what it answered."""
    async with connect(url, settings) as client:
        leases = await ask_leases(client)
        held = {row.get("name"): row.get("worker") for row in leases.data["leases"]}
        holder = held.get(name)
        if holder is None:
            near = _nearest(name, [str(other) for other in held])
            hint = "see drakkar leases" if near is None else f"did you mean {one_line(near)}?"
            why = f" ({why})" if (why := _why_old(leases)) else ""
            raise DrakkarError(f"nobody holds a lease {one_line(name)!r}; {hint}{why}")
        rows = (await ask_workers(client)).data
    holder_url = next((row.get("url") for row in rows if row["worker_name"] == holder), None)
    if not isinstance(holder_url, str):
        raise DrakkarError(f"{one_line(str(holder))} holds it and is not in the workers list; give its --url")
    try:
        async with connect(worker_url(settings, holder_url), settings) as client:
            answer = await ask(
                client,
                "api/v1/leases/step-down",
                "POST",
                params={"name": name},
                headers={"X-Drakkar-Action": "step-down"},
            )
    except UnavailableError as error:
        if why := _why_old(leases):
            raise UnavailableError(f"{error} ({why})") from error
        raise
    return str(holder), answer


def _nearest(name: str, others: Sequence[str]) -> str | None:
    """Which one may be meant by `name`. All of them have `-leader` in common, which makes no two alike."""
    for other in others:
        if name and other.startswith(name):
            return other
    bare = {other.replace("-leader", "", 1): other for other in others}
    near = difflib.get_close_matches(name.replace("-leader", "", 1), bare, n=1, cutoff=0.7)
    return bare[near[0]] if near else None


SUBJECT: Final = _watching.Subject(ask_leases, _COLUMNS, _rows, _why_old)
