"""`gc`: removes chunks that nothing names, and what uploads left that never came to an end.

In two steps, at least a round apart: a chunk that nothing names is condemned by a mark, which outlives every
process; one that was condemned before this round began, and that still nothing names, is removed, the mark
last. `objectstore.tree` says why no chunk can come into use between the look and the removal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger
from drakkar.supervisor.shares import fnv32a

from objectstore.files import remove
from objectstore.ledger import Term
from objectstore.names import mark_name
from objectstore.permit import Permit
from objectstore.tree import Tree

BATCH: Final = 100
"""How many chunks an entry of the ledger names."""


class Unfinished:
    """Files on their way, as one process sees them: dead when they stood still for the grace period, by this
    process's own clock. No clock of another host, and none of the file system, is asked for the time."""

    def __init__(self, tree: Tree, grace_seconds: float, clock: Clock) -> None:
        self._tree = tree
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._seen: dict[Path, tuple[int, float]] = {}

    def dead(self) -> Iterator[Path]:
        """What has stood still for long enough."""
        now = self._clock.elapsed()
        seen: dict[Path, tuple[int, float]] = {}
        for path in self._tree.unfinished():
            try:
                changed = path.stat().st_mtime_ns
            except FileNotFoundError:
                continue
            before, since = self._seen.get(path, (changed, now))
            seen[path] = (changed, since if changed == before else now)
        self._seen = seen
        return (path for path, (_, since) in seen.items() if now - since >= self._grace_seconds)


@dataclass(slots=True)
class Collect:
    """One shard: the chunks and unfinished files whose `fnv32a` falls to it. A job of `Rounds`."""

    tree: Tree
    permit: Permit
    term: Term
    logger: EventLogger
    shard: int
    shards: int
    unfinished: Unfinished

    async def round(self) -> None:
        await self.permit.in_thread(self._round)

    def _round(self) -> None:
        self._withdraw_the_dead()
        check = self.permit.check
        condemned = {mark for mark in self.tree.marks() if self._is_ours(mark)}
        there = {
            sized.copy.chunk for sized in self.tree.sized_copies(check) if self._is_ours(sized.copy.chunk)
        }
        named = self.tree.named_chunks(check)  # after the marks, or it would prove nothing
        doomed = sorted(condemned - named)
        for at in range(0, len(doomed), BATCH):
            self._remove(doomed[at : at + BATCH])
        for chunk in sorted(there - condemned - named):
            check()
            self.tree.condemn(chunk)

    def _remove(self, chunks: list[str]) -> None:
        """Remove chunks, each with all of its copies and its mark at the end."""
        names, count = [], 0
        for chunk in chunks:
            copies = self.tree.copies_of(f"{chunk}.")
            names += [*(copy.name for copy in copies), mark_name(chunk)]
            count += bool(copies)
        self.term.write(names, count)

    def _withdraw_the_dead(self) -> None:
        for path in self.unfinished.dead():
            if self._is_ours(path.name):
                self.permit.check()
                if remove(path):
                    self.logger.info("objectstore_upload_withdrawn", file=path.name, folder=path.parent.name)

    def _is_ours(self, name: str) -> bool:
        return fnv32a(name) % self.shards == self.shard
