"""What cards and leases in Redis cost, beside tooz on the same server in the same run.

    python benchmarks/redis_store.py [--leases 1 10 100 1000] [--cards 1000] [--rounds 200] [--json F]

Starts a `redis-server` of its own. tooz is synchronous and polls; what it has that comes closest is measured:

- **renew**: `RedisLeases.renew` of all leases of a process, and a coordinator's `heartbeat` with as many.
- **acquire + release**: one lease, one lock.
- **hand-over**: from the call of `release` to the answer of a waiting candidate's `acquire`; with tooz in two
  threads, the waiting one in `acquire(blocking=True)`.
- **list**: all cards, and a group's members with their capabilities, which takes a call for each.
- **publish**: one card of 400 bytes, and `update_capabilities` with as many.
- **stall**: the longest that the event loop was held up while that went on, by a task that sleeps 1 ms at a
  time; what an idle loop has on this machine is in it.
"""

import argparse
import asyncio
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import redis
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from support.stalls import Stalls
from tooz import coordination

MS = 1000.0
GROUP = b"fleet"
CARD = make_card("worker-0", x="x" * 150)


@contextmanager
def running_server() -> Iterator[int]:
    """A server without persistence; gives its port."""
    with create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port) as client:
                until = time.monotonic() + 30
                while True:
                    try:
                        client.ping()
                        break
                    except redis.ConnectionError:
                        if time.monotonic() > until:
                            raise
                        time.sleep(0.02)
            yield port
        finally:
            process.terminate()
            process.wait()


@contextmanager
def coordinator(port: int, member: str) -> Iterator[Any]:
    made = coordination.get_coordinator(f"redis://127.0.0.1:{port}?timeout=600", member.encode())
    made.start()
    try:
        yield made
    finally:
        made.stop()


async def started(port: int, worker: str) -> RedisLeases:
    backend = RedisLeases({"url": f"redis://127.0.0.1:{port}"})
    await backend.start(make_context(worker, ttl_seconds=600, timeout_seconds=60))
    return backend


