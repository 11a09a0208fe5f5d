"""How fast `GET /api/v1/workers` is with 1000 peers, beside serialising the same list afresh each time.

    python benchmarks/workers_list.py [--peers 1000] [--seconds 2] [--json FILE]

Both run in turns in one process, through the same application without a socket; figures are requests per
second of this process and their ratio.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from drakkar.clock import SystemClock
from drakkar.fleet.identity import WorkerIdentity, WorkerState
from drakkar.fleet.service import Peer, RegistryHealth
from drakkar.fleet.testkit import make_card
from drakkar.server.fleet_api import ServedIdentity, fleet_router, worker_rows
from drakkar.server.timeline import Timeline
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.types import Message, Scope


class View:
    """A fleet that stands still."""

    state: WorkerState = "running"

    def __init__(self, peers: int) -> None:
        identity = WorkerIdentity("worker-0", "search", "http://10.0.0.1/", "0.1.0", datetime.now(UTC))
        self.served = ServedIdentity(identity, "10.0.0.1", 80, "none", "none", "")
        cards = [make_card(f"worker-{number}", cluster="search") for number in range(1, peers + 1)]
        self._peers = tuple(Peer(card, 1.0, "online") for card in cards)
        self.timeline = Timeline()

    def now_ts(self) -> float:
        return time.time()

    def peers(self) -> Sequence[Peer]:
        return self._peers

    def listing(self) -> object:
        return self._peers

    def leader_for(self) -> Sequence[str]:
        return ()

    def registry_health(self) -> RegistryHealth | None:
        return None


async def request(app: FastAPI, path: str) -> None:
    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        assert message.get("status", 200) == 200

    scope: Scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    await app(scope, receive, send)


async def per_second(app: FastAPI, path: str, seconds: float) -> float:
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        await request(app, path)
        count += 1
    return count / (time.perf_counter() - began)


async def measure(peers: int, seconds: float) -> dict[str, float]:
    view, app = View(peers), FastAPI()
    app.include_router(fleet_router(view, SystemClock()))

    @app.get("/afresh")
    async def afresh() -> JSONResponse:
        return JSONResponse(worker_rows(view))

    served = fresh = 0.0
    for _ in range(3):  # in turns, so that a busy moment of the machine falls on both
        served += await per_second(app, "/api/v1/workers", seconds / 3)
        fresh += await per_second(app, "/afresh", seconds / 3)
    return {
        "peers": peers,
        "served_per_second": served / 3,
        "afresh_per_second": fresh / 3,
        "ratio": served / fresh,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The workers list over HTTP, beside serialising it afresh.")
    parser.add_argument("--peers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = asyncio.run(measure(arguments.peers, arguments.seconds))
    print("  ".join(f"{name}={value:.1f}" for name, value in result.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
