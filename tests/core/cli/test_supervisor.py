"""The background workers of a worker as they are shown, and those that are installed."""

import json
import re
from typing import Any

import pytest
from drakkar.cli import _watching
from drakkar.cli._client import Answer
from drakkar.cli.supervisor import SUBJECT
from rich.console import Console
from support.commands import Drakkar, end_of, wait_for
from support.scripted_server import Reply, reply, serving

LANE: dict[str, Any] = {
    "name": "inventory",
    "shard": "-",
    "lease": "inventory-leader",
    "status": "backing_off",
    "token": None,
    "since_seconds": 2.31,
    "restarts_in_seconds": 2.69,
    "attempts": 2,
    "last_error": "FileNotFoundError: no such file",
    "last_error_at": "2026-11-30T14:52:54.509466Z",
}
ANSWER: dict[str, Any] = {
    "workers": [
        {
            "name": "gc",
            "lanes": [LANE | {"name": "gc", "shard": "0", "status": "leading", "last_error": None}],
        },
        {"name": "inventory", "lanes": [LANE]},
    ],
    "leader_for": ["gc"],
    "lease_provider": "filesystem",
    "problem": None,
}


def telling(answer: object) -> Reply:
    return reply(json.dumps(answer).encode())


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def test_it_prints_a_line_for_each_lane(drakkar: Drakkar) -> None:
    with serving(telling(ANSWER)) as server:
        ended = drakkar("supervisor", "--url", server.url)

    assert (ended.status, ended.err) == (0, "")
    head, _, *body = [line for line in ended.out.splitlines() if line.strip()]
    assert cells(head)[:4] == ["worker", "shard", "status", "for"]
    assert [cells(line) for line in body] == [
        ["gc", "0", "leading", "2 s", "3 s", "2", "inventory-leader"],
        ["inventory", "-", "backing off", "2 s", "3 s", "2", "inventory-leader", LANE["last_error"]],
    ]


def test_it_prints_json(drakkar: Drakkar) -> None:
    with serving(telling(ANSWER)) as server:
        ended = drakkar("supervisor", "--url", server.url, "--json")

    assert json.loads(ended.out) == ANSWER


def test_it_tells_why_nothing_can_lead(drakkar: Drakkar) -> None:
    with serving(telling(ANSWER | {"problem": "start: no answer\nwithin 3 s"})) as server:
        ended = drakkar("supervisor", "--url", server.url)

    assert "cannot lead: start: no answer\\nwithin 3 s" in ended.out


@pytest.mark.parametrize("answer", [[], {}, {"workers": None}, "text"])
def test_an_answer_that_is_none_is_one_line(answer: object, drakkar: Drakkar) -> None:
    with serving(telling(answer)) as server:
        ended = drakkar("supervisor", "--url", server.url)

    assert (ended.status, ended.out) == (1, "")
    assert "answers with something that is no list of background workers" in ended.error


@pytest.mark.parametrize("key", LANE)
@pytest.mark.parametrize("value", [None, True, -1e300, 10**30, "text", [1], {"a": 1}])
def test_a_value_of_a_wrong_type_is_shown_or_left_out(key: str, value: Any) -> None:
    answer = {"workers": [7, {"lanes": 7}, {"name": value, "lanes": [7, LANE | {key: value}]}]}
    console = Console(width=300)
    with console.capture() as captured:
        console.print(_watching.table(SUBJECT, Answer(answer, None, "http://10.0.0.1:8080/"), None))

    assert len(captured.get().split()) > len(LANE)


def test_it_shows_the_lanes_of_a_real_worker(drakkar: Drakkar) -> None:
    drakkar.install_jobs("sweep")
    lanes = ("--set=supervisor.workers=sweep", "--set=supervisor.leases.provider=none")
    with drakkar.running_worker(*lanes) as (process, line):
        url = line.split()[-1]
        wait_for(lambda: "leading" in drakkar("supervisor", "--url", url).out)
        process.terminate()
        assert end_of(process).status == 0


def test_a_worker_without_background_workers_says_so(drakkar: Drakkar) -> None:
    with drakkar.running_worker() as (process, line):
        ended = drakkar("supervisor", "--url", line.split()[-1])
        process.terminate()
        end_of(process)

    assert ended.status == 1
    assert "this worker runs no background workers" in ended.error


def test_it_lists_what_is_installed_and_what_is_wrong_with_it(drakkar: Drakkar) -> None:
    drakkar.install_jobs("sweep", "prune", "notify", "number", "fails", "missing")

    ended = drakkar("supervisor", "--installed", "--json")

    assert (ended.status, ended.err) == (0, "")
    rows = {row["name"]: row for row in json.loads(ended.out) if row["distribution"] == "jobs"}
    assert {name: row["runs as"] for name, row in rows.items()} == {
        "sweep": "one in the fleet",
        "prune": "3 shards",
        "notify": "one for each key, with prune",
        "number": None,
        "fails": None,
        "missing": None,
    }
    assert {name for name, row in rows.items() if row["error"] is None} == {"sweep", "prune", "notify"}
    assert rows["number"]["state"] == "is no background worker, but int"
    assert rows["fails"]["state"] == "cannot be loaded: OSError: no such disk"
    assert rows["sweep"]["target"] == "jobs:sweep"


def test_it_lists_what_is_installed_as_a_table(drakkar: Drakkar) -> None:
    drakkar.install_jobs("sweep")

    ended = drakkar("supervisor", "--installed")

    assert ["sweep", "jobs", "jobs:sweep", "one in the fleet", "ok"] in map(cells, ended.out.splitlines())
