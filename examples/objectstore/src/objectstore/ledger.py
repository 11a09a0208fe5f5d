"""What background workers did, fenced: one chain of entries for each lease.

An entry is a file whose name is its number. To write one means: read the newest, refuse if its token is
greater than ours, and `link` a finished file to the next number. A link to a name that exists fails, in one
step of the file system and for every process that shares it. So it succeeds only if nobody has written since
we looked: the comparison with the greatest token seen and the write are one atomic step, though a process may
be frozen for an hour between the two. No entry is ever changed or removed.

Nothing locks, on purpose: a lock would be held by exactly the frozen process that a new leader replaces.

An entry names the files that are to be removed, and they are removed after it was written. What the newest
entry names is removed again before the next is written, since its writer may have died in between. So each
entry but the newest is done in full, nothing is counted twice, and totals are exact. A frozen writer that
wakes after its entry removes what is gone already: names are never used twice.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote, unquote

from drakkar.fleet.provider import EventLogger

from objectstore.errors import StaleWrite
from objectstore.files import remove, sync_folder
from objectstore.names import new_nonce
from objectstore.permit import Permit
from objectstore.tree import Proceed, Tree

_REMOVABLE: Final = ("buckets/", "volumes/", "condemned/")


@dataclass(frozen=True, slots=True)
class Entry:
    lease: str
    number: int
    token: int
    at: float
    """Seconds since 1970, for people."""

    removed: Sequence[str] = ()
    """Names below the root, in the order in which they go."""

    count: int = 0
    """How many things of the worker's kind that is: objects, chunks, copies."""

    total: int = 0
    """Of all counts so far."""

    document: Mapping[str, Any] | None = None


class Ledger:
    """All functions block."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def leases(self) -> list[str]:
        """Those that something was ever written under."""
        return sorted(
            unquote(path.name) for path in self._tree.path("ledger").iterdir() if path.name != "incoming"
        )

    def newest(self, lease: str) -> Entry | None:
        numbers = self._numbers(lease)
        return self._read(lease, numbers[-1]) if numbers else None

    def entries(self, lease: str) -> Iterator[Entry]:
        """From the first on."""
        return (self._read(lease, number) for number in self._numbers(lease))

    def total(self, prefix: str) -> int:
        """The sum over all leases whose name begins with `prefix`."""
        newest = (self.newest(lease) for lease in self.leases() if lease.startswith(prefix))
        return sum(entry.total for entry in newest if entry is not None)

    def append(self, entry: Entry) -> bool:
        """Write an entry of the number after the newest; tell whether nobody else did meanwhile."""
        part = self._tree.path(f"ledger/incoming/{new_nonce()}")
        folder = self._folder(entry.lease)
        folder.mkdir(exist_ok=True)
        with part.open("xb") as file:
            file.write(json.dumps(asdict(entry)).encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(part, folder / f"{entry.number:012d}.json")
        except (FileExistsError, FileNotFoundError):  # the second: what we wrote was taken for dead
            return False
        finally:
            remove(part)
        sync_folder(folder)
        return True

    def carry_out(self, entry: Entry, proceed: Proceed) -> None:
        """Remove what an entry names; may be repeated."""
        for name in entry.removed:
            if not name.startswith(_REMOVABLE) or ".." in name.split("/"):
                raise ValueError(f"{entry.lease} {entry.number}: {name!r:.80} is no name of this store")
            proceed()
            self._tree.remove(name)

    def _folder(self, lease: str) -> Path:
        return self._tree.path(f"ledger/{quote(lease, safe='')}")

    def _numbers(self, lease: str) -> list[int]:
        try:
            return sorted(int(path.stem) for path in self._folder(lease).iterdir())
        except FileNotFoundError:
            return []

    def _read(self, lease: str, number: int) -> Entry:
        return Entry(**json.loads((self._folder(lease) / f"{number:012d}.json").read_bytes()))


class Term:
    """The writes of one run under its token. Making one closes the chain to lower tokens."""

    refused: ClassVar[int] = 0
    """How many writes of this process came too late."""

    def __init__(self, ledger: Ledger, tree: Tree, permit: Permit, logger: EventLogger) -> None:
        self._ledger = ledger
        self._tree = tree
        self._permit = permit
        self._logger = logger
        self._done = 0
        self.document: Mapping[str, Any] | None = None
        """Of the newest entry that has one."""
        self.write()

    def write(
        self, removed: Sequence[str] = (), count: int = 0, document: Mapping[str, Any] | None = None
    ) -> Entry:
        """Write down that `removed` goes, and remove it.

        Raises `StaleWrite` when a greater token has written: nothing was done then, and nothing ever will be
        under ours. Raises `LeaseLost` when the lease runs out; the entry is written or not, and the next
        leader carries out what is left.
        """
        while True:
            newest = self._ledger.newest(self._permit.lease)
            if newest is not None:
                self._refuse_if_stale(newest)
                self._carry_out(newest)
            entry = Entry(
                self._permit.lease,
                1 if newest is None else newest.number + 1,
                self._permit.token,
                self._tree.now(),
                removed,
                count,
                count + (0 if newest is None else newest.total),
                document if document is not None or newest is None else newest.document,
            )
            self._permit.check()
            if self._ledger.append(entry):
                self._carry_out(entry)
                self.document = entry.document
                return entry

    def _carry_out(self, entry: Entry) -> None:
        if entry.number != self._done:
            self._ledger.carry_out(entry, self._permit.check)
            self._done = entry.number

    def _refuse_if_stale(self, newest: Entry) -> None:
        if newest.token <= self._permit.token:
            return
        Term.refused += 1
        self._logger.warning(
            "objectstore_write_refused",
            lease=newest.lease,
            token=self._permit.token,
            newest_token=newest.token,
            refused=Term.refused,
        )
        raise StaleWrite(
            f"{newest.lease}: token {newest.token} has written, so {self._permit.token} may not any more"
        )
