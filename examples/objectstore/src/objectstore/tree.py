"""The folder of a store: what there is, and the few steps that change it. Every function blocks.

    buckets/<bucket>/<digit>/<key>@<number>@<upload>.json   a manifest; the greatest of a key is the object
    uploads/<upload>.json                                   the manifest of an object that is on its way
    volumes/<0 or 1>/<digit>/<copy>                         the bytes of a chunk
    volumes/<0 or 1>/incoming/<copy>                        a pin: a copy that is being written
    condemned/<chunk>                                       a mark: never to be taken over again
    ledger/<lease>/<number>.json                            what background workers did (`objectstore.ledger`)

Nothing here locks. A step is one system call that either happens or fails, and a process may be frozen or
killed between any two of them. What keeps chunks safe is the order of steps, and it is this:

- An upload first writes its record, which names all of its chunks; then looks for marks at those that it did
  not bring itself; and becomes an object by *moving* its record to its place.
- The collector first marks a chunk, then looks for pins, then for records, then for manifests that name it.
  A name that moves from a record to a manifest meanwhile is met at least once. If there is none, there will
  never be one: who might take the chunk over looks for the mark after writing its record.
- So "marked and unnamed" stays true for good, and a removal that is hours late is still right.
- A record or pin of the dead is withdrawn by removing it. Its owner, if it was only asleep, then fails to
  move it, and has done nothing.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from objectstore.files import remove, sync_folder
from objectstore.manifest import Manifest
from objectstore.names import (
    FOLDERS,
    VOLUMES,
    Copy,
    Version,
    check_bucket,
    key_folder,
    mark_name,
)

Proceed = Callable[[], None]
"""What long work calls between its steps; raises when it is to end."""


def proceed_always() -> None:
    """For a caller that nobody stops."""


@dataclass(frozen=True, slots=True)
class SizedCopy:
    copy: Copy
    size: int


class Tree:
    """Listings hold what was there from before they began until they ended; what comes or goes meanwhile may
    be in them or not."""

    def __init__(self, root: Path, *, now: Callable[[], float] = time.time) -> None:
        self.root: Final = root
        self.now: Final = now
        self._read_manifest = lru_cache(100_000)(lambda name: Manifest.decode(self.path(name).read_bytes()))

    def prepare(self) -> None:
        """Make the folders that are missing."""
        folders = [f"volumes/{volume}/{folder}" for volume in VOLUMES for folder in (*FOLDERS, "incoming")]
        for folder in (*folders, "buckets", "uploads", "condemned", "ledger/incoming"):
            self.path(folder).mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self.root / name

    def _list(self, folder: str) -> list[str]:
        return os.listdir(self.path(folder))  # noqa: PTH208  names are wanted, and thousands of them

    # -- objects

    def buckets(self) -> list[str]:
        return sorted(self._list("buckets"))

    def versions(self, bucket: str, proceed: Proceed = proceed_always) -> list[Version]:
        """All manifests of a bucket, a key's oldest first; none when there is no such bucket."""
        check_bucket(bucket)
        found: list[Version] = []
        for folder in FOLDERS:
            proceed()
            found += self._versions(bucket, f"buckets/{bucket}/{folder}")
        return sorted(found)

    def versions_of(self, bucket: str, key: str) -> list[Version]:
        """The manifests of one key, oldest first."""
        found = self._versions(check_bucket(bucket), key_folder(bucket, key))
        return sorted(version for version in found if version.key == key)

    def _versions(self, bucket: str, folder: str) -> Iterator[Version]:
        with suppress(FileNotFoundError):
            for file_name in self._list(folder):
                if version := Version.parse(bucket, file_name):
                    yield version

    def manifest(self, version: Version) -> Manifest:
        """Raises `FileNotFoundError` when it is gone, unless it was read before."""
        manifest: Manifest = self._read_manifest(version.name)
        return manifest

    def manifest_if_there(self, version: Version) -> Manifest | None:
        """None when it was replaced or deleted since it was listed."""
        try:
            return self.manifest(version)
        except FileNotFoundError:
            return None

    def newest(self, bucket: str, key: str) -> Manifest | None:
        """The manifest of an object; None when there is none, or it has expired."""
        looks = 0
        while True:
            versions = self.versions_of(bucket, key)
            if manifest := self.manifest_if_there(versions[-1]) if versions else None:
                return None if manifest.expired(self.now()) else manifest
            # A listing may have missed a new version, and then the old one after it. Not twice in a row.
            if not versions and (looks := looks + 1) == 2:
                return None

    # -- uploads

    def record(self, upload: str) -> Path:
        return self.path(f"uploads/{upload}.json")

    def commit(self, manifest: Manifest) -> Version:
        """Make an object of an upload, in one step. Raises `FileNotFoundError` when it was withdrawn."""
        versions = self.versions_of(manifest.bucket, manifest.key)
        number = versions[-1].number + 1 if versions else 1
        version = Version(manifest.bucket, manifest.key, number, manifest.upload)
        target = self.path(version.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(self.record(manifest.upload), target)  # noqa: PTH104  Path.rename reads like a mere renaming
        sync_folder(target.parent)
        return version

    # -- chunks

    def sized_copies(self, proceed: Proceed = proceed_always) -> Iterator[SizedCopy]:
        """Every copy in its place."""
        for volume in VOLUMES:
            for folder in FOLDERS:
                proceed()
                with os.scandir(self.path(f"volumes/{volume}/{folder}")) as entries:
                    for entry in entries:
                        with suppress(FileNotFoundError):  # removed a moment ago
                            if copy := Copy.parse(volume, entry.name):
                                yield SizedCopy(copy, entry.stat().st_size)

    def copies_of(self, prefix: str) -> list[Copy]:
        """The copies of the chunks that begin with `prefix`, the greatest last."""
        found = [
            Copy.parse(volume, file_name)
            for volume in VOLUMES
            for file_name in self._list(f"volumes/{volume}/{prefix[0]}")
            if file_name.startswith(prefix)
        ]
        return sorted(copy for copy in found if copy is not None)

    def may_take_over(self, chunk: str) -> bool:
        """Whether who named `chunk` in a record may count on it: it is there, and not condemned. In this
        order: a mark outlives the last copy."""
        return not self.path(mark_name(chunk)).exists() and bool(self.copies_of(f"{chunk}."))

    def place(self, copy: Copy) -> None:
        """Move a pin, written in full, to its place. Raises `FileNotFoundError` when it was withdrawn."""
        target = self.path(copy.name)
        os.rename(self.path(copy.pin), target)  # noqa: PTH104  as above
        sync_folder(target.parent)

    def marks(self) -> set[str]:
        return set(self._list("condemned"))

    def condemn(self, chunk: str) -> None:
        """Mark a chunk; may be repeated."""
        self.path(mark_name(chunk)).touch()

    def named_chunks(self, proceed: Proceed = proceed_always) -> set[str]:
        """Every chunk that something names: pins, then records, then manifests.

        Raises `Unreadable` for what cannot be read: nobody knows then what it names.
        """
        named = {
            copy.chunk
            for volume in VOLUMES
            for file_name in self._list(f"volumes/{volume}/incoming")
            if (copy := Copy.parse(volume, file_name))
        }
        for path in self.path("uploads").glob("*.json"):
            proceed()
            with suppress(FileNotFoundError):  # withdrawn, or by now a manifest
                named.update(chunk.id for chunk in Manifest.decode(path.read_bytes()).chunks)
        for bucket in self.buckets():
            for version in self.versions(bucket, proceed):
                with suppress(FileNotFoundError):  # deleted a moment ago
                    named.update(chunk.id for chunk in self.manifest(version).chunks)
        return named

    def unfinished(self) -> Iterator[Path]:
        """Files that are on their way somewhere, and those that never arrived."""
        for folder in ("uploads", *(f"volumes/{volume}/incoming" for volume in VOLUMES), "ledger/incoming"):
            yield from self.path(folder).iterdir()

    def remove(self, name: str) -> bool:
        """Remove a file of these folders by its name; tell whether it was there."""
        return remove(self.path(name))
