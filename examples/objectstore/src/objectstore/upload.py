"""The way of an object into the store: record, chunks, commit. `objectstore.tree` says why in this order."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from objectstore.files import in_thread, remove, unbroken, write_file
from objectstore.manifest import Chunk, Manifest
from objectstore.names import Copy, chunk_id, digest_of, new_nonce
from objectstore.tree import Tree


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes, cut into pieces."""

    size: int
    sha256: str
    digests: Sequence[str]
    pieces: Mapping[str, bytes]
    """Each different one once, by its digest."""

    @classmethod
    def of(cls, data: bytes, chunk_bytes: int) -> "Content":
        pieces = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        pieces_by_digest = dict(zip(digests, pieces, strict=True))
        return cls(len(data), hashlib.sha256(data).hexdigest(), digests, pieces_by_digest)


@dataclass(frozen=True, slots=True)
class Target:
    bucket: str
    key: str
    created_at: float
    expires_at: float | None


async def upload(tree: Tree, target: Target, content: Content) -> Manifest | None:
    """Store an object; None when this upload was withdrawn, or lost a chunk that it wanted to take over.
    Then nothing has changed, and another try may do better."""
    manifest = await in_thread(lambda: _plan(tree, target, content))
    record = tree.record(manifest.upload)
    part = record.with_suffix(".part")
    try:
        await write_file(part, manifest.encode())
        await in_thread(lambda: part.rename(record))
        ids = {chunk.id for chunk in manifest.chunks}
        brought = {chunk for chunk in ids if chunk.endswith(manifest.upload)}
        if not await in_thread(lambda: all(tree.may_take_over(chunk) for chunk in ids - brought)):
            return None
        for chunk in sorted(brought):
            await unbroken(_bring(tree, chunk, content.pieces[digest_of(chunk)]))
            await in_thread(lambda: os.utime(record))  # a sign of life
        await in_thread(lambda: tree.commit(manifest))
    except FileNotFoundError:
        return None
    finally:
        await in_thread(lambda: (remove(part), remove(record)))
    return manifest


def _plan(tree: Tree, target: Target, content: Content) -> Manifest:
    """The manifest of an upload that takes over what is there, and brings the rest."""
    nonce = new_nonce()
    marks = tree.marks()
    ids = {}
    for digest in content.pieces:
        there = [copy.chunk for copy in tree.copies_of(f"{digest}-") if copy.chunk not in marks]
        ids[digest] = there[-1] if there else chunk_id(digest, nonce)
    chunks = tuple(Chunk(ids[digest], len(content.pieces[digest])) for digest in content.digests)
    return Manifest(
        bucket=target.bucket,
        key=target.key,
        upload=nonce,
        size=content.size,
        sha256=content.sha256,
        created_at=target.created_at,
        expires_at=target.expires_at,
        chunks=chunks,
    )


async def _bring(tree: Tree, chunk: str, data: bytes) -> None:
    """Everything that is new goes to the first volume; balance comes later."""
    copy = Copy(chunk, 1, new_nonce(), 0)
    await write_file(tree.path(copy.pin), data)
    await in_thread(lambda: tree.place(copy))
