"""`drakkar supervisor`: the background workers of a running worker, lane by lane; or those to choose from."""

import argparse
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any, Final

import httpx

from drakkar.cli import _watching
from drakkar.cli._client import Answer, Row, ask
from drakkar.cli._output import print_json, print_table, seconds
from drakkar.errors import ConfigError, UnavailableError
from drakkar.settings.text import one_line

_COLUMNS: Final = ("worker", "shard", "status", "for", "restarts in", "failures", "lease", "last error")
_SHOWN: Final = ("name", "distribution", "target", "runs as", "state")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _watching.add_arguments(parser, "the background workers")
    parser.add_argument(
        "--installed",
        action="store_true",
        help="list the background workers of installed packages instead, which supervisor.workers may name;"
        " asks no worker",
    )


def run(arguments: argparse.Namespace) -> int:
    if not arguments.installed:
        return _watching.show(arguments, SUBJECT)
    rows = list(_installed())
    if arguments.json:
        print_json(rows)
    else:
        print_table(_SHOWN, rows)
    return 0


def _installed() -> Iterator[dict[str, Any]]:
    from drakkar.supervisor import installed

    for name, entries in sorted(installed.find().items()):
        for entry in entries:
            kind, error = _look_at(name, entry)
            if error is None and len(entries) > 1:
                error = "offered more than once; uninstall all packages but one of these"
            yield {
                "name": name,
                "distribution": None if entry.dist is None else entry.dist.name,
                "target": entry.value,
                "runs as": kind,
                "state": "ok" if error is None else error,
                "error": error,
            }


def _look_at(name: str, entry: EntryPoint) -> tuple[str | None, str | None]:
    """How what the entry point leads to is led, and what is wrong with it; it is imported for that."""
    from drakkar.supervisor import installed
    from drakkar.supervisor.fanout import FanOut
    from drakkar.supervisor.keyed import KeyedFanOut
    from drakkar.supervisor.worker import BackgroundWorker

    try:
        made = installed.load(entry)
    except ConfigError as error:
        return None, str(error).removeprefix(f"supervisor.workers: {name!r} ({entry.value}) ")
    if not isinstance(made, BackgroundWorker | FanOut | KeyedFanOut):
        return None, f"is no background worker, but {type(made).__name__}"
    if made.name != name:
        return None, f"calls itself {made.name!r}"
    match made:
        case FanOut():
            return f"{made.shards} shards", None
        case KeyedFanOut():
            return "one for each key" + (f", with {made.gate.name}" if made.gate else ""), None
    return "one for each process" if made.skip_lease else "one in the fleet", None


async def _ask(client: httpx.AsyncClient) -> Answer:
    """The lanes. Raises `UnavailableError` for a worker that does not answer with them."""
    answer = await ask(client, "api/v1/supervisor")
    data = answer.data
    if not isinstance(data, dict) or not isinstance(data.get("workers"), list):
        raise UnavailableError(f"{answer.url} answers with something that is no list of background workers")
    return answer


def _rows(answer: Answer) -> Sequence[Row]:
    return [
        {
            "worker": worker.get("name"),
            "shard": lane.get("shard"),
            "status": str(lane.get("status")).replace("_", " "),
            "for": seconds(lane.get("since_seconds")),
            "restarts in": seconds(lane.get("restarts_in_seconds")),
            "failures": lane.get("attempts") or None,
            "lease": lane.get("lease"),
            "last error": lane.get("last_error"),
        }
        for worker in answer.data["workers"]
        if isinstance(worker, dict) and isinstance(worker.get("lanes"), list)
        for lane in worker["lanes"]
        if isinstance(lane, dict)
    ]


def _problem(answer: Answer) -> str:
    problem = answer.data.get("problem")
    return f"cannot lead: {one_line(problem, 600)}" if isinstance(problem, str) else ""


SUBJECT: Final = _watching.Subject(_ask, _COLUMNS, _rows, _problem)
