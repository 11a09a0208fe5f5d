"""Objects for programs: put, get, delete, list. Any number of processes may use one folder at once.

Not guaranteed: who is last, when several write one key at the same time; one of them is, and everybody sees
the same one. Not there: buckets that can be removed, and reading or writing in parts.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from objectstore.errors import ChunkMissing, NoSuchObject, UploadWithdrawn
from objectstore.files import in_thread, read_file, sync_folder
from objectstore.manifest import Chunk, Manifest
from objectstore.names import Version, check_bucket, digest_of, quote_key
from objectstore.tree import Tree
from objectstore.upload import Content, Target, upload

CHUNK_BYTES: Final = 65536
TRIES: Final = 8


class Store:
    """The store in the folder `root`, which is made when it is missing.

    `now` is where the times of objects come from, in seconds since 1970.
    """

    def __init__(
        self, root: Path, *, chunk_bytes: int = CHUNK_BYTES, now: Callable[[], float] = time.time
    ) -> None:
        self._tree = Tree(root, now=now)
        self._tree.prepare()
        self._chunk_bytes = chunk_bytes

    async def put(
        self, bucket: str, key: str, data: bytes, *, expires_in_seconds: float | None = None
    ) -> Manifest:
        """Store an object in place of the one that may be there, and return when it is on disk.

        Raises `ValueError` for a name that cannot be one; `UploadWithdrawn` when this process stood still for
        longer than the collector waits, several times in a row. Cancelled, it has stored the object or
        changed nothing.
        """
        check_bucket(bucket)
        quote_key(key)
        created = self._tree.now()
        expires = None if expires_in_seconds is None else created + expires_in_seconds
        target = Target(bucket, key, created, expires)
        content = await in_thread(lambda: Content.of(data, self._chunk_bytes))
        for _ in range(TRIES):
            if manifest := await upload(self._tree, target, content):
                await in_thread(lambda: self._replace(bucket, key))
                return manifest
        raise UploadWithdrawn(f"{bucket}/{key}: {TRIES} uploads in a row came to nothing")

    async def get(self, bucket: str, key: str) -> bytes:
        """The bytes of an object. Raises `NoSuchObject`, and `ChunkMissing` when the store is damaged."""
        tries = 0
        while True:
            manifest = await self.head(bucket, key)
            try:
                return b"".join([await self._read(chunk) for chunk in manifest.chunks])
            except ChunkMissing:  # or the object was replaced, and its chunks were collected since
                tries += 1
                if tries == TRIES:
                    raise
            await asyncio.sleep(0.02 * tries)

    async def head(self, bucket: str, key: str) -> Manifest:
        """The manifest of an object. Raises `NoSuchObject`."""
        manifest = await in_thread(lambda: self._tree.newest(bucket, key))
        if manifest is None:
            raise NoSuchObject(f"there is no {bucket}/{key}")
        return manifest

    async def delete(self, bucket: str, key: str) -> bool:
        """Remove an object; tell whether there was one. May be repeated."""

        def delete() -> bool:
            there = self._tree.newest(bucket, key) is not None
            self._remove(self._tree.versions_of(bucket, key))
            return there

        return await in_thread(delete)

    async def list(self, bucket: str) -> list[Manifest]:
        """The objects of a bucket by key; none when there is no such bucket."""

        def objects() -> list[Manifest]:
            newest = {version.key: version for version in self._tree.versions(bucket)}
            found = [
                self._tree.manifest_if_there(version) or self._tree.newest(bucket, key)
                for key, version in newest.items()
            ]
            now = self._tree.now()
            return [manifest for manifest in found if manifest is not None and not manifest.expired(now)]

        return await in_thread(objects)

    async def buckets(self) -> Sequence[str]:
        return await in_thread(self._tree.buckets)

    def _replace(self, bucket: str, key: str) -> None:
        self._remove(self._tree.versions_of(bucket, key)[:-1])

    def _remove(self, versions: Sequence[Version]) -> None:
        # The oldest first: a version must never come to light again because a newer one went before it.
        for version in versions:
            self._tree.remove(version.name)
        for folder in {version.folder for version in versions}:
            sync_folder(self._tree.path(folder))

    async def _read(self, chunk: Chunk) -> bytes:
        for copy in reversed(await in_thread(lambda: self._tree.copies_of(f"{chunk.id}."))):
            try:
                data = await read_file(self._tree.path(copy.name))
            except FileNotFoundError:  # moved to the other volume a moment ago
                continue
            if hashlib.sha256(data).hexdigest() == digest_of(chunk.id):
                return data
        raise ChunkMissing(f"there is no sound copy of the chunk {chunk.id}")
