"""What cards and leases in Consul cost, beside the same requests by a plain aiohttp session in the same run.

    python benchmarks/consul_store.py [--leases 1 10 100 1000] [--cards 1000] [--rounds 30] [--json FILE]

Rounds of one and of the other take turns, on an agent that this script starts. The **floor** sends, one after
the other, the HTTP requests that our call needs, reads the answers, and takes apart the JSON of those that
hold something: for a renewal the session and all keys of the leases, for acquire and release the state of the
key, the session and two transactions, for a listing all keys with their values as cards. It asks for no
compression either, which takes an agent several times as long as the answer.

A hand-over is from the call of `release` to the answer of the waiting worker's `acquire`, both in this
process. Renewals and listings are of keys of which none, one or all have changed since the last one.

The longest stall is by how much the event loop was late at most while our part ran, on a machine that may
be busy with other things; of its own making is the processor time that the loop used meanwhile, in which a
full collection of garbage may fall, the longest of which is told too; idle is the first with nothing to do.
"""

import argparse
import asyncio
import base64
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import aiohttp
from drakkar.fleet.card import encode_card
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_consul.leases import ConsulLeases
from drakkar_consul.registry import ConsulRegistry
from support.consul_servers import Consul, agent

MS = 1000
TTL_SECONDS = 600
AT_ONCE = 16
OPS_AT_ONCE = 64
CARD_BYTES = 400
PREFIX = "drakkar"

Call = Callable[[], Awaitable[object]]
Times = tuple[float, float]
"""Of one call: seconds on the wall, seconds of this process on a processor."""


class Bench:
    """One agent, and a plain session to it."""

    def __init__(self, server: Consul, session: aiohttp.ClientSession, rounds: int) -> None:
        self.options = {"address": server.address, "prefix": PREFIX}
        self.rounds = rounds
        self.stall_ms = self.busy_ms = self.collect_ms = 0.0
        self._url = f"{server.address}/v1"
        self._session = session

    async def leases(self, worker: str) -> ConsulLeases:
        backend = ConsulLeases(self.options)
        await backend.start(make_context(worker, ttl_seconds=TTL_SECONDS, timeout_seconds=60))
        return backend

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        async with self._session.request(method, self._url + path, json=body) as answer:
            return json.loads(await answer.read())

    async def transact(self, *ops: dict[str, object]) -> Any:
        return await self.ask("PUT", "/txn", [{"KV": op} for op in ops])

    @asynccontextmanager
    async def looked_for_stalls(self) -> AsyncIterator[None]:
        async def tick() -> None:
            while True:
                began, used = time.perf_counter(), time.thread_time()
                await asyncio.sleep(0.001)
                self.stall_ms = max(self.stall_ms, MS * (time.perf_counter() - began - 0.001))
                self.busy_ms = max(self.busy_ms, MS * (time.thread_time() - used))

        began = 0.0

        def collecting(phase: str, info: dict[str, int]) -> None:
            nonlocal began
            if phase == "start":
                began = time.perf_counter()
            elif info["generation"] == 2:
                self.collect_ms = max(self.collect_ms, MS * (time.perf_counter() - began))

        gc.callbacks.append(collecting)
        ticker = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticker.cancel()
            await asyncio.wait({ticker})
            gc.callbacks.remove(collecting)

    async def in_turns(
        self, ours: Call, floor: Call, rounds: int, before: Call | None = None
    ) -> dict[str, float]:
        """The medians of both, in milliseconds, each without what is done `before` it."""
        gc.collect()  # what was measured before has left much to collect
        mine: list[Times] = []
        plain: list[Times] = []
        for _ in range(rounds):
            for times, call in ((mine, ours), (plain, floor)):
                if before is not None:
                    await before()
                began, used = time.perf_counter(), time.process_time()
                await call()
                times.append((time.perf_counter() - began, time.process_time() - used))
            if before is not None:
                await before()
            async with self.looked_for_stalls():
                await ours()
        return row_of(mine, plain)


def row_of(mine: list[Times], plain: list[Times]) -> dict[str, float]:
    ours, our_cpu = (MS * statistics.median(column) for column in zip(*mine, strict=True))
    floor, floor_cpu = (MS * statistics.median(column) for column in zip(*plain, strict=True))
    return {
        "ours_ms": ours,
        "floor_ms": floor,
        "ratio": ours / floor,
        "ours_cpu_ms": our_cpu,
        "floor_cpu_ms": floor_cpu,
    }


