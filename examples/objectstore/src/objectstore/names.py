"""How files are named, and what a name says: text only, no file is touched.

A name is never used twice. Every version of an object, every chunk and every copy of a chunk carries random
hex digits made for it alone. So whoever removes a file by its name, however late, removes what it meant to
remove or nothing at all, never something newer. The one exception are marks, which only ever say no: one that
is made too late is for a chunk that will never be there again, and is swept away.
"""

import re
import secrets
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import quote, unquote

from drakkar.supervisor.shares import fnv32a

VOLUMES: Final = (0, 1)
FOLDERS: Final = "0123456789abcdef"
"""Files are spread over this many folders, so that none becomes long to list."""

MAX_KEY_BYTES: Final = 180
_BUCKET: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_VERSION: Final = re.compile(r"([^@]+)@([0-9]{10})@([0-9a-f]{16})\.json")
_COPY: Final = re.compile(r"([0-9a-f]{64}-[0-9a-f]{16})\.([0-9]{1,9})\.([0-9a-f]{16})")


def new_nonce() -> str:
    """Digits that were never used before."""
    return secrets.token_hex(8)


def check_bucket(bucket: str) -> str:
    """Return `bucket`; raises `ValueError` when it cannot be the name of one."""
    if _BUCKET.fullmatch(bucket) is None:
        raise ValueError(f"{bucket!r:.80} cannot be a bucket: 1 to 63 of a-z, 0-9 and, in between, -")
    return bucket


def quote_key(key: str) -> str:
    """The key as a part of a file name; raises `ValueError` when it is empty or too long."""
    quoted = quote(key, safe="")
    if not 1 <= len(quoted) <= MAX_KEY_BYTES:
        raise ValueError(f"{key!r:.80} cannot be a key: 1 to {MAX_KEY_BYTES} bytes, once it is quoted")
    return quoted


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """One manifest. Of several versions of a key the greatest is the object; the others are old."""

    bucket: str
    key: str
    number: int
    upload: str
    """The upload that it came from."""

    @property
    def folder(self) -> str:
        return key_folder(self.bucket, self.key)

    @property
    def name(self) -> str:
        return f"{self.folder}/{quote_key(self.key)}@{self.number:010d}@{self.upload}.json"

    @classmethod
    def parse(cls, bucket: str, file_name: str) -> Self | None:
        """None for a file that is no manifest."""
        match = _VERSION.fullmatch(file_name)
        return match and cls(bucket, unquote(match[1]), int(match[2]), match[3])


def key_folder(bucket: str, key: str) -> str:
    return f"buckets/{bucket}/{FOLDERS[fnv32a(key) % len(FOLDERS)]}"


def chunk_id(digest: str, upload: str) -> str:
    """The chunk with this SHA-256 that an upload brought. Later uploads of the same bytes take it over,
    unless it is condemned; then they bring one of their own."""
    return f"{digest}-{upload}"


def digest_of(chunk: str) -> str:
    return chunk.partition("-")[0]


def mark_name(chunk: str) -> str:
    """The mark that condemns a chunk."""
    return f"condemned/{chunk}"


def is_mark(name: str) -> bool:
    return name.startswith("condemned/")


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """One file with the bytes of a chunk. Of several copies the greatest is kept; the others are
    superseded."""

    chunk: str
    generation: int
    nonce: str
    volume: int = field(compare=False)

    @property
    def file_name(self) -> str:
        return f"{self.chunk}.{self.generation}.{self.nonce}"

    @property
    def name(self) -> str:
        return f"volumes/{self.volume}/{self.chunk[0]}/{self.file_name}"

    @property
    def pin(self) -> str:
        """Where it is written, before it is moved to its place in one step. While this file is there, its
        chunk is not collected."""
        return f"volumes/{self.volume}/incoming/{self.file_name}"

    @classmethod
    def parse(cls, volume: int, file_name: str) -> Self | None:
        """None for a file that is no copy."""
        match = _COPY.fullmatch(file_name)
        return match and cls(match[1], int(match[2]), match[3], volume)
