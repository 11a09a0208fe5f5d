"""Cards that this worker may not read, and folders that it may not use.

Root may do anything, so these tests run the provider in a process that root has taken that right from.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card
from support.folders import Folder, child

NOBODY = 65534

WORKER = """
import asyncio, json, sys
from drakkar.fleet.testkit import make_card, make_context
from drakkar.fleet.testkit.harness import SilentLogger
from drakkar_filesystem.registry import FilesystemRegistry

lines = []

class Logger(SilentLogger):
    def warning(self, event, **fields):
        lines.append([event, fields])

async def run(call):
    try:
        return await call
    except Exception as error:
        return f"{type(error).__name__}: {error}"

async def main():
    options = {"dir": sys.argv[1], "explicit": "explicit" in sys.argv, "prune_after_seconds": 600}
    provider = FilesystemRegistry(options)
    started = await run(provider.start(make_context("worker-1", logger=Logger())))
    results = [] if started is None else [started]
    card = make_card("worker-1")
    for operation in sys.argv[2:]:
        if operation == "publish":
            results.append(await run(provider.publish(card)))
        elif operation == "list":
            listed = await run(provider.list())
            results.append(listed if isinstance(listed, str) else sorted(p.card["worker"] for p in listed))
        elif operation == "withdraw":
            results.append(await run(provider.withdraw("worker-1", card["instance"])))
    print(json.dumps([results, [fields for event, fields in lines if event == "fleet_card_invalid"]]))

asyncio.run(main())
"""


def restricted() -> tuple[str, ...]:
    """The command that takes root's right to open everything; others never had it."""
    if os.geteuid() != 0:
        return ()
    return ("setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search")


async def run(path: Path, *operations: str) -> tuple[list[Any], dict[str, str]]:
    """What each operation gave, and the reasons for which files were left out."""
    async with child(WORKER, path, *operations, prefix=restricted()) as process:
        results, rejected = json.loads(await process.line())
        assert await process.status() == 0
    return results, {line["file"]: line["reason"] for line in rejected}


def give_away(path: Path) -> None:
    try:
        os.chown(path, NOBODY, NOBODY)
    except PermissionError:
        pytest.fail("a file of another owner needs root: run the tests as root")


@pytest.fixture
def fleet(folder: Folder) -> Folder:
    """A folder with two good cards."""
    for worker in ("worker-2", "worker-3"):
        folder.write(f"{worker}.json", encode_card(make_card(worker)))
    return folder


async def test_a_card_that_may_not_be_read_is_named_and_the_others_listed(fleet: Folder) -> None:
    fleet.write("worker-4.json", encode_card(make_card("worker-4"))).chmod(0o000)

    results, rejected = await run(fleet.path, "list", "list")

    assert results == [["worker-2", "worker-3"]] * 2
    assert rejected == {"worker-4.json": "unreadable"}


async def test_a_card_of_another_owner_is_unreadable(fleet: Folder) -> None:
    card = fleet.write("worker-4.json", encode_card(make_card("worker-4")))
    card.chmod(0o600)
    give_away(card)

    results, rejected = await run(fleet.path, "list")

    assert results == [["worker-2", "worker-3"]]
    assert rejected == {"worker-4.json": "unreadable"}


async def test_cards_that_are_all_of_another_owner_are_an_empty_list_and_named(folder: Folder) -> None:
    for worker in ("worker-2", "worker-3"):
        card = folder.write(f"{worker}.json", encode_card(make_card(worker)))
        card.chmod(0o600)
        give_away(card)

    results, rejected = await run(folder.path, "list")

    assert results == [[]]
    assert rejected == {"worker-2.json": "unreadable", "worker-3.json": "unreadable"}


async def test_a_card_of_another_owner_in_our_place_is_replaced(fleet: Folder) -> None:
    card = fleet.write("worker-1.json", encode_card(make_card("worker-1", state="draining")))
    card.chmod(0o600)
    give_away(card)

    results, rejected = await run(fleet.path, "publish", "list")

    assert results == [None, ["worker-1", "worker-2", "worker-3"]]
    assert rejected == {}


async def test_a_card_of_another_owner_in_our_place_is_not_withdrawn(fleet: Folder) -> None:
    card = fleet.write("worker-1.json", encode_card(make_card("worker-1")))
    card.chmod(0o600)
    give_away(card)

    results, _ = await run(fleet.path, "withdraw")

    assert results == [f"PermissionError: [Errno 13] Permission denied: '{card}'"]
    assert card.exists()


async def test_an_old_card_of_another_owner_is_deleted_all_the_same_if_it_may_be_read(fleet: Folder) -> None:
    card = fleet.write("worker-4.json", encode_card(make_card("worker-4")), age_seconds=700)
    card.chmod(0o644)
    give_away(card)

    results, _ = await run(fleet.path, "publish", "list")

    assert results == [None, ["worker-1", "worker-2", "worker-3"]]
    assert not card.exists()


@pytest.mark.parametrize("mode", [0o000, 0o600, 0o300], ids=oct)
async def test_a_folder_that_may_not_be_searched_is_an_error_not_an_empty_list(
    fleet: Folder, mode: int
) -> None:
    """With 0600 the names can be read, and every single card would look unreadable."""
    fleet.workers.chmod(mode)

    results, rejected = await run(fleet.path, "list")

    assert results == [f"PermissionError: [Errno 13] Permission denied: '{fleet.workers}'"]
    assert rejected == {}


async def test_a_folder_that_may_not_be_written_can_be_listed(fleet: Folder) -> None:
    fleet.workers.chmod(0o500)

    results, _ = await run(fleet.path, "publish", "list", "withdraw")

    assert results[0].startswith(
        f"PermissionError: [Errno 13] Permission denied: '{fleet.workers}/.worker-1.json."
    )
    assert results[1:] == [["worker-2", "worker-3"], None]


@pytest.mark.parametrize(
    ("spoilt", "named"), [(".", "."), ("workers", "workers/.probe.")], ids=["the folder", "workers"]
)
async def test_an_explicit_folder_that_may_not_be_written_stops_the_worker(
    folder: Folder, spoilt: str, named: str
) -> None:
    (folder.path / spoilt).mkdir(parents=True)
    (folder.path / spoilt).chmod(0o500)

    (results, _) = await run(folder.path, "explicit")

    (told,) = results
    start = "ProviderConfigError: fleet.registry.filesystem.dir: cannot use"
    assert told.startswith(f"{start} {folder.path}: Permission denied: {folder.path}/{named.lstrip('.')}")


async def test_the_folders_above_need_not_be_readable(folder: Folder) -> None:
    folder.path = folder.path / "below"
    folder.path.mkdir(parents=True)
    for path in (folder.path.parent, folder.path):
        path.chmod(0o311)

    results, _ = await run(folder.path, "explicit", "publish", "list")

    assert results == [None, ["worker-1"]]


@pytest.fixture(autouse=True)
def writable_in_the_end(folder: Folder) -> Any:
    yield
    for path in (folder.path.parent, folder.path, folder.workers):
        if path.exists():
            path.chmod(0o700)