def clock(call: Callable[[], object], rounds: int) -> float:
    """The median of how long it takes, in milliseconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return MS * statistics.median(times)


async def async_clock(call: Callable[[], Awaitable[object]], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
    return MS * statistics.median(times)


async def longest_stall(call: Callable[[], Awaitable[object]], rounds: int) -> float:
    """In milliseconds."""
    stalls = Stalls()
    async with stalls.looked_for():
        for _ in range(rounds):
            await call()
            await asyncio.sleep(0.003)
    return stalls.worst_ms


async def acquired(backend: RedisLeases, name: str) -> Lease:
    answer = await backend.acquire(name)
    assert isinstance(answer, Lease)
    return answer


async def measure_renewals(port: int, count: int) -> dict[str, float]:
    backend = await started(port, "worker-1")
    leases = [await acquired(backend, f"job-{number}") for number in range(count)]
    ours = await async_clock(lambda: backend.renew(leases), 30)
    stall = await longest_stall(lambda: backend.renew(leases), 30)
    for lease in leases:
        await backend.release(lease.name, lease.token)
    await backend.stop()
    with coordinator(port, "member-1") as other:
        locks = [other.get_lock(f"lock-{number}".encode()) for number in range(count)]
        assert all(lock.acquire() for lock in locks)
        theirs = clock(other.heartbeat, 10)
        for lock in locks:
            lock.release()
    return {"leases": count, "ours_ms": ours, "tooz_ms": theirs, "ratio": ours / theirs, "stall_ms": stall}


async def measure_acquiring(port: int, rounds: int) -> dict[str, float]:
    backend = await started(port, "worker-1")

    async def once() -> None:
        await backend.release("job", (await acquired(backend, "job")).token)

    ours = await async_clock(once, rounds)
    await backend.stop()
    with coordinator(port, "member-1") as other:
        lock = other.get_lock(b"lock")
        theirs = clock(lambda: lock.acquire() and lock.release(), rounds)
    return {"ours_ms": ours, "tooz_ms": theirs, "ratio": ours / theirs}


async def hand_over(port: int, rounds: int) -> list[float]:
    holder, waiter = await started(port, "worker-1"), await started(port, "worker-2")
    lease, times = await acquired(holder, "job"), []
    for _ in range(rounds):
        assert isinstance(await waiter.acquire("job"), Held)
        waiting = asyncio.create_task(waiter.wait(["job"], 60))
        await asyncio.sleep(0.03)
        began = time.perf_counter()
        releasing = asyncio.create_task(holder.release("job", lease.token))
        await waiting
        lease = await acquired(waiter, "job")
        times.append(MS * (time.perf_counter() - began))
        await releasing
        holder, waiter = waiter, holder
    await holder.stop()
    await waiter.stop()
    return sorted(times)


def tooz_hand_over(port: int, rounds: int) -> list[float]:
    times: list[float] = []
    with coordinator(port, "member-1") as one, coordinator(port, "member-2") as two:
        holder, waiter = one.get_lock(b"lock"), two.get_lock(b"lock")
        holder.acquire()
        for _ in range(rounds):
            got: list[float] = []

            def wait(lock: Any = waiter, got: list[float] = got) -> None:
                lock.acquire(blocking=True)
                got.append(time.perf_counter())

            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.03 + 0.1 * (time.perf_counter_ns() % 1000) / 1000)  # not in step with its looks
            began = time.perf_counter()
            holder.release()
            thread.join()
            times.append(MS * (got[0] - began))
            holder, waiter = waiter, holder
        holder.release()
    return sorted(times)


def spread(times: list[float]) -> dict[str, float]:
    return {"median_ms": statistics.median(times), "p99_ms": times[int(0.99 * (len(times) - 1))]}


async def measure_cards(port: int, count: int, rounds: int) -> dict[str, dict[str, float]]:
    provider = RedisRegistry({"url": f"redis://127.0.0.1:{port}"})
    await provider.start(make_card_context("worker-0", timeout_seconds=60))
    for number in range(count):
        await provider.publish({**CARD, "worker": f"worker-{number}"})
    assert len(await provider.list()) == count
    listing = await async_clock(provider.list, 30)
    publishing = await async_clock(lambda: provider.publish(CARD), rounds)
    stall = await longest_stall(provider.list, 30)
    await provider.stop()
    text = json.dumps(CARD)
    with coordinator(port, "member-0") as other:
        other.create_group(GROUP).get()
        other.join_group(GROUP, capabilities=text).get()
        their_publishing = clock(lambda: other.update_capabilities(GROUP, text).get(), rounds)
        with redis.Redis(port=port) as client:  # as if so many had joined, each of which takes a while
            group = other._encode_group_id(GROUP)
            mine = client.hget(group, b"member-0")
            for number in range(1, count):
                client.hset(group, f"member-{number}".encode(), mine)
                client.set(other._encode_beat_id(f"member-{number}".encode()), "alive")

        def list_members() -> None:
            alive = other.get_members(GROUP).get()
            assert len(alive) == count
            for each in alive:
                other.get_member_capabilities(GROUP, each).get()

        their_listing = clock(list_members, 3)
    return {
        "list": {
            "cards": count,
            "ours_ms": listing,
            "tooz_ms": their_listing,
            "ratio": listing / their_listing,
            "stall_ms": stall,
        },
        "publish": {
            "ours_ms": publishing,
            "tooz_ms": their_publishing,
            "ratio": publishing / their_publishing,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time cards and leases in Redis beside tooz.")
    parser.add_argument("--leases", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--cards", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with running_server() as port:
        renewals = [asyncio.run(measure_renewals(port, count)) for count in options.leases]
        acquiring = asyncio.run(measure_acquiring(port, options.rounds))
        ours = spread(asyncio.run(hand_over(port, options.rounds)))
        theirs = spread(tooz_hand_over(port, min(50, options.rounds)))
        cards = asyncio.run(measure_cards(port, options.cards, options.rounds))
    print("milliseconds              |     ours |     tooz | x tooz | stall")
    for row in renewals:
        line(f"renew {row['leases']}", row)
    line("acquire + release", acquiring)
    for what in ("median_ms", "p99_ms"):
        label = f"hand-over, {what.removesuffix('_ms')}"
        line(label, {"ours_ms": ours[what], "tooz_ms": theirs[what], "ratio": ours[what] / theirs[what]})
    line(f"list {options.cards} cards", cards["list"])
    line("publish", cards["publish"])
    if options.json:
        hand_overs = {"ours": ours, "tooz": theirs}
        found = {"renewals": renewals, "acquire_release": acquiring, "hand_over": hand_overs, **cards}
        options.json.write_text(json.dumps(found, indent=2))


def line(label: str, row: Mapping[str, float]) -> None:
    stall = f"{row['stall_ms']:5.1f}" if "stall_ms" in row else ""
    print(f"{label:25} | {row['ours_ms']:8.2f} | {row['tooz_ms']:8.2f} | {row['ratio']:6.3f} | {stall}")


if __name__ == "__main__":
    main()
