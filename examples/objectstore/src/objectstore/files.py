"""File calls beside the event loop: single files by aiofiles, whatever lists folders in one hop to a thread.

All threads are this package's own. A cancellation is passed on when the file call under way has ended, so
that nothing is written on behalf of somebody who believes to have stopped.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import aiofiles
from aiofiles.threadpool.binary import AsyncBufferedIOBase

T = TypeVar("T")

POOL: Final = ThreadPoolExecutor(8, "objectstore")


async def unbroken(work: Coroutine[Any, Any, T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """Return what `work` returns. A cancellation calls `on_cancel`, and is passed on when `work` has
    ended."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        task.exception()  # so that it counts as seen
        raise cancelled
    return task.result()


async def in_thread(work: Callable[[], T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """Return what `work` returns, run in one of our threads; cancelled as `unbroken`."""

    async def hop() -> T:
        return await asyncio.get_running_loop().run_in_executor(POOL, work)

    return await unbroken(hop(), on_cancel)


async def read_file(path: Path) -> bytes:
    """Raises `FileNotFoundError` when there is none."""

    async def read() -> bytes:
        async with aiofiles.open(path, "rb", executor=POOL) as file:
            return await file.read()

    return await unbroken(read())


async def write_file(path: Path, data: bytes) -> None:
    """Write a file that was not there before, down to the disk."""

    async def write() -> None:
        async with aiofiles.open(path, "xb", executor=POOL) as file:
            await file.write(data)
            await sync_file(file)

    await unbroken(write())


async def sync_file(file: AsyncBufferedIOBase) -> None:
    """See that what was written outlives a power cut."""
    await file.flush()
    await asyncio.get_running_loop().run_in_executor(POOL, os.fsync, file.fileno())


def sync_folder(path: Path) -> None:
    """See that names that were made or removed in a folder outlive a power cut. Blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> bool:
    """Remove a file; tell whether it was there. Blocks."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
