"""An object store in a folder. `Store` is for programs; `objectstore.workers` keeps the folder in order."""

from objectstore.errors import ChunkMissing, NoSuchObject, ObjectStoreError, StaleWrite, UploadWithdrawn
from objectstore.manifest import Manifest
from objectstore.store import Store

__all__ = [
    "ChunkMissing",
    "Manifest",
    "NoSuchObject",
    "ObjectStoreError",
    "StaleWrite",
    "Store",
    "UploadWithdrawn",
]
