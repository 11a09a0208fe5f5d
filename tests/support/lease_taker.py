"""A process that takes leases when it is told to, and stops itself at a system call when it is told that.

    python lease_taker.py FOLDER WORKER

For each line `NAME HOLDER STOP_AT` it wants the lease `NAME` until it has it or somebody else but `HOLDER`
has, and answers `won TOKEN` or `refused HOLDER`. At the `STOP_AT`th system call on the folder (0: never) it
stops, like a process that is frozen there, until it gets a SIGCONT.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from drakkar.leases.backend import Lease
from drakkar.leases.testkit import make_context
from drakkar_filesystem.leases import FilesystemLeases

CALLS = (
    *("open", "close", "link", "unlink", "mkdir", "listdir", "stat", "fstat", "pread", "pwrite", "write"),
    *("fsync", "utime"),
)


class Countdown:
    """How many system calls are left until this process stops itself."""

    left = 0


def stopping(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        if threading.current_thread().name == "drakkar-filesystem-leases":
            Countdown.left -= 1
            if Countdown.left == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
        return function(*arguments, **keywords)

    return call


async def take(backend: FilesystemLeases, name: str, before: str) -> str:
    while True:
        answer = await backend.acquire(name)
        if isinstance(answer, Lease):
            return f"won {answer.token}"
        if answer.holder not in (None, before):
            return f"refused {answer.holder}"
        await asyncio.sleep(min(0.02, answer.retry_after_seconds or 0))


async def main(folder: str, worker: str) -> None:
    for call in CALLS:
        setattr(os, call, stopping(getattr(os, call)))
    backend = FilesystemLeases({"dir": folder})
    instance = os.urandom(8).hex()
    await backend.start(make_context(worker, instance, ttl_seconds=600, timeout_seconds=600))
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode().split():
        Countdown.left = int(line[2])
        answer = await take(backend, line[0], line[1])
        Countdown.left = 0
        print(answer, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
