"""Test data: objects that are put, replaced, read back and deleted at random, with a journal of it all."""

import asyncio
import hashlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from objectstore.errors import ObjectStoreError, UploadWithdrawn
from objectstore.journal import Journal, Operation
from objectstore.names import new_nonce
from objectstore.store import Store
from objectstore.tree import Tree

BUCKETS: Final = ("audio", "logs", "photos", "reports")
BLOCKS: Final = 400
"""What contents are made of: few enough that objects share chunks, and so many that most are not used at any
time, and come back."""

KEYS: Final = 40
"""How many keys a writer uses: small, so that objects are replaced."""

READABLE_SECONDS: Final = 1.0
"""Objects this close to their end are not read back."""


@dataclass(slots=True)
class Filler:
    """One writer with keys of its own, one operation after the other."""

    store: Store
    journal: Journal
    name: str
    chance: random.Random
    blocks: Sequence[bytes]
    """What contents are made of: few, so that objects share chunks."""

    pause_seconds: float
    there: dict[tuple[str, str], Operation] = field(default_factory=dict)
    done: int = 0

    async def step(self) -> None:
        kind = self.chance.random()
        if kind < 0.6 or not self.there:
            await self._put()
        elif kind < 0.8:
            await self._delete(self.chance.choice(list(self.there)))
        else:
            await self._read(self.chance.choice(list(self.there)))
        self.done += 1
        await asyncio.sleep(self.pause_seconds * self.chance.random())

    async def _put(self) -> None:
        bucket = self.chance.choice(BUCKETS)
        key = f"{self.name}/{self.chance.randrange(KEYS)}"
        data = b"".join(self.chance.choices(self.blocks, k=self.chance.randint(1, 4)))
        data += self.chance.randbytes(self.chance.randrange(2000))
        seconds = self.chance.uniform(1, 8) if self.chance.random() < 0.5 else None
        sha256 = hashlib.sha256(data).hexdigest()
        soon = None if seconds is None else time.time() + seconds
        self.journal.write(Operation("put", bucket, key, False, sha256, soon))
        self.there.pop((bucket, key), None)
        try:
            manifest = await self.store.put(bucket, key, data, expires_in_seconds=seconds)
        except UploadWithdrawn:  # refused, and not stored: the key is as it was
            return
        done = Operation("put", bucket, key, True, sha256, manifest.expires_at)
        self.journal.write(done)
        self.there[bucket, key] = done

    async def _delete(self, at: tuple[str, str]) -> None:
        self.journal.write(Operation("delete", *at, False))
        del self.there[at]
        await self.store.delete(*at)
        self.journal.write(Operation("delete", *at, True))

    async def _read(self, at: tuple[str, str]) -> None:
        """An object that was acknowledged must be readable at any time until it expires."""
        expected = self.there[at]
        if expected.expires_at is not None and expected.expires_at < time.time() + READABLE_SECONDS:
            del self.there[at]
            return
        began = time.time()
        try:
            found = hashlib.sha256(await self.store.get(*at)).hexdigest()
        except ObjectStoreError as error:
            if expected.expires_at is not None and time.time() >= expected.expires_at:
                return  # it took that long
            found = f"{type(error).__name__}: {error}"
        if found != expected.sha256:
            detail = f"{found} after {time.time() - began:.3f} s"
            self.journal.write(Operation("bad_read", *at, True, expected.sha256, detail=detail))


async def fill(
    root: Path,
    stopping: asyncio.Event,
    *,
    seconds: float | None,
    writers: int,
    seed: int,
    chunk_bytes: int,
    pause_seconds: float,
) -> int:
    """Write until the time is over or `stopping` is set; return the number of operations."""
    store, name = Store(root, chunk_bytes=chunk_bytes), new_nonce()
    blocks = [random.Random(number).randbytes(chunk_bytes) for number in range(BLOCKS)]
    chance = random.Random(seed)

    async def work(filler: Filler) -> int:
        while not stopping.is_set():
            await filler.step()
        filler.journal.close()
        return filler.done

    fillers = [
        Filler(
            store,
            Journal(Tree(root), f"{name}-{number}"),
            f"{name}-{number}",
            random.Random(chance.random()),
            blocks,
            pause_seconds,
        )
        for number in range(writers)
    ]
    async with asyncio.TaskGroup() as group:
        working = [group.create_task(work(filler)) for filler in fillers]
        try:
            async with asyncio.timeout(seconds):
                await stopping.wait()
        except TimeoutError:
            stopping.set()
    return sum(task.result() for task in working)
