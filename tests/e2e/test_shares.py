"""Twelve shards over real workers that come one after the other, become more, and die."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest
from support.processes import Fleet, WorkerProcess, fleet, stop_all, wait_for
from support.witness import SHARDS, install, read

SETTINGS = {
    "workers": "split",
    "supervisor.leases.ttl_seconds": 4,
    "supervisor.leases.renew_seconds": 1,
    "supervisor.leases.retry_seconds": 0.5,
    "supervisor.leases.timeout_seconds": 1,
    "supervisor.stop_timeout_seconds": 2,
}
LEVEL_SECONDS = 3.0
"""For how long everybody must have no more than its share to count as settled."""

HAND_OVER_SECONDS = 6.0
"""The longest that nobody leads a shard of one that lives: all others have their share and leave it to each
other, and so does the one that gave it up."""

DEATH_SECONDS = 2.0
"""How soon the death of a process is noticed on one host."""

SLACK_SECONDS = 3.0
"""For a machine that is busy with other things."""


def held(worker: WorkerProcess) -> int:
    """How many shards it leads, by what it says of itself."""
    [job] = worker.get("api/v1/supervisor").raise_for_status().json()["workers"]
    leading = [lane for lane in job["lanes"] if lane["status"] == "leading"]
    assert all(lane["token"] is not None for lane in leading)
    return len(leading)


def settle(workers: Sequence[WorkerProcess]) -> float:
    """Wait until all shards are led and nobody has more than its share, for a while; return how long it took
    until that while began."""
    share = math.ceil(SHARDS / len(workers))
    began = level_since = time.monotonic()

    def level() -> bool:
        nonlocal level_since
        counts = [held(worker) for worker in workers]
        if sum(counts) != SHARDS or max(counts) > share:
            level_since = time.monotonic()
        return time.monotonic() - level_since >= LEVEL_SECONDS

    wait_for(level, what=f"nobody of {len(workers)} having more than {share}")
    return level_since - began


def round_of(made: Fleet, folder: Path) -> list[str]:
    """One fleet from the first process to the last; returns what there is to tell of it."""
    log = folder / "witness.log"
    environment = install(folder / "site", log)
    story: list[str] = []
    workers: list[WorkerProcess] = []

    def start(names: Sequence[str]) -> None:
        for number, name in enumerate(names):
            if number:
                time.sleep(2)  # as it is asked for, and no result hangs on it
            workers.append(made.launch(name, SETTINGS, quick=True, **environment))
        for worker in workers:
            if not worker.url:
                worker.wait_until_it_runs()

    start(["worker-1", "worker-2", "worker-3"])
    story.append(f"three settled after {settle(workers):.1f} s")
    start(["worker-4", "worker-5"])
    story.append(f"five settled after {settle(workers):.1f} s")
    died_at = time.monotonic()
    for worker in (victims := [workers[0], workers[3]]):
        worker.kill()
    workers = [worker for worker in workers if worker not in victims]
    story.append(f"the three left settled after {settle(workers):.1f} s")
    all_led_until = time.monotonic()
    assert stop_all(workers) == [0, 0, 0]

    seen = read(log)
    assert seen.faults == []
    assert len(seen.terms) == SHARDS
    assert all(terms[-1].times[-1] >= all_led_until - SLACK_SECONDS for terms in seen.terms.values())
    assert seen.longest_silence() < SLACK_SECONDS
    dead = {victim.pid for victim in victims}
    moved: list[float] = []
    inherited: list[float] = []
    for hand_over in seen.hand_overs():
        by_death = hand_over.old_pid in dead and hand_over.at >= died_at
        (inherited if by_death else moved).append(hand_over.seconds)
    assert len(moved) >= 8 + 3  # what is too much on the first of three, and what two more must get
    assert len(inherited) >= 4
    assert max(moved) < HAND_OVER_SECONDS + SLACK_SECONDS
    assert max(inherited) < DEATH_SECONDS + HAND_OVER_SECONDS + SLACK_SECONDS
    story.append(f"{len(moved)} moved, {median(moved):.2f} s without a leader, {max(moved):.2f} s at most")
    story.append(f"{len(inherited)} inherited, {max(inherited):.2f} s at most")
    return story


@pytest.mark.timeout(2400)
def test_nobody_has_more_than_its_share_once_settled_and_every_shard_is_led_all_the_time(
    tmp_path: Path, long: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first process up takes every shard: processes that start one after the other, more of them, and
    two that die. The times to settle are printed."""
    for number in range(5 if long else 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with fleet(folder) as made:
            story = round_of(made, folder)
        with capsys.disabled():
            print(f"\n{'; '.join(story)}")
