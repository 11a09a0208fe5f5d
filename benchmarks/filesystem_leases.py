"""What leases in a folder cost: renewing many, and handing one over.

    python benchmarks/filesystem_leases.py [--leases 1 10 100 1000] [--rounds 200] [--dir FOLDER] [--json F]

Everything is measured in one run on one folder, in turns with a **floor** that a plain synchronous program
needs there at that moment. For a renewal that is: open, read, write and close each record, and list its
folder. For a hand-over: write a file, link it, and flush file and folder to the disk, which is what a grant
has to do at least.

A hand-over is from the call of `release` to the answer of the waiting worker's `acquire`, both in this
process, once where the kernel tells of changes and once by looking alone, as between hosts. `standby` is the
CPU time, in parts of a core, of a worker that waits for all of the leases of another one on the same host.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_filesystem._lease_record import COUNTER_AT, counter_field, place_of
from drakkar_filesystem.leases import FilesystemLeases

MS = 1000
TTL_SECONDS = 600.0
PERIODS = 15
STANDBY_SECONDS = 12.0
AT_ONCE = 16


async def start(path: Path, worker: str, **options: str) -> FilesystemLeases:
    backend = FilesystemLeases({"dir": str(path), **options})
    await backend.start(make_context(worker, ttl_seconds=TTL_SECONDS, timeout_seconds=600))
    return backend


async def acquire_all(backend: FilesystemLeases, names: list[str]) -> list[Lease | Held]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Lease | Held:
        async with slots:
            return await backend.acquire(name)

    return await asyncio.gather(*(one(name) for name in names))


def renew_plainly(path: Path, leases: list[Lease]) -> None:
    top = os.open(path / "leases", os.O_RDONLY | os.O_DIRECTORY)
    for lease in leases:
        place = os.open(place_of(lease.name), os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)
        file = os.open(str(lease.token), os.O_RDWR, dir_fd=place)
        os.pread(file, 8193, 0)
        os.pwrite(file, counter_field(0), COUNTER_AT)
        os.close(file)
        os.listdir(place)  # noqa: PTH208  there is no path of a descriptor
        os.close(place)
    os.close(top)


def grant_plainly(folder: Path) -> None:
    file = os.open(folder / "new", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(file, b"x" * 300)
    (folder / "linked").hardlink_to(folder / "new")
    os.fsync(file)
    os.close(file)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(place)
    os.close(place)
    (folder / "new").unlink()
    (folder / "linked").unlink()


def clock(function: Callable[[], None]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


async def measure_renewals(path: Path, count: int) -> dict[str, float]:
    holder, standby = await start(path, "holder"), await start(path, "standby")
    names = [f"job-leader-{number}" for number in range(count)]
    began = time.perf_counter()
    leases = [lease for lease in await acquire_all(holder, names) if isinstance(lease, Lease)]
    acquired = time.perf_counter() - began
    floors, renewals = [], []
    for _ in range(PERIODS):
        floors.append(clock(lambda: renew_plainly(path, leases)))
        began = time.perf_counter()
        renewal = await holder.renew(leases)
        renewals.append(time.perf_counter() - began)
        assert len(renewal.kept) == count, renewal.lost
    await acquire_all(standby, names)
    await standby.wait(names, 0)
    began, used = time.perf_counter(), time.process_time()
    await standby.wait(names, STANDBY_SECONDS)
    share = (time.process_time() - used) / (time.perf_counter() - began)
    for lease in leases:
        await holder.release(lease.name, lease.token)
    await holder.stop()
    await standby.stop()
    floor, renew = MS * statistics.median(floors), MS * statistics.median(renewals)
    return {
        "leases": count,
        "acquire_each_ms": MS * acquired / count,
        "floor_ms": floor,
        "renew_ms": renew,
        "renew_ratio": renew / floor,
        "standby_percent": 100 * share,
    }


async def measure_hand_over(path: Path, rounds: int, *, told: bool) -> dict[str, float]:
    # Of another host the kernel tells nothing, so its leases are looked at.
    first = await start(path, "first", **({} if told else {"boot_id": "host-1"}))
    second = await start(path, "second", **({} if told else {"boot_id": "host-2"}))
    folder = path / "plain"
    folder.mkdir()
    if not told:
        for backend in (first, second):
            backend._notices.watch = lambda *_: False  # type: ignore[method-assign]  # across hosts
    name = "handed-over"
    floors, times = [], []
    holder, waiter = first, second
    lease = await holder.acquire(name)
    for _ in range(rounds):
        assert isinstance(lease, Lease)
        assert isinstance(await waiter.acquire(name), Held)
        waiting = asyncio.create_task(waiter.wait([name], 60))
        await asyncio.sleep(0.05 + 0.2 * (time.perf_counter_ns() % 1000) / 1000)  # not in step with the looks
        floors.append(clock(lambda: grant_plainly(folder)))
        began = time.perf_counter()
        releasing = asyncio.create_task(holder.release(name, lease.token))
        await waiting
        lease = await waiter.acquire(name)
        times.append(time.perf_counter() - began)
        await releasing
        holder, waiter = waiter, holder
    await first.stop()
    await second.stop()
    times.sort()
    floor, median = MS * statistics.median(floors), MS * statistics.median(times)
    return {
        "floor_ms": floor,
        "median_ms": median,
        "p99_ms": MS * times[int(0.99 * (len(times) - 1))],
        "ratio": median / floor,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time leases in a folder against plain programs.")
    parser.add_argument("--leases", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--dir", help="where to make the folder; default: where temporary files go")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    renewals, hand_overs = [], {}
    print("milliseconds; leases | first acquire, each | floor | renew all | x floor | standby, % of a core")
    for count in options.leases:
        with tempfile.TemporaryDirectory(dir=options.dir) as path:
            row = asyncio.run(measure_renewals(Path(path), count))
        renewals.append(row)
        print(
            f"{count:6} | {row['acquire_each_ms']:6.2f} | {row['floor_ms']:7.2f} | {row['renew_ms']:7.2f}"
            f" | {row['renew_ratio']:5.2f} | {row['standby_percent']:5.2f}"
        )
    print("milliseconds; hand-over | floor | median | p99 | x floor")
    for title, told in (("told by the kernel", True), ("looking alone", False)):
        with tempfile.TemporaryDirectory(dir=options.dir) as path:
            row = asyncio.run(measure_hand_over(Path(path), options.rounds, told=told))
        hand_overs[title] = row
        print(
            f"{title:18} | {row['floor_ms']:6.2f} | {row['median_ms']:7.2f} | {row['p99_ms']:7.2f}"
            f" | {row['ratio']:6.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps({"renewals": renewals, "hand_over": hand_overs}, indent=2))


if __name__ == "__main__":
    main()
