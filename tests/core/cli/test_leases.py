"""Asking a leader to step down, and what is told of it."""

import json
from typing import Any

import pytest
from support.commands import Drakkar, end_of, wait_for
from support.scripted_server import Reply, reply, serving

LEASES = [
    {"name": "gc-leader", "worker": "worker-1", "token": 7},
    {"name": "inventory-leader", "worker": "worker-2", "token": 8},
]


def telling(leases: list[dict[str, Any]], **more: Any) -> Reply:
    answer = {"provider": "filesystem", "leases": leases, "age_seconds": 0.0} | more
    return reply(json.dumps(answer).encode())


OUTAGE = {"age_seconds": 818.2, "error": "CallError: no answer\nwithin 3 s"}
WHY_OLD = "the store cannot be read; this was so 818 s ago: CallError: no answer\\nwithin 3 s"


def test_an_old_list_says_that_it_is_and_why(drakkar: Drakkar) -> None:
    with serving(telling(LEASES, **OUTAGE), telling(LEASES, error=None)) as server:
        old = drakkar("leases", "--url", server.url)
        new = drakkar("leases", "--url", server.url)

    assert old.status == 0
    assert " ".join(old.out.split()).endswith(WHY_OLD)
    assert "inventory-leader" in new.out
    assert "cannot be read" not in new.out


def test_names_that_differ_look_different(drakkar: Drakkar) -> None:
    names = {
        "gc": "gc",
        "gc\u200b": "gc\\u200b",
        "\u202egc": "\\u202egc",
        "g\u3164c": "g\\u3164c",
        "gc ": "gc\\u0020",
        r"gc\u200b": r"gc\\u200b",
        "gc\\\u200b": r"gc\\\u200b",
    }
    with serving(telling([{"name": name, "worker": name, "token": 7} for name in names])) as server:
        ended = drakkar("leases", "--url", server.url)

    body = [line.split() for line in ended.out.splitlines() if " 7" in line]
    assert [line[:2] for line in body] == [[shown, shown] for shown in names.values()]


def test_a_refused_step_down_says_that_its_list_was_old(drakkar: Drakkar) -> None:
    refusal = reply(b'{"error": "this worker does not hold it"}', "404 Not Found")
    with serving(telling(LEASES, **OUTAGE)) as server:
        row = {"worker_name": "worker-1", "url": server.url}
        server.replies += [reply(json.dumps([row]).encode()), refusal]
        refused = drakkar("leases", "step-down", "gc-leader", "--url", server.url)
    with serving(telling(LEASES, **OUTAGE)) as server:
        unknown = drakkar("leases", "step-down", "qqq", "--url", server.url)

    assert refused.status == unknown.status == 1
    assert refused.error.endswith(f"status 404: this worker does not hold it ({WHY_OLD})")
    assert unknown.error.endswith(f"see drakkar leases ({WHY_OLD})")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gc", "did you mean gc-leader?"),
        ("inventry", "did you mean inventory-leader?"),
        ("inventry-leader", "did you mean inventory-leader?"),
        ("inventory-laeder", "did you mean inventory-leader?"),
    ],
)
def test_a_name_that_is_nearly_one_comes_with_the_one_that_is_meant(
    name: str, hint: str, drakkar: Drakkar
) -> None:
    with serving(telling(LEASES)) as server:
        ended = drakkar("leases", "step-down", name, "--url", server.url)

    assert (ended.status, ended.error) == (1, f"nobody holds a lease {name!r}; {hint}")


@pytest.mark.parametrize("name", ["qqq", "never-leader", "never-leader-0", ""])
def test_a_name_that_is_like_none_comes_with_where_the_names_are(name: str, drakkar: Drakkar) -> None:
    """That `-leader` is in both makes no two names alike."""
    leases = [{"name": name, "worker": "worker-1"} for name in ("forker-leader", "forker-leader-0")]
    with serving(telling([*LEASES, *leases])) as server:
        ended = drakkar("leases", "step-down", name, "--url", server.url)

    assert (ended.status, ended.error) == (1, f"nobody holds a lease {name!r}; see drakkar leases")


def test_who_is_asked_to_step_down_and_how_long_it_may_take_is_told(drakkar: Drakkar) -> None:
    drakkar.install_jobs("sweep")
    lanes = ("--set=supervisor.workers=sweep", "--set=supervisor.leases.provider=none")
    with drakkar.running_worker(*lanes, "--worker-name=worker-1") as (process, line):
        url = line.split()[-1]
        wait_for(lambda: "sweep-leader" in drakkar("leases", "--url", url).out)
        ended = drakkar("leases", "step-down", "sweep-leader", "--url", url)
        process.terminate()
        assert end_of(process).status == 0

    assert ended.out.startswith(f"worker-1 ({url}) was asked to give up sweep-leader; that takes ")
    assert "supervisor.stop_timeout_seconds" in ended.out
