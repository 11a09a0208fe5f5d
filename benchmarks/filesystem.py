"""How long the filesystem provider takes, and how much of it the event loop notices.

    python benchmarks/filesystem.py [--cards 100 1000 5000] [--rounds 15] [--dir FOLDER] [--json FILE]

Everything is measured in turns in one run on one folder of cards of 400 bytes, and set beside what a plain
synchronous loop takes there at that moment: listdir, then for each file open, fstat, read and json.loads
(the **floor**); the **bare floor** is the same with openat and without json.loads. Times are medians; a
listing is measured without the ticker. The longest stall is the worst lateness of a 1 ms ticker on the
event loop during listings; idle is that of the same ticker while nothing happens for as long.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card, make_context
from drakkar_filesystem.registry import FilesystemRegistry

CARD_BYTES = 400
TICK_SECONDS = 0.001
MS = 1000

Times = dict[str, list[float]]


def write_cards(workers: Path, count: int, state: str) -> None:
    """Put a new card in the place of every one, as that many workers do at their heartbeats."""
    features = {"cache": {"cluster": {"key": "match|a", "ms": 1760348411000}}}
    for number in range(count):
        card = make_card(f"worker-{number}", state=state, features=features, x="")
        card["x"] = "x" * (CARD_BYTES - len(encode_card(card)))
        temporary = workers / ".card.tmp"
        temporary.write_bytes(encode_card(card))
        temporary.rename(workers / f"worker-{number}.json")


def read_plainly(workers: Path) -> None:
    for name in os.listdir(workers):  # noqa: PTH208  the quick way, to set the bar high
        with open(workers / name, "rb") as file:  # noqa: PTH123
            os.fstat(file.fileno())
            json.loads(file.read())


def read_barely(workers: Path) -> None:
    folder = os.open(workers, os.O_RDONLY | os.O_DIRECTORY)
    for name in os.listdir(folder):  # noqa: PTH208  there is no path of a descriptor
        file = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.fstat(file)
        os.read(file, 4097)
        os.close(file)
    os.close(folder)


def clock(times: list[float], function: Callable[[Path], None], workers: Path) -> None:
    began = time.perf_counter()
    function(workers)
    times.append(time.perf_counter() - began)


async def clock_call(times: list[float], call: Callable[[], Awaitable[object]]) -> None:
    began = time.perf_counter()
    await call()
    times.append(time.perf_counter() - began)


@asynccontextmanager
async def ticking(stalls: list[float]) -> AsyncIterator[None]:
    """Append how late the event loop was at worst for something that is due every millisecond."""
    stalls.append(0.0)

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            stalls[-1] = max(stalls[-1], time.perf_counter() - due)

    task = asyncio.create_task(tick())
    await asyncio.sleep(2 * TICK_SECONDS)
    yield
    task.cancel()


async def measure(path: Path, count: int, rounds: int) -> dict[str, float]:
    provider = FilesystemRegistry({"dir": str(path)})
    await provider.start(make_context("reader", timeout_seconds=600))
    own, workers = make_card("reader"), path / "workers"
    await provider.publish(own)
    times: Times = defaultdict(list)
    for number in range(rounds):
        write_cards(workers, count, f"state-{number % 10}")
        clock(times["floor"], read_plainly, workers)
        clock(times["bare_floor"], read_barely, workers)
        await clock_call(times["changed"], provider.list)
        await clock_call(times["unchanged"], provider.list)
        await clock_call(times["publish"], lambda: provider.publish(own))
        write_cards(workers, count, f"again-{number % 10}")
        async with ticking(times["stall"]):
            await provider.list()
            await provider.list()
        async with ticking(times["idle_stall"]):
            await asyncio.sleep(times["changed"][-1] + times["unchanged"][-1])
    await provider.stop()
    row = {f"{name}_ms": MS * statistics.median(values) for name, values in times.items()}
    row |= {f"{name}_ms": MS * max(times[name]) for name in ("stall", "idle_stall")}
    for name in ("changed", "unchanged"):
        row[f"{name}_ratio"] = row[f"{name}_ms"] / row["floor_ms"]
    return {"cards": count} | row


COLUMNS = {
    "cards": ("cards", "d"),
    "floor": ("floor_ms", ".2f"),
    "bare floor": ("bare_floor_ms", ".2f"),
    "all changed": ("changed_ms", ".2f"),
    "x floor": ("changed_ratio", ".2f"),
    "none changed": ("unchanged_ms", ".2f"),
    "x floor ": ("unchanged_ratio", ".2f"),
    "publish": ("publish_ms", ".2f"),
    "longest stall": ("stall_ms", ".1f"),
    "idle": ("idle_stall_ms", ".1f"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the filesystem provider against a plain loop.")
    parser.add_argument("--cards", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dir", help="where to make the folder; default: where temporary files go")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    rows = []
    print("milliseconds;", " | ".join(COLUMNS))
    for count in options.cards:
        with tempfile.TemporaryDirectory(dir=options.dir) as path:
            row = asyncio.run(measure(Path(path), count, options.rounds))
        rows.append(row)
        print(" | ".join(format(row[key], form).rjust(len(title)) for title, (key, form) in COLUMNS.items()))
    if options.json:
        options.json.write_text(json.dumps({"filesystem": rows}, indent=2))


if __name__ == "__main__":
    main()
