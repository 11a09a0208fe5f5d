"""A leader that is asked to step down, and what becomes of the lease after that, with real workers."""

import subprocess
import time
from pathlib import Path

import pytest
from drakkar.server.leases_api import COOL_DOWN_SECONDS
from drakkar.supervisor.backoff import courtesy
from support.processes import DRAKKAR, Fleet, WorkerProcess, wait_for
from support.witness import install, read

STOP_TIMEOUT_SECONDS = 2.0
SETTINGS = {"workers": "sole", "supervisor.stop_timeout_seconds": STOP_TIMEOUT_SECONDS}
DEATH_SECONDS = 2.0
SLACK_SECONDS = 5.0


def leads(worker: WorkerProcess) -> bool:
    [job] = worker.get("api/v1/supervisor").raise_for_status().json()["workers"]
    return bool(job["lanes"][0]["status"] == "leading")


@pytest.mark.timeout(180)
def test_one_that_stepped_down_leaves_the_lease_to_another_and_follows_it_when_it_dies(
    fleet: Fleet, tmp_path: Path
) -> None:
    """The cool-down is for those who could lead instead: without them nobody waits for its end."""
    log = tmp_path / "witness.log"
    environment = install(tmp_path / "site", log)
    workers = []
    for name in ("worker-1", "worker-2"):
        workers.append(fleet.launch(name, SETTINGS, quick=True, **environment))
        workers[-1].wait_until_it_runs()
        wait_for(lambda: leads(workers[0]), what="the first one leading")
    old, new = workers

    asked_at = time.monotonic()
    done = subprocess.run(
        [DRAKKAR, "leases", "step-down", "sole-leader", "--url", new.url],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(tmp_path)},
    )
    assert done.stdout.startswith(f"worker-1 ({old.url}) was asked to give up sole-leader; that takes ")
    wait_for(lambda: leads(new), STOP_TIMEOUT_SECONDS + SLACK_SECONDS, "the other one leading")
    wait_for(lambda: time.monotonic() - asked_at >= courtesy(COOL_DOWN_SECONDS) + STOP_TIMEOUT_SECONDS + 1)
    assert leads(new)  # the old one has asked meanwhile
    assert not leads(old)

    new.kill()
    limit = DEATH_SECONDS + courtesy(COOL_DOWN_SECONDS) + SLACK_SECONDS
    took = wait_for(lambda: leads(old), limit, "the first one leading again")
    assert time.monotonic() - asked_at < COOL_DOWN_SECONDS
    print(f"followed after {took:.1f} s")
    assert old.stop() == 0

    seen = read(log)
    assert seen.faults == []
    assert [term.pid for term in seen.terms["sole-leader"]] == [old.pid, new.pid, old.pid]
