"""What may go wrong, split by what the caller does next. Names that cannot be are plain `ValueError`s."""


class ObjectStoreError(Exception):
    """Base of the errors that this package raises on purpose; one line for a person."""


class NoSuchObject(ObjectStoreError):  # noqa: N818  the state of affairs
    """There is no such object, or no longer: it was deleted or has expired."""


class UploadWithdrawn(ObjectStoreError):  # noqa: N818
    """Try again: this upload stood still for so long that the collector took it for a dead one."""


class ChunkMissing(ObjectStoreError):  # noqa: N818
    """A live manifest names a chunk that is not there, or not what it should be. Never, if all is well."""


class Unreadable(ObjectStoreError):  # noqa: N818
    """Look at it yourself: a manifest is not what this package wrote. Nothing is collected meanwhile, since
    nobody knows what it names."""


class StaleWrite(ObjectStoreError):  # noqa: N818
    """Step down: a background worker with a greater token has written under this lease."""
