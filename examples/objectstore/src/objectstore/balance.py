"""`rebalance`: keeps the two volumes equally full. Copy, then switch, then delete.

A chunk is moved by a copy of the next generation on the other volume, which appears in its place whole and in
one step. From then on it is the greatest copy, which readers look at first, and every lesser one is
superseded. That stays true for good: the greatest is never removed but by the collector. So a superseded copy
may be removed by anyone at any time, and a mover that wakes late, or two at once, can leave a copy too many
but never none.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import aiofiles
from drakkar.fleet.provider import EventLogger
from drakkar.supervisor.shares import fnv32a

from objectstore.files import POOL, in_thread, read_file, remove, sync_file, unbroken
from objectstore.ledger import Term
from objectstore.names import Copy, digest_of, new_nonce
from objectstore.permit import Permit
from objectstore.tree import SizedCopy, Tree

MOVES: Final = 50
"""How many chunks a round moves."""

BATCH: Final = 200
"""How many copies an entry of the ledger names."""

TOLERANCE: Final = 0.1
"""The part of all bytes by which the volumes may differ."""


def choose(present: Iterable[SizedCopy]) -> list[Copy]:
    """The copies to move so that both volumes hold about as much. Each move makes the difference smaller, so
    it comes to an end."""
    greatest = {sized.copy.chunk: sized for sized in sorted(present, key=lambda sized: sized.copy)}
    sizes = [0, 0]
    for sized in greatest.values():
        sizes[sized.copy.volume] += sized.size
    fuller = 0 if sizes[0] > sizes[1] else 1
    difference = sizes[fuller] - sizes[1 - fuller]
    chosen: list[Copy] = []
    for copy, size in ((sized.copy, sized.size) for sized in greatest.values()):
        if difference <= TOLERANCE * sum(sizes) or len(chosen) == MOVES:
            break
        if copy.volume == fuller and size < difference:
            chosen.append(copy)
            difference -= 2 * size
    return chosen


@dataclass(slots=True)
class Balance:
    """One shard: the chunks whose `fnv32a` falls to it, balanced for themselves. A job of `Rounds`."""

    tree: Tree
    permit: Permit
    term: Term
    logger: EventLogger
    shard: int
    shards: int

    async def round(self) -> None:
        for copy in choose(await self.permit.in_thread(self._present)):
            await unbroken(self._copy(copy), self.permit.cancel)
        await self.permit.in_thread(self._delete_superseded)

    def _present(self) -> list[SizedCopy]:
        return [
            sized
            for sized in self.tree.sized_copies(self.permit.check)
            if fnv32a(sized.copy.chunk) % self.shards == self.shard
        ]

    async def _copy(self, source: Copy) -> None:
        """Copy a chunk to the other volume. Does nothing when it is condemned, gone or damaged."""
        target = Copy(source.chunk, source.generation + 1, new_nonce(), 1 - source.volume)
        pin = self.tree.path(target.pin)
        self.permit.check()
        try:
            async with aiofiles.open(pin, "xb", executor=POOL) as file:
                # From here on the chunk is not collected; whether it was condemned before is to be seen.
                if not await in_thread(lambda: self.tree.may_take_over(source.chunk)):
                    return
                data = await read_file(self.tree.path(source.name))
                if hashlib.sha256(data).hexdigest() != digest_of(source.chunk):
                    self.logger.error("objectstore_copy_damaged", file=source.name)
                    return
                await file.write(data)
                await sync_file(file)
            self.permit.check()
            await in_thread(lambda: self.tree.place(target))
        except FileNotFoundError:  # the source has gone, or the pin was withdrawn
            return
        finally:
            await in_thread(lambda: remove(pin))

    def _delete_superseded(self) -> None:
        copies = sorted(sized.copy for sized in self._present())
        after = [*copies[1:], None]
        names = [
            copy.name
            for copy, next_ in zip(copies, after, strict=True)
            if next_ and next_.chunk == copy.chunk
        ]
        for at in range(0, len(names), BATCH):
            batch = names[at : at + BATCH]
            self.term.write(batch, len(batch))
