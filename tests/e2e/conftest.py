import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import Fleet, WorkerProcess, fleet

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def folder_for_folders() -> str | None:
    """In memory where there is such a thing: a card is written through to the disk, and how long that takes
    while the disk is busy with other things is not what is tested here."""
    return str(MEMORY) if MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK) else None


@pytest.fixture
def tmp_path(folder_for_folders: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="drakkar-", dir=folder_for_folders) as folder:
        yield Path(folder)


@pytest.fixture(name="fleet")
def a_fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(folder_for_folders: str | None) -> Iterator[tuple[Fleet, list[WorkerProcess]]]:
    """Two workers for all tests of a module that leave them as they were."""
    with (
        tempfile.TemporaryDirectory(prefix="drakkar-", dir=folder_for_folders) as folder,
        fleet(Path(folder)) as made,
    ):
        yield made, made.start("worker-1", "worker-2")
