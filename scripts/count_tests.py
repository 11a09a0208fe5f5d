"""Sum the tests of all sessions of one run and print them as its closing line: `N passed, N failed`.

The folder given holds what the run left: `sessions.json`, nox's report, and a JUnit file for each session
that ran pytest. A session that failed without a failed test (lint, types, no test executed) counts as one
failure, and so does a run without a report: the line never says that nothing failed when something did.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET


@dataclass(frozen=True, slots=True)
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0


def read_junit(file: Path) -> Count:
    """Count the tests of one pytest run; an error in set-up or tear-down is a failure."""
    suites = [suite.attrib for suite in ET.parse(file).iter("testsuite")]
    tests = sum(int(suite["tests"]) for suite in suites)
    failed = sum(int(suite["failures"]) + int(suite["errors"]) for suite in suites)
    skipped = sum(int(suite["skipped"]) for suite in suites)
    return Count(passed=max(0, tests - failed - skipped), failed=failed, skipped=skipped)


def summarise(results: Path) -> list[str]:
    """Return the lines to print; the last one is the closing line."""
    counts = {file.stem: read_junit(file) for file in sorted(results.glob("*.xml"))}
    report = results / "sessions.json"
    sessions = json.loads(report.read_text())["sessions"] if report.exists() else []
    names = {(session["signatures"] or [session["name"]])[0]: session["result"] for session in sessions}
    red = [name for name, result in names.items() if result not in ("success", "skipped")] or (
        [] if sessions else ["the run ended before its report"]
    )
    without_test = [name for name in red if counts.get(name, Count()).failed == 0]
    passed = sum(count.passed for count in counts.values())
    failed = sum(count.failed for count in counts.values()) + len(without_test)
    skipped = sum(count.skipped for count in counts.values())
    lines = [f"Failed: {', '.join(red)}"] if red else []
    return [*lines, f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")]


if __name__ == "__main__":
    sys.stdout.write("\n".join(summarise(Path(sys.argv[1]))) + "\n")
