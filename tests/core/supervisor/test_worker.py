"""What a background worker may be called."""

from typing import Any

import pytest
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.keyed import KeyedFanOut
from drakkar.supervisor.worker import BackgroundWorker
from support.supervised import Job

JOB = Job()
BAD = [
    "",
    " gc",
    "gc ",
    "gc,notify",
    "g\nc",
    "x" * 151,
    "lone \ud800",
    "gc-leader",
    "a-leader-b",
    3,
    None,
]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_would_not_do_in_a_list_a_log_or_a_lease_is_refused(name: Any) -> None:
    for make in (
        lambda: BackgroundWorker(name, JOB.build),
        lambda: FanOut(name, 4, JOB.build_shard),
        lambda: KeyedFanOut(name, keys=None, build_item=None),  # type: ignore[arg-type]  # not come to
    ):
        with pytest.raises(ValueError, match="background worker's name"):
            make()


@pytest.mark.parametrize("name", ["gc", "a b", "größe", "x" * 150, "team/gc", "game-leaderboard"])
def test_any_other_is_not(name: str) -> None:
    assert BackgroundWorker(name, JOB.build).name == name


def test_a_build_that_cannot_be_called_is_refused() -> None:
    build: Any = 3
    with pytest.raises(ValueError, match="gc: build must be a function"):
        BackgroundWorker("gc", build)
