"""A leader that is told to stop, politely and in vain, and when the standby begins, with real workers."""

import signal
import time
from pathlib import Path

import pytest
from support.processes import Fleet, WorkerProcess, wait_for
from support.witness import Account, install, read

STOP_TIMEOUT_SECONDS = 2.0
DEATH_SECONDS = 2.0
SLACK_SECONDS = 3.0


def two(fleet: Fleet, folder: Path, name: str) -> list[WorkerProcess]:
    """A leader and a standby for `name`."""
    settings = {"workers": name, "supervisor.stop_timeout_seconds": STOP_TIMEOUT_SECONDS}
    environment = install(folder / "site", folder / "witness.log")
    workers = []
    for worker in ("worker-1", "worker-2"):
        workers.append(fleet.launch(worker, settings, quick=True, **environment))
        workers[-1].wait_until_it_runs()
        wait_for(lambda: leads(workers[0]), what="the first one leading")
    return workers


def leads(worker: WorkerProcess) -> bool:
    [job] = worker.get("api/v1/supervisor").raise_for_status().json()["workers"]
    return bool(job["lanes"][0]["status"] == "leading")


def hand_over_seconds(folder: Path, workers: list[WorkerProcess]) -> float:
    """How long nobody worked, once both have had their term; fails if they worked at once."""

    def seen() -> Account:
        return read(folder / "witness.log")

    [lease] = seen().terms
    wait_for(lambda: len(seen().terms[lease]) == 2, what="the second one at work")
    account = seen()
    assert account.faults == []
    assert [term.pid for term in account.terms[lease]] == [worker.pid for worker in workers]
    [hand_over] = account.hand_overs()
    return hand_over.seconds


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_stop_hands_over_at_once(fleet: Fleet, tmp_path: Path, number: signal.Signals) -> None:
    """Trial: a polite stop looks like a crash to the others."""
    workers = two(fleet, tmp_path, "sole")
    assert workers[0].stop(number) == 0
    assert hand_over_seconds(tmp_path, workers) < SLACK_SECONDS
    assert workers[1].stop() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_process_of_a_job_does_not_work_beside_the_next_leader(
    fleet: Fleet, tmp_path: Path, number: signal.Signals
) -> None:
    """Trial: losing the lease does not stop a thread; child processes do not outlive a killed parent."""
    workers = two(fleet, tmp_path, "parent")
    wait_for((tmp_path / "witness.log").exists, what="the child at work")
    workers[0].stop(number)
    hand_over_seconds(tmp_path, workers)
    assert workers[1].stop() == 0
    written = (tmp_path / "witness.log").stat().st_size
    time.sleep(0.5)
    assert (tmp_path / "witness.log").stat().st_size == written


def test_a_stop_that_hangs_ends_with_a_status_and_the_standby_begins_after_that(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Trial: a stop that hangs keeps the lease for ever. The card says so meanwhile."""
    workers = two(fleet, tmp_path, "stubborn")
    workers[0].send(signal.SIGTERM)
    wait_for(lambda: workers[1].rows()["worker-1"]["state"] == "draining", what="a card that says so")
    assert workers[0].wait() == 1
    assert [line["shard"] for line in workers[0].events("worker_stop_timeout")] == ["-"]
    assert hand_over_seconds(tmp_path, workers) < DEATH_SECONDS + SLACK_SECONDS
