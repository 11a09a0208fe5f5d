"""`inventory`: writes a summary of the store, whenever it has changed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from objectstore.ledger import Ledger, Term
from objectstore.names import VOLUMES
from objectstore.permit import Permit
from objectstore.tree import Proceed, Tree, proceed_always


def summarize(tree: Tree, proceed: Proceed = proceed_always) -> dict[str, Any]:
    """Counts and bytes: of all objects, by bucket, and of the chunks in each volume. Blocks.

    While others write, no moment need have been exactly like this.
    """
    now = tree.now()
    buckets: dict[str, dict[str, int]] = {}
    for bucket in tree.buckets():
        newest = {version.key: version for version in tree.versions(bucket, proceed)}
        sizes = []
        for version in newest.values():
            with suppress(FileNotFoundError):
                manifest = tree.manifest(version)
                if not manifest.expired(now):
                    sizes.append(manifest.size)
        buckets[bucket] = {"objects": len(sizes), "bytes": sum(sizes)}
    copies = list(tree.sized_copies(proceed))
    return {
        "objects": sum(row["objects"] for row in buckets.values()),
        "bytes": sum(row["bytes"] for row in buckets.values()),
        "buckets": buckets,
        "chunks": len({sized.copy.chunk for sized in copies}),
        "volumes": [sum(sized.size for sized in copies if sized.copy.volume == volume) for volume in VOLUMES],
    }


def figures(tree: Tree) -> dict[str, Any]:
    """The summary of now, and what the background workers have done in all. Blocks."""
    ledger = Ledger(tree)
    return summarize(tree) | {
        "expired": ledger.total("lifecycle-leader-"),
        "collected": ledger.total("gc-leader-"),
        "moved": ledger.total("rebalance-leader-"),
        "summaries": ledger.total("inventory-leader"),
    }


@dataclass(slots=True)
class Count:
    """A job of `Rounds`. The summary is the document of the newest entry under `inventory-leader`."""

    tree: Tree
    permit: Permit
    term: Term
    publish: Callable[[dict[str, Any]], None] = lambda _summary: None
    """Called with each summary, in the event loop."""

    async def round(self) -> None:
        self.publish(await self.permit.in_thread(self._round))

    def _round(self) -> dict[str, Any]:
        summary = summarize(self.tree, self.permit.check)
        if summary != self.term.document:
            self.term.write(document=summary, count=1)
        return summary
