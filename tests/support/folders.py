"""Workers that share a folder."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from drakkar.fleet.testkit import make_context
from drakkar.fleet.testkit.harness import INSTANCE
from drakkar_filesystem.registry import FilesystemRegistry
from support.log import RecordingLogger

NS = 1_000_000_000


class Elapsed:
    """A clock for the provider that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


class Folder:
    """The folder of one fleet, the providers that a test started on it, and what they logged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workers = path / "workers"
        self.log = RecordingLogger()
        self.clock = Elapsed()
        self._providers: list[FilesystemRegistry] = []

    def make(self, **options: Any) -> FilesystemRegistry:
        """A provider of this folder, not started; its clock is ours, and the folder a derived one."""
        options = {"dir": str(self.path), "explicit": False} | options
        provider = FilesystemRegistry(options, clock=self.clock)
        self._providers.append(provider)
        return provider

    async def start(
        self,
        worker: str = "worker-1",
        instance: str = INSTANCE,
        *,
        timeout_seconds: float = 60,
        prune_after_seconds: float = 86400,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> FilesystemRegistry:
        """A provider as `worker` has it."""
        provider = self.make(**options)
        ctx = make_context(
            worker,
            instance,
            logger=self.log,
            timeout_seconds=timeout_seconds,
            prune_after_seconds=prune_after_seconds,
        )
        await provider.start(ctx)
        return provider

    async def stop(self) -> None:
        for provider in self._providers:
            await provider.stop()

    def write(self, name: str, data: bytes | str, *, age_seconds: float = 0) -> Path:
        """Write a file into `workers` as another program would."""
        self.workers.mkdir(parents=True, exist_ok=True)
        path = self.workers / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        make_older(path, age_seconds)
        return path

    def names(self) -> set[str]:
        """What lies in `workers`, hidden files included."""
        return {path.name for path in self.workers.iterdir()}

    def rejected(self) -> dict[str, str]:
        """The reason that was logged for each file; fails when one was logged twice."""
        lines = self.log.named("fleet_card_invalid")
        reasons = {line["file"]: line["reason"] for line in lines}
        assert len(reasons) == len(lines), lines
        return reasons


MakeFolder = Callable[[Path], Folder]


async def workers_of(provider: FilesystemRegistry) -> list[str]:
    """The names on the listed cards, sorted."""
    return sorted(peer.card["worker"] for peer in await provider.list())


def make_older(path: Path, seconds: float) -> None:
    """Let the file have been written that long before it was."""
    found = path.lstat()
    times = found.st_atime_ns, found.st_mtime_ns - round(seconds * NS)
    os.utime(path, ns=times, follow_symlinks=False)


@asynccontextmanager
async def child(script: str, *arguments: object, prefix: tuple[str, ...] = ()) -> AsyncIterator["Child"]:
    """Run a Python script in a process of its own, under the command `prefix`; killed if it is left over."""
    process = await asyncio.create_subprocess_exec(
        *prefix,
        sys.executable,
        "-c",
        script,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    started = Child(process)
    try:
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        started.leave()
        with suppress(TimeoutError):  # it cannot die while the kernel waits for a folder that hangs
            async with asyncio.timeout(5):
                await process.wait()


class Child:
    """The other side of `child`: it says one line at a time, and goes on when it is answered."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            return (await self._process.stdout.readline()).decode().strip()

    async def answer(self, line: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    def leave(self) -> None:
        """Let whoever still reads read to the end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def status(self, limit_seconds: float = 60) -> int:
        """Wait for its end."""
        async with asyncio.timeout(limit_seconds):
            return await self._process.wait()
