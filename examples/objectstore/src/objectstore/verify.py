"""Whether a store is what it promises to be. Every function blocks.

Two kinds of problem: what must never be, however the workers fare, and what may be for a while until a worker
has cleared it away.
"""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from objectstore.count import summarize
from objectstore.journal import expectations, read_journals
from objectstore.ledger import Ledger
from objectstore.manifest import Chunk, Manifest
from objectstore.names import Version, digest_of, is_mark
from objectstore.tree import Tree

SUMMARY_LEASE: Final = "inventory-leader"
LOOKS: Final = 5
"""How often to look for a chunk that may be on its way from one volume to the other."""


@dataclass(slots=True)
class Report:
    broken: list[str] = field(default_factory=list)
    """What must never be."""

    left: list[str] = field(default_factory=list)
    """What is not cleared away yet; nothing when no writer was at work for a while."""

    checked: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        self.checked[what] = self.checked.get(what, 0) + 1


def verify(tree: Tree) -> Report:
    """Check everything; the order matters not. Raises `Unreadable` for a manifest that is none."""
    report = Report()
    _check_objects(tree, report)
    _check_journals(tree, report)
    _check_ledger(tree, report)
    report.left += _leftovers(tree)
    return report


def settle(tree: Tree, within_seconds: float) -> Report:
    """Verify again and again until nothing is left to clear away, something is broken, or the time is
    over."""
    end = time.monotonic() + within_seconds
    while True:
        report = verify(tree)
        if report.broken or not report.left or time.monotonic() >= end:
            return report
        time.sleep(0.5)


def _check_objects(tree: Tree, report: Report) -> None:
    """No live manifest names a chunk that is missing or not what it should be."""
    for bucket in tree.buckets():
        for version in {version.key: version for version in tree.versions(bucket)}.values():
            manifest = tree.manifest_if_there(version)
            if manifest is None or manifest.expired(tree.now()):
                continue
            report.count("objects")
            for chunk in manifest.chunks:
                report.count("chunks named")
                if not _is_sound(tree, chunk) and _is_live(tree, version, manifest):
                    report.broken.append(f"{version.name} names {chunk.id}, of which there is no sound copy")


def _is_live(tree: Tree, version: Version, manifest: Manifest) -> bool:
    return tree.path(version.name).exists() and not manifest.expired(tree.now())


def _is_sound(tree: Tree, chunk: Chunk) -> bool:
    for _ in range(LOOKS):
        for copy in reversed(tree.copies_of(f"{chunk.id}.")):
            try:
                data = tree.path(copy.name).read_bytes()
            except FileNotFoundError:
                continue
            if len(data) == chunk.size and hashlib.sha256(data).hexdigest() == digest_of(chunk.id):
                return True
    return False


def _check_journals(tree: Tree, report: Report) -> None:
    """Everything that was acknowledged is there, until it is replaced, deleted or expired; and was readable
    whenever it was read."""
    for operations in read_journals(tree):
        for operation in operations:
            report.count("operations")
            if operation.op == "bad_read":
                at = f"{operation.bucket}/{operation.key}"
                report.broken.append(f"{at} was read as {operation.detail}, not {operation.sha256}")
        for (bucket, key), expected in expectations(operations).items():
            found = tree.newest(bucket, key)
            sha256 = None if found is None else found.sha256
            if not expected.allows(sha256, tree.now()):
                wanted = " or ".join(map(str, expected.outcomes))
                report.broken.append(f"{bucket}/{key} is {sha256}, and should be {wanted}")


def _check_ledger(tree: Tree, report: Report) -> None:
    """Per lease: no number missing, no token going back, totals right, nothing removed twice, and what was
    said to be removed gone."""
    ledger = Ledger(tree)
    for lease in ledger.leases():
        number, token, total = 0, 0, 0
        removed: set[str] = set()
        for entry in ledger.entries(lease):
            report.count("ledger entries")
            number, total, where = number + 1, total + entry.count, f"{lease} entry {entry.number}"
            if entry.number != number:
                report.broken.append(f"{where} follows entry {number - 1}")
                number = entry.number
            if entry.token < token:
                report.broken.append(f"{where} was written with token {entry.token}, after token {token}")
            if entry.total != total:
                report.broken.append(f"{where} says {entry.total} in all, but it is {total}")
            token, total = max(token, entry.token), entry.total
            files = [name for name in entry.removed if not is_mark(name)]
            twice = sorted(removed.intersection(files))
            report.broken += [f"{where} removes {name}, as an earlier one did" for name in twice]
            removed.update(files)
        newest = ledger.newest(lease)
        late = set(newest.removed if newest is not None else ())  # is perhaps being carried out
        for name in sorted(removed):
            if tree.path(name).exists():
                (report.left if name in late else report.broken).append(f"{name} was removed and is there")


def _leftovers(tree: Tree) -> Iterator[str]:
    named = tree.named_chunks()
    greatest = {
        sized.copy.chunk: sized.copy for sized in sorted(tree.sized_copies(), key=lambda each: each.copy)
    }
    for copy in sorted(sized.copy for sized in tree.sized_copies()):
        if copy.chunk not in named:
            yield f"nothing names {copy.name}"
        elif copy != greatest.get(copy.chunk, copy):
            yield f"{copy.name} is superseded"
    for mark in sorted(tree.marks() - named):
        yield f"{mark} is condemned"
    for path in tree.unfinished():
        yield f"{path.relative_to(tree.root)} was not finished"
    for bucket in tree.buckets():
        newest = {version.key: version for version in tree.versions(bucket)}
        for version in tree.versions(bucket):
            manifest = tree.manifest_if_there(version)
            if manifest is not None and manifest.expired(tree.now()):
                yield f"{version.name} has expired"
            elif version != newest.get(version.key, version):
                yield f"{version.name} is replaced"
    summary = Ledger(tree).newest(SUMMARY_LEASE)
    if summary is not None and summary.document is not None and summary.document != summarize(tree):
        yield "the summary is not up to date"
