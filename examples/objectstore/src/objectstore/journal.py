"""What writers of test data did, and what must therefore be in the store.

One file for each writer, one JSON object a line: an operation when it begins, and again when it was
acknowledged. A writer may be killed between the two; then either outcome is right.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from objectstore.tree import Tree


@dataclass(frozen=True, slots=True)
class Operation:
    op: Literal["put", "delete", "bad_read"]
    bucket: str
    key: str
    acknowledged: bool
    sha256: str | None = None
    expires_at: float | None = None
    detail: str = ""


@dataclass(slots=True)
class Expected:
    """What may be found under one key: hashes of contents, or None for nothing; and until when."""

    outcomes: dict[str | None, float | None] = field(default_factory=lambda: {None: None})

    def allows(self, sha256: str | None, now: float) -> bool:
        """Whether that may be what is there. An object may be gone from a moment before its time."""
        ends = (expires_at for expires_at in self.outcomes.values() if expires_at is not None)
        return sha256 in self.outcomes or (sha256 is None and any(now >= end - 1 for end in ends))

    def then(self, operation: Operation) -> None:
        if operation.acknowledged:
            self.outcomes.clear()
        self.outcomes[operation.sha256] = operation.expires_at


class Journal:
    """Appends to one file; a line that was written outlives the process."""

    def __init__(self, tree: Tree, writer: str) -> None:
        path = tree.path(f"journals/{writer}.jsonl")
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("xb", buffering=0)

    def write(self, operation: Operation) -> None:
        self._file.write(json.dumps(asdict(operation)).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def read_journals(tree: Tree) -> Iterator[list[Operation]]:
    """The operations of each writer, in order."""
    for path in sorted(tree.path("journals").glob("*.jsonl")):
        yield read_journal(path)


def read_journal(path: Path) -> list[Operation]:
    lines = path.read_bytes().split(b"\n")[:-1]  # a line without an end was being written at the kill
    return [Operation(**json.loads(line)) for line in lines]


def expectations(operations: Iterable[Operation]) -> dict[tuple[str, str], Expected]:
    """What each key must hold after `operations`, all by one writer."""
    found: dict[tuple[str, str], Expected] = {}
    for operation in operations:
        if operation.op != "bad_read":
            found.setdefault((operation.bucket, operation.key), Expected()).then(operation)
    return found
