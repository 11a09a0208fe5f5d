"""A card that is rewritten all the time while others list: real processes, on a disk and in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card
from support.folders import Folder, MakeFolder, child
from support.mounts import tmpfs

READERS = 4

WRITER = """
import asyncio, sys
from drakkar.fleet.testkit import make_card, make_context
from drakkar_filesystem.registry import FilesystemRegistry

async def main():
    provider = FilesystemRegistry({"dir": sys.argv[1]})
    await provider.start(make_context("worker-1", timeout_seconds=60))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[2])):
        fill = chr(ord("a") + number % 26) * (3500 if number % 2 == 0 else 3)
        await provider.publish(make_card("worker-1", x_fill=fill))
    await provider.stop()

asyncio.run(main())
"""

READER = """
import asyncio, json, os, sys
from pathlib import Path
from drakkar.fleet.testkit import make_card, make_context
from drakkar.fleet.testkit.harness import SilentLogger
from drakkar_filesystem.registry import FilesystemRegistry

class Logger(SilentLogger):
    def warning(self, event, **fields):
        wrong.append([event, fields])

wrong, seen, listings = [], set(), 0

async def main():
    global listings
    os.nice(10)  # four that list all the time would leave the writer little of a small machine
    provider = FilesystemRegistry({"dir": sys.argv[1]})
    context = make_context(sys.argv[2], os.urandom(8).hex(), logger=Logger(), timeout_seconds=60)
    await provider.start(context)
    await provider.list()
    print("ready", flush=True)
    while not Path(sys.argv[3]).exists():
        cards = {peer.card["worker"]: peer.card for peer in await provider.list()}
        listings += 1
        if sorted(cards) != ["worker-1", "worker-2", "worker-3"]:
            wrong.append(sorted(cards))
            continue
        fill = cards["worker-1"].pop("x_fill")
        if fill not in (fill[0] * 3500, fill[0] * 3) or cards["worker-1"] != make_card("worker-1"):
            wrong.append(fill)
        seen.add(fill)
    await provider.stop()
    print(json.dumps([wrong, len(seen), listings]), flush=True)

asyncio.run(main())
"""


ROUNDS = {"disk": 100, "memory": 1000}


@pytest.fixture(params=ROUNDS)
async def fleet(
    request: pytest.FixtureRequest, folder_at: MakeFolder, tmp_path: Path
) -> AsyncIterator[Folder]:
    """With two good cards that nobody touches, and the one that will be rewritten."""
    with ExitStack() as stack:
        if request.param == "memory":
            stack.enter_context(tmpfs(tmp_path / "memory", "16m"))
        folder = folder_at(tmp_path / "memory")
        for worker in ("worker-1", "worker-2", "worker-3"):
            folder.write(f"{worker}.json", encode_card(make_card(worker, x_fill="aaa")))
        yield folder


@pytest.mark.timeout(900)
async def test_no_reader_ever_misses_a_card_or_sees_a_mix_of_two(
    fleet: Folder, tmp_path: Path, long: bool, request: pytest.FixtureRequest
) -> None:
    rounds = 10_000 if long else ROUNDS[request.node.callspec.params["fleet"]]
    done = tmp_path / "done"
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(child(WRITER, fleet.path, rounds))
        assert await writer.line() == "ready"
        readers = [
            await stack.enter_async_context(child(READER, fleet.path, f"reader-{number}", done))
            for number in range(READERS)
        ]
        for reader in readers:
            assert await reader.line() == "ready"
        await writer.answer("go")
        assert await writer.status(limit_seconds=600) == 0
        await asyncio.to_thread(done.touch)
        told = [json.loads(await reader.line()) for reader in readers]

    assert [wrong for wrong, _, _ in told] == [[]] * READERS
    assert all(seen > 1 for _, seen, _ in told), "they all listed before or after it"
    assert fleet.names() == {"worker-1.json", "worker-2.json", "worker-3.json"}
