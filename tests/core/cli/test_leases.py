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


def telling(leases: list[dict[str, Any]]) -> Reply:
    return reply(json.dumps({"provider": "filesystem", "leases": leases, "age_seconds": 0.0}).encode())


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gc", "did you mean gc-leader?"), ("inventry-leader", "did you mean inventory-leader?")],
)
def test_a_name_that_is_nearly_one_comes_with_the_one_that_is_meant(
    name: str, hint: str, drakkar: Drakkar
) -> None:
    with serving(telling(LEASES)) as server:
        ended = drakkar("leases", "step-down", name, "--url", server.url)

    assert (ended.status, ended.error) == (1, f"nobody holds a lease {name!r}; {hint}")


def test_a_name_that_is_like_none_comes_with_where_the_names_are(drakkar: Drakkar) -> None:
    with serving(telling(LEASES)) as server:
        ended = drakkar("leases", "step-down", "qqq", "--url", server.url)

    assert (ended.status, ended.error) == (1, "nobody holds a lease 'qqq'; see drakkar leases")


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
