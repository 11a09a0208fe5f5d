"""The first background worker of the documentation, tried as a new user would: three processes, a leader."""

import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.commands import install
from support.markdown import Block, Page
from support.processes import Fleet, WorkerProcess, stop_all, wait_for
from support.repository import ROOT

PAGE = Page(ROOT / "docs" / "background-workers.md")
NAME = "sweep"


def first(language: str) -> Block:
    return next(block for block in PAGE.blocks() if block.info == language)


@pytest.fixture(name="package")
def a_package(tmp_path: Path) -> Path:
    """A folder of installed packages with the page's worker, registered as the page says."""
    entry_points = tomllib.loads(first("toml").text)["project"]["entry-points"]["drakkar.workers"]
    module = entry_points[NAME].partition(":")[0]
    site = tmp_path / "site"
    modules = {f"{module.replace('.', '/')}.py": first("python").text}
    install(site, "mypackage", {}, modules, {NAME: entry_points[NAME]})
    return site


def leader(workers: list[WorkerProcess]) -> list[WorkerProcess]:
    """Those that run the job now: one of them, or for a moment none."""

    def leads(worker: WorkerProcess) -> bool:
        jobs: list[dict[str, Any]] = worker.get("api/v1/supervisor").json()["workers"]
        return any(lane["status"] == "leading" and lane["token"] for job in jobs for lane in job["lanes"])

    found = [worker for worker in workers if leads(worker)]
    assert len(found) <= 1
    return found


def test_the_first_worker_of_the_page_moves_when_its_leader_dies(fleet: Fleet, package: Path) -> None:
    workers = [fleet.launch(f"worker-{n}", {"workers": NAME}, PYTHONPATH=str(package)) for n in (1, 2, 3)]
    for worker in workers:
        worker.wait_until_it_runs()
    wait_for(lambda: bool(leader(workers)), what="somebody leading")
    [first_leader] = leader(workers)
    first_leader.kill()
    others = [worker for worker in workers if worker is not first_leader]
    wait_for(lambda: bool(leader(others)), what="another one leading")
    assert stop_all(others) == [0, 0]
    assert first_leader.wait() == -signal.SIGKILL
