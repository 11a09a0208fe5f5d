"""`lifecycle`: removes the objects of a bucket that have expired, and versions that a writer left behind."""

from dataclasses import dataclass
from itertools import groupby
from typing import Final

from objectstore.ledger import Term
from objectstore.names import Version
from objectstore.permit import Permit
from objectstore.tree import Tree

BATCH: Final = 100
"""How many keys an entry of the ledger is about."""


@dataclass(slots=True)
class Expire:
    """One bucket. A job of `Rounds`.

    Expiry is decided by this host's wall clock, and never taken back: a manifest does not change. So a
    decision that is carried out late is still right.
    """

    tree: Tree
    permit: Permit
    term: Term
    bucket: str

    async def round(self) -> None:
        await self.permit.in_thread(self._round)

    def _round(self) -> None:
        now = self.tree.now()
        gone: list[tuple[list[str], bool]] = []
        versions = self.tree.versions(self.bucket, self.permit.check)
        for _, group in groupby(versions, key=lambda version: version.key):
            *old, newest = group
            expired = self._has_expired(newest, now)
            names = [version.name for version in (*old, newest)[: None if expired else -1]]
            if names:  # the oldest first, so that none comes to light again
                gone.append((names, expired))
        for at in range(0, len(gone), BATCH):
            batch = gone[at : at + BATCH]
            self.term.write(
                [name for names, _ in batch for name in names], sum(expired for _, expired in batch)
            )

    def _has_expired(self, version: Version, now: float) -> bool:
        try:
            return self.tree.manifest(version).expired(now)
        except FileNotFoundError:  # deleted or replaced a moment ago
            return False
