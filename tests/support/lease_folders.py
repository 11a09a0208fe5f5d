"""Lease backends that share a folder, and processes that want a lease in it."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo
from drakkar_filesystem._lease_record import place_of
from drakkar_filesystem.leases import FilesystemLeases
from support.folders import Child, Elapsed, child
from support.log import RecordingLogger

TTL = 10.0
NAME = "gc"


class LeaseFolder:
    """The leases of one fleet, and the backends that a test started on them, each with a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.leases = path / "leases"
        self.log = RecordingLogger()
        self.clock = Elapsed()
        self._backends: list[FilesystemLeases] = []

    def make(self, clock: Callable[[], float] | None = None, **options: Any) -> FilesystemLeases:
        """A backend of this folder, not started."""
        backend = FilesystemLeases({"dir": str(self.path), **options}, clock=clock or self.clock)
        self._backends.append(backend)
        return backend

    def context(self, worker: str, instance: str, ttl_seconds: float, timeout_seconds: float) -> LeaseContext:
        return LeaseContext(
            worker=worker,
            instance=instance,
            cluster="",
            logger=self.log,
            ttl_seconds=ttl_seconds,
            timeout_seconds=timeout_seconds,
        )

    async def start(
        self,
        worker: str = "worker-1",
        instance: str | None = None,
        *,
        ttl_seconds: float = TTL,
        timeout_seconds: float = 60,
        clock: Callable[[], float] | None = None,
        **options: Any,
    ) -> FilesystemLeases:
        """A backend as `worker` has it."""
        backend = self.make(clock, **options)
        await backend.start(self.context(worker, instance or f"{worker}-1", ttl_seconds, timeout_seconds))
        return backend

    async def stop(self) -> None:
        for backend in self._backends:
            await backend.stop()

    def place(self, name: str = NAME) -> Path:
        return self.leases / place_of(name)

    def generations(self, name: str = NAME) -> list[int]:
        """The numbers that have a record, rising."""
        return sorted(int(path.name) for path in self.place(name).glob("[0-9]*"))

    def newest(self, name: str = NAME) -> Path:
        return self.place(name) / str(self.generations(name)[-1])

    def record(self, name: str = NAME) -> dict[str, Any]:
        """What the newest record says."""
        found: dict[str, Any] = json.loads(self.newest(name).read_bytes())
        return found


async def granted(backend: FilesystemLeases, name: str = NAME) -> Lease:
    answer = await backend.acquire(name)
    assert isinstance(answer, Lease), answer
    return answer


async def refused(backend: FilesystemLeases, name: str = NAME) -> Held:
    answer = await backend.acquire(name)
    assert isinstance(answer, Held), answer
    return answer


async def rows_of(backend: FilesystemLeases) -> dict[str, LeaseInfo]:
    rows = await backend.list()
    assert len({row.name for row in rows}) == len(rows)
    return {row.name: row for row in rows}


def boottime() -> float:
    """The clock that all processes of this host share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@asynccontextmanager
async def wanting(
    folder: Path, worker: str, ttl_seconds: float = 2.0, *, prefix: tuple[str, ...] = (), **options: Any
) -> AsyncIterator["Wanting"]:
    """A process that wants the lease `NAME` and renews it when it has it: `lease_process.py`."""
    script = Path(__file__).with_name("lease_process.py").read_text()
    settings = json.dumps({"dir": str(folder), **options})
    async with child(script, worker, ttl_seconds, settings, prefix=prefix) as process:
        wanting = Wanting(process)
        try:
            await wanting.next("ready")
            yield wanting
        finally:
            wanting.end()


class Wanting:
    def __init__(self, process: Child) -> None:
        self._process = process
        self.pid = process._process.pid
        self.wall = ""

    def clock_is_off_by(self) -> float:
        """How far its wall clock is ahead of ours, by what it told last."""
        return float(self.wall) - time.time()

    async def next(self, *wanted: str, limit_seconds: float = 60) -> tuple[int, float]:
        """The token and the time of the next such thing that it tells."""
        async with asyncio.timeout(limit_seconds):
            while True:
                what, token, at, self.wall = (await self._process.line()).split()
                if what in wanted:
                    return int(token), float(at)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        """Kill it, stopped or not, and let go of its pipes."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        transport: asyncio.SubprocessTransport = self._process._process._transport  # type: ignore[attr-defined]
        transport.close()
