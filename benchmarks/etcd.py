"""What cards and leases in etcd cost, beside tooz 9 on the same server in the same run.

    python benchmarks/etcd.py [--leases 1 10 100 1000] [--cards 1000] [--rounds 30] [--json F]

tooz is the library that had leases in etcd before; its driver `etcd3gw` speaks to the same JSON gateway.
Rounds of one and of the other take turns, on an etcd that this script starts.

A renewal is what a process does each period for all the leases that it holds: `renew` here, `heartbeat`
there. A hand-over is from the call of `release` to the answer of the waiting worker's `acquire`, both in
this process; the waiting worker of tooz polls. A listing is of cards that have not changed since the last
one; tooz has members with capabilities. A publish is `update_capabilities` there. `stall` is by how much
the event loop was late at most while our part ran; `idle` is the same with nothing to do.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_etcd.leases import EtcdLeases
from drakkar_etcd.registry import EtcdRegistry
from support.etcd_servers import Etcd, single
from support.stalls import Stalls
from tooz import coordination

MS = 1000
TTL_SECONDS = 600
AT_ONCE = 16
GROUP = b"fleet"


class Bench:
    """One server, one event loop for us, and a tooz coordinator of one member at a time."""

    def __init__(self, server: Etcd, runner: asyncio.Runner, rounds: int) -> None:
        self.server = server
        self.runner = runner
        self.rounds = rounds
        self.stalls = Stalls()
        self._options = {"endpoints": [server.endpoint]}

    async def leases(self, worker: str) -> EtcdLeases:
        backend = EtcdLeases(self._options)
        await backend.start(make_context(worker, ttl_seconds=TTL_SECONDS, timeout_seconds=60))
        return backend

    async def registry(self, worker: str) -> EtcdRegistry:
        registry = EtcdRegistry(self._options)
        await registry.start(make_card_context(worker, timeout_seconds=60))
        return registry

    def tooz(self, member: str) -> Any:
        url = f"etcd3+http://127.0.0.1:{self.server.port}?timeout={TTL_SECONDS}"
        coordinator = coordination.get_coordinator(url, member.encode())
        coordinator.start()
        return coordinator

    def ours(self, call: Callable[[], Awaitable[object]]) -> float:
        async def timed() -> float:
            async with self.stalls.looked_for():
                began = time.perf_counter()
                await call()
                return time.perf_counter() - began

        return self.runner.run(timed())

    def in_turns(
        self, ours: Callable[[], Awaitable[object]], theirs: Callable[[], object], rounds: int
    ) -> dict[str, float]:
        """The medians of both, in milliseconds."""
        gc.collect()
        gc.freeze()  # else a full collection of what others left, 40 ms of it, is told as a stall of ours
        mine, other = [], []
        for _ in range(rounds):
            mine.append(self.ours(ours))
            began = time.perf_counter()
            theirs()
            other.append(time.perf_counter() - began)
        return _row(mine, other)


def _row(mine: list[float], other: list[float]) -> dict[str, float]:
    ours, theirs = MS * statistics.median(mine), MS * statistics.median(other)
    return {"ours_ms": ours, "tooz_ms": theirs, "ratio": ours / theirs}


def _p99(times: list[float]) -> float:
    return MS * sorted(times)[int(0.99 * (len(times) - 1))]


async def acquire_all(backend: EtcdLeases, names: list[str]) -> list[Lease]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Lease | Held:
        async with slots:
            return await backend.acquire(name)

    answers = await asyncio.gather(*(one(name) for name in names))
    return [lease for lease in answers if isinstance(lease, Lease)]


def renewals(bench: Bench, count: int) -> dict[str, float]:
    names = [f"job-leader-{number}" for number in range(count)]
    backend = bench.runner.run(bench.leases("worker-1"))
    leases = bench.runner.run(acquire_all(backend, names))
    assert len(leases) == count
    coordinator = bench.tooz("worker-1")
    locks = [coordinator.get_lock(name.encode()) for name in names]
    assert all(lock.acquire() for lock in locks)

    async def renew() -> None:
        renewal = await backend.renew(leases)
        assert len(renewal.kept) == count, renewal.lost

    row = bench.in_turns(renew, coordinator.heartbeat, max(5, bench.rounds * 10 // (10 + count)))

    async def give_back() -> None:
        for lease in leases:
            await backend.release(lease.name, lease.token)
        await backend.stop()

    bench.runner.run(give_back())
    for lock in locks:
        lock.release()
    coordinator.stop()
    return row


def acquire_and_release(bench: Bench) -> dict[str, float]:
    backend = bench.runner.run(bench.leases("worker-1"))
    coordinator = bench.tooz("worker-1")
    lock = coordinator.get_lock(b"job-leader")

    async def take_and_give() -> None:
        lease = await backend.acquire("job-leader")
        assert isinstance(lease, Lease)
        await backend.release(lease.name, lease.token)

    def tooz_take_and_give() -> None:
        assert lock.acquire()
        assert lock.release()

    row = bench.in_turns(take_and_give, tooz_take_and_give, 5 * bench.rounds)
    bench.runner.run(backend.stop())
    coordinator.stop()
    return row


def hand_over(bench: Bench) -> dict[str, float]:
    holder, waiter = (bench.runner.run(bench.leases(name)) for name in ("worker-1", "worker-2"))
    pair = [bench.tooz(name) for name in ("worker-1", "worker-2")]
    mine, other = [], []
    lease = bench.runner.run(holder.acquire("handed-over"))

    async def hand(lease: Lease) -> tuple[float, Lease]:
        assert isinstance(await waiter.acquire("handed-over"), Held)
        waiting = asyncio.create_task(waiter.wait(["handed-over"], 60))
        await asyncio.sleep(0.05)
        async with bench.stalls.looked_for():
            began = time.perf_counter()
            releasing = asyncio.create_task(holder.release("handed-over", lease.token))
            await waiting
            taken = await waiter.acquire("handed-over")
            took = time.perf_counter() - began
            await releasing
        assert isinstance(taken, Lease)
        return took, taken

    for number in range(2 * bench.rounds):
        assert isinstance(lease, Lease)
        took, lease = bench.runner.run(hand(lease))
        mine.append(took)
        holder, waiter = waiter, holder
        if number % 10 == 0:
            other.append(_tooz_hand_over(*pair))
    for backend in (holder, waiter):
        bench.runner.run(backend.stop())
    for coordinator in pair:
        coordinator.stop()
    return {**_row(mine, other), "p99_ms": _p99(mine)}


def _tooz_hand_over(first: Any, second: Any) -> float:
    held, wanted = first.get_lock(b"handed-over"), second.get_lock(b"handed-over")
    assert held.acquire()
    ended = []
    waiting = threading.Thread(target=lambda: ended.append((wanted.acquire(), time.perf_counter())))
    waiting.start()
    time.sleep(0.5)
    began = time.perf_counter()
    held.release()
    waiting.join()
    wanted.release()
    return float(ended[0][1] - began)


def cards(bench: Bench, count: int) -> dict[str, dict[str, float]]:
    """Listing `count` unchanged ones, and publishing one of them."""
    registry = bench.runner.run(bench.registry("worker-0"))
    coordinator = bench.tooz("worker-0")
    coordinator.create_group(GROUP).get()
    coordinator.join_group(GROUP, make_card("worker-0")).get()
    body = [make_card(f"worker-{number}", features={"x": "x" * 150}) for number in range(count)]
    client = coordinator.client

    async def publish_all() -> None:
        for card in body:
            await registry.publish(card)
        while any(peer.age_seconds is None for peer in await registry.list()):  # noqa: ASYNC110  nothing to wait on
            await asyncio.sleep(0.1)

    bench.runner.run(publish_all())
    for number, card in enumerate(body[1:], 1):
        from tooz import utils

        client.put(f"tooz/groups/fleet/worker-{number}", utils.dumps(card))

    async def list_all() -> None:
        assert len(await registry.list()) == count

    def tooz_list() -> None:
        assert len(coordinator.get_members_with_capabilities(GROUP).get()) == count

    listing = bench.in_turns(list_all, tooz_list, bench.rounds)
    publish = bench.in_turns(
        lambda: registry.publish(body[0]),
        lambda: coordinator.update_capabilities(GROUP, body[0]).get(),
        5 * bench.rounds,
    )
    bench.runner.run(registry.stop())
    coordinator.stop()
    return {f"list {count} cards": listing, "publish": publish}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time cards and leases in etcd beside tooz.")
    parser.add_argument("--leases", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--cards", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    print("milliseconds, median      |   ours |    tooz | x tooz")

    def show(title: str, row: dict[str, float]) -> None:
        rows[title] = row
        more = f" | p99 {row['p99_ms']:.2f}" if "p99_ms" in row else ""
        print(f"{title:25} | {row['ours_ms']:6.2f} | {row['tooz_ms']:7.2f} | {row['ratio']:6.3f}{more}")

    with (
        tempfile.TemporaryDirectory() as folder,
        single(Path(folder) / "etcd") as server,
        asyncio.Runner() as runner,
    ):
        bench = Bench(server, runner, options.rounds)
        bench.ours(lambda: asyncio.sleep(1))
        idle_ms, bench.stalls.worst_ms = bench.stalls.worst_ms, 0.0
        for count in options.leases:
            show(f"renew {count}", renewals(bench, count))
        show("acquire and release", acquire_and_release(bench))
        show("hand-over", hand_over(bench))
        for title, row in cards(bench, options.cards).items():
            show(title, row)
    print(f"longest stall of the event loop: {bench.stalls.worst_ms:.1f} ms, idle {idle_ms:.1f} ms")
    if options.json:
        stalls = {"longest_stall_ms": bench.stalls.worst_ms, "idle_stall_ms": idle_ms}
        options.json.write_text(json.dumps({**rows, **stalls}, indent=2))


if __name__ == "__main__":
    main()