async def acquire_all(backend: ConsulLeases, names: list[str]) -> list[Lease]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Lease | Held:
        async with slots:
            return await backend.acquire(name)

    answers = await asyncio.gather(*(one(name) for name in names))
    return [lease for lease in answers if isinstance(lease, Lease)]


async def renewals(bench: Bench, count: int) -> dict[str, dict[str, float]]:
    backend = await bench.leases("worker-1")
    leases = await acquire_all(backend, [f"job-leader-{number}" for number in range(count)])
    assert len(leases) == count
    session = backend._session.id

    async def renew() -> None:
        renewal = await backend.renew(leases)
        assert len(renewal.kept) == count, renewal.lost

    async def floor() -> None:
        await bench.ask("PUT", f"/session/renew/{session}")
        await bench.ask("GET", f"/kv/{PREFIX}/leases/?recurse=1")

    async def change_another() -> None:
        await bench.ask("PUT", f"/kv/{PREFIX}/leases/of-another", time.monotonic())

    rounds = max(5, bench.rounds * 100 // (100 + count))
    rows = {f"renew {count}": await bench.in_turns(renew, floor, rounds)}
    rows[f"renew {count}, one changed"] = await bench.in_turns(renew, floor, rounds, change_another)
    for lease in leases:
        await backend.release(lease.name, lease.token)
    await backend.stop()
    await bench.ask("DELETE", f"/kv/{PREFIX}/leases/?recurse=1")
    return rows


async def acquire_and_release(bench: Bench) -> dict[str, float]:
    backend = await bench.leases("worker-1")
    session = (await bench.ask("PUT", "/session/create", {"TTL": "600s", "Checks": []}))["ID"]
    key = f"{PREFIX}/plain"
    await bench.transact({"Verb": "set", "Key": key, "Value": ""})
    value = base64.b64encode(b"x" * 80).decode()

    async def take_and_give() -> None:
        lease = await backend.acquire("job-leader")
        assert isinstance(lease, Lease)
        await backend.release(lease.name, lease.token)

    async def floor() -> None:
        [entry] = await bench.ask("GET", f"/kv/{key}")
        await bench.ask("PUT", f"/session/renew/{session}")
        check = {"Verb": "check-index", "Key": key, "Index": entry["ModifyIndex"]}
        locked = await bench.transact(
            check, check, {"Verb": "lock", "Key": key, "Session": session, "Value": value}
        )
        index = locked["Results"][-1]["KV"]["ModifyIndex"]
        await bench.transact(
            {"Verb": "check-index", "Key": key, "Index": index},
            {"Verb": "unlock", "Key": key, "Session": session, "Value": ""},
        )

    row = await bench.in_turns(take_and_give, floor, 5 * bench.rounds)
    await backend.stop()
    return row


async def hand_over(bench: Bench) -> dict[str, float]:
    holder, waiter = await bench.leases("worker-1"), await bench.leases("worker-2")
    times = []
    lease = await holder.acquire("handed-over")
    for _ in range(5 * bench.rounds):
        assert isinstance(lease, Lease)
        assert isinstance(await waiter.acquire("handed-over"), Held)
        waiting = asyncio.create_task(waiter.wait(["handed-over"], 60))
        await asyncio.sleep(0.05)
        async with bench.looked_for_stalls():
            began = time.perf_counter()
            releasing = asyncio.create_task(holder.release("handed-over", lease.token))
            await waiting
            lease = await waiter.acquire("handed-over")
            times.append(time.perf_counter() - began)
            await releasing
        holder, waiter = waiter, holder
    assert isinstance(lease, Lease)
    await holder.release("handed-over", lease.token)
    for backend in (holder, waiter):
        await backend.stop()
    times.sort()
    return {"median_ms": MS * statistics.median(times), "p99_ms": MS * times[int(0.99 * (len(times) - 1))]}


async def cards(bench: Bench, count: int) -> dict[str, dict[str, float]]:
    registry = ConsulRegistry(bench.options)
    await registry.start(make_card_context("worker-0", timeout_seconds=60))
    body = [make_card(f"worker-{number}", x="") for number in range(count)]
    for card in body:
        card["x"] = "x" * (CARD_BYTES - len(encode_card(card)))
        await registry.publish(card)

    async def list_all() -> None:
        assert len(await registry.list()) == count

    async def change(cards: list[dict[str, Any]]) -> None:
        for card in cards:
            card["x"] = "yx"[card["x"][:1] == "y"] * len(card["x"])
        for at in range(0, len(cards), OPS_AT_ONCE):
            await bench.transact(*(set_card(card) for card in cards[at : at + OPS_AT_ONCE]))

    async def floor() -> None:
        entries = await bench.ask("GET", f"/kv/{PREFIX}/cards/?recurse=1")
        assert len([json.loads(base64.b64decode(entry["Value"])) for entry in entries]) == count

    rows = {
        "list, all changed": await bench.in_turns(list_all, floor, bench.rounds, lambda: change(body)),
        "list, one changed": await bench.in_turns(list_all, floor, bench.rounds, lambda: change(body[:1])),
        "list, none changed": await bench.in_turns(list_all, floor, bench.rounds),
    }
    session = (await bench.ask("PUT", "/session/create", {"TTL": "600s", "Checks": []}))["ID"]
    value = base64.b64encode(encode_card(body[0])).decode()
    key = f"{PREFIX}/plain-card"
    index = (await bench.transact({"Verb": "set", "Key": key, "Value": ""}))["Results"][0]["KV"][
        "ModifyIndex"
    ]
    number = 0

    async def publish_plainly() -> None:
        nonlocal index, number
        number += 1
        done = await bench.transact(
            {"Verb": "check-index", "Key": key, "Index": index},
            {"Verb": "lock", "Key": key, "Session": session, "Value": value, "Flags": number},
        )
        index = done["Results"][-1]["KV"]["ModifyIndex"]

    rows["publish"] = await bench.in_turns(
        lambda: registry.publish(body[0]), publish_plainly, 5 * bench.rounds
    )
    await registry.stop()
    return rows


def set_card(card: dict[str, Any]) -> dict[str, object]:
    value = base64.b64encode(encode_card(card)).decode()
    return {"Verb": "set", "Key": f"{PREFIX}/cards/{card['worker']}", "Value": value}


async def measure(server: Consul, options: argparse.Namespace) -> dict[str, Any]:
    async with aiohttp.ClientSession(headers={"Accept-Encoding": "identity"}) as session:
        bench = Bench(server, session, options.rounds)
        async with bench.looked_for_stalls():
            await asyncio.sleep(1)
        idle, bench.stall_ms, bench.busy_ms, bench.collect_ms = bench.stall_ms, 0.0, 0.0, 0.0
        rows: dict[str, dict[str, float]] = {}
        for count in options.leases:
            rows |= await renewals(bench, count)
        rows["acquire + release"] = await acquire_and_release(bench)
        handed = await hand_over(bench)
        rows |= await cards(bench, options.cards)
        stalls = {"stall_ms": bench.stall_ms, "busy_ms": bench.busy_ms, "idle_ms": idle}
        stalls["collect_ms"] = bench.collect_ms
        return {"rows": rows, "hand_over": handed, **stalls}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time cards and leases in Consul against plain requests.")
    parser.add_argument("--leases", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--cards", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, agent(Path(folder)) as server:
        found = asyncio.run(measure(server, options))
    print("milliseconds            |    ours |   floor | x floor | processor: ours |   floor")
    for title, row in found["rows"].items():
        print(
            f"{title:23} | {row['ours_ms']:7.2f} | {row['floor_ms']:7.2f} | {row['ratio']:7.2f}"
            f" | {row['ours_cpu_ms']:15.2f} | {row['floor_cpu_ms']:7.2f}"
        )
    handed = found["hand_over"]
    print(f"hand-over: median {handed['median_ms']:.2f}, p99 {handed['p99_ms']:.2f}")
    print(
        f"longest stall of the event loop: {found['stall_ms']:.1f}; of its own making at most"
        f" {found['busy_ms']:.1f}; longest full collection {found['collect_ms']:.1f}; idle"
        f" {found['idle_ms']:.1f}"
    )
    if options.json:
        options.json.write_text(json.dumps({"consul": found}, indent=2))


if __name__ == "__main__":
    main()
