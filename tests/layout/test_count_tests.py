"""The closing line of a run of all sessions."""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.repository import ROOT

summarise: Callable[[Path], list[str]] = runpy.run_path(str(ROOT / "scripts" / "count_tests.py"))["summarise"]


def write_report(results: Path, **sessions: str) -> None:
    entries = [{"name": name, "signatures": [name], "result": result} for name, result in sessions.items()]
    (results / "sessions.json").write_text(json.dumps({"sessions": entries}))


def write_junit(
    results: Path, session: str, *, tests: int, failures: int = 0, errors: int = 0, skipped: int = 0
) -> None:
    numbers = f'tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}"'
    (results / f"{session}.xml").write_text(f"<testsuites><testsuite {numbers}/></testsuites>")


def test_it_sums_the_tests_of_all_sessions(tmp_path: Path) -> None:
    write_report(tmp_path, core="success", e2e="success")
    write_junit(tmp_path, "core", tests=7)
    write_junit(tmp_path, "e2e", tests=5, skipped=2)

    assert summarise(tmp_path) == ["10 passed, 0 failed, 2 skipped"]


def test_it_counts_an_error_around_a_test_as_a_failure(tmp_path: Path) -> None:
    write_report(tmp_path, core="failed")
    write_junit(tmp_path, "core", tests=7, failures=1, errors=1)

    assert summarise(tmp_path) == ["Failed: core", "5 passed, 2 failed"]


@pytest.mark.parametrize("result", ["failed", "aborted"])
def test_it_counts_a_session_that_failed_without_a_failed_test_as_one(tmp_path: Path, result: str) -> None:
    write_report(tmp_path, core="success", lint=result, docs="failed")
    write_junit(tmp_path, "core", tests=7)
    write_junit(tmp_path, "docs", tests=0)

    assert summarise(tmp_path) == ["Failed: lint, docs", "7 passed, 2 failed"]


def test_it_says_that_a_run_without_a_report_failed(tmp_path: Path) -> None:
    assert summarise(tmp_path) == ["Failed: the run ended before its report", "0 passed, 1 failed"]


def test_it_reads_what_pytest_writes(tmp_path: Path) -> None:
    test = tmp_path / "test_one.py"
    test.write_text("import pytest\n\ndef test_a(): pass\n\n@pytest.mark.skip\ndef test_b(): pass\n")
    junit = f"--junit-xml={tmp_path / 'core.xml'}"
    subprocess.run([sys.executable, "-m", "pytest", "-c", "/dev/null", junit, test], check=True, cwd=tmp_path)
    write_report(tmp_path, core="success")

    assert summarise(tmp_path) == ["1 passed, 0 failed, 1 skipped"]
