"""The command in an empty folder, with no settings but those of the test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import CARDBOX, TESTING, Drakkar, end_by_force

FOREIGN = ("DK_", "XDG_", "PYTHON", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "LC_", "LANG")
"""Variables of the caller that would change what is tested."""


@pytest.fixture
def drakkar(tmp_path: Path) -> Iterator[Drakkar]:
    folder, libraries = tmp_path / "work", tmp_path / "libraries"
    folder.mkdir()
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)},
        "LC_ALL": "C.UTF-8",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(libraries),
        "DK_STORAGE__DIR": "",
    }
    environ.pop("WORKER_ID", None)
    drakkar = Drakkar(folder, libraries, environ)
    modules = {"cardbox/__init__.py": CARDBOX, "cardbox/testing.py": TESTING}
    drakkar.install("cardbox", {"cardbox": "cardbox:Cardbox"}, modules)
    yield drakkar
    left = [process for process in drakkar.started if process.poll() is None]
    for process in left:
        end_by_force(process)
    assert not left, "a process was left running"
