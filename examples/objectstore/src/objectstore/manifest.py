"""What an object is made of."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from objectstore.errors import Unreadable


@dataclass(frozen=True, slots=True)
class Chunk:
    id: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Never changes: an object that is put again gets a new one."""

    bucket: str
    key: str
    upload: str
    size: int
    sha256: str
    created_at: float
    """Seconds since 1970, by the clock of the writer's host."""

    expires_at: float | None
    """From then on the object is not there any more; the one thing in this store that a wall clock
    decides."""

    chunks: tuple[Chunk, ...]

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises `Unreadable` for what is no manifest."""
        try:
            fields: dict[str, Any] = json.loads(data)
            chunks = tuple(Chunk(**chunk) for chunk in fields.pop("chunks"))
            return cls(**fields, chunks=chunks)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"not a manifest: {data[:80]!r}") from error
