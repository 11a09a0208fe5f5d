"""The repository as a whole: what runs its checks, and what its text must not hold."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.repository import PACKAGES, ROOT, text_files

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load_workflow(path: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    return {("on" if key is True else key): value for key, value in yaml.safe_load(path.read_text()).items()}


def test_ci_runs_the_one_command_that_runs_every_check() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if not line.startswith("#")]

    assert commands == ['exec "$(dirname "$0")/../scripts/test"']


@pytest.mark.parametrize("name", [".ci/run", "scripts/test", "scripts/demo", "scripts/install-servers"])
def test_a_command_can_be_run(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / name], check=True)


def test_every_package_has_a_gating_session_for_each_python() -> None:
    command = [sys.executable, "-m", "nox", "--list", "--json", "-t", "gate"]
    sessions = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    pythons: dict[str, list[str]] = {}
    for session in sessions:
        pythons.setdefault(session["name"], []).append(session["python"])

    for package in PACKAGES:
        classifiers = [
            text.split()[-1] for text in package.project["classifiers"] if ":: Python :: 3." in text
        ]
        assert pythons[package.name] == classifiers
    assert {"e2e", "layout", "lint", "types", "docs", "build"} <= pythons.keys()


def test_the_test_workflow_takes_its_matrix_from_nox() -> None:
    jobs = load_workflow(ROOT / ".github" / "workflows" / "test.yml")["jobs"]

    assert "fromJSON(needs.list.outputs" in jobs["session"]["strategy"]["matrix"]["include"]
    assert any("nox --list --json" in step.get("run", "") for step in jobs["list"]["steps"])


def test_the_release_workflow_starts_from_the_tag_of_a_package() -> None:
    workflow = load_workflow(ROOT / ".github" / "workflows" / "release.yml")

    assert workflow["on"]["push"]["tags"] == ["drakkar-*-v*"]


def test_the_release_workflow_tests_the_wheel_on_every_python() -> None:
    jobs = load_workflow(ROOT / ".github" / "workflows" / "release.yml")["jobs"]

    assert jobs["test"]["strategy"]["matrix"]["python"] == PACKAGES[0].pythons
    assert set(jobs["publish"]["needs"]) == {"build", "test"}


def test_only_the_job_that_publishes_may_ask_for_a_credential() -> None:
    for path in WORKFLOWS:
        workflow = load_workflow(path)
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            assert name == "publish" or "permissions" not in job


# Put together here, so that this file does not hold what it looks for.
UNWANTED = {
    "a folder of one machine": r"/(?:home|root|Users)/[a-z]|/work/(?:main|shared)",
    "the host of a package registry": "|".join(
        rf"{name}\.{top}" for name, top in [("pypi", "org"), ("pythonhosted", "org"), ("deb\\.debian", "org")]
    ),
}


@pytest.mark.parametrize("what", UNWANTED)
def test_no_text_names_what_belongs_to_one_machine(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if re.search(UNWANTED[what], line)
    ]

    assert found == []
