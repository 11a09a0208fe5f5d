"""Folders for the workers of one test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.folders import Folder, MakeFolder
from support.mounts import clean_up


@pytest.fixture(autouse=True)
def nothing_stays_mounted() -> Iterator[None]:
    yield
    clean_up()


@pytest.fixture
async def folder_at() -> AsyncIterator[MakeFolder]:
    """Folders at the paths that are asked for; their providers are stopped in the end."""
    folders: list[Folder] = []

    def make(path: Path) -> Folder:
        folders.append(Folder(path))
        return folders[-1]

    yield make
    for folder in folders:
        await folder.stop()


@pytest.fixture
async def folder(folder_at: MakeFolder, tmp_path: Path) -> Folder:
    """A folder that does not exist yet."""
    return folder_at(tmp_path / "fleet")
