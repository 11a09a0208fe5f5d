"""A generation of our own: keeping it alive, giving it back. Every function here blocks.

A record is only ever changed by its holder, in the file itself and through a descriptor of what was found
to be ours: should somebody put another file in its place, that one is not touched.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drakkar_filesystem._client import Proceed
from drakkar_filesystem._files import READ_WRITE
from drakkar_filesystem._generations import NO_FILE, Sight, is_newest, place_opened
from drakkar_filesystem._lease_record import (
    COUNTER_AT,
    MAX_RECORD_BYTES,
    RELEASED,
    RELEASED_AT,
    counter_field,
    is_unchanged,
)


@dataclass(slots=True)
class Grant:
    """A generation that is, or may be, ours."""

    place: str
    number: int
    data: bytes
    """Its record as it was written first."""

    granted_at: float
    asked_at: float
    """When that was asked for which was last done in time."""

    counter: int = 0
    """The highest that we have tried to write."""

    lost: bool = False
    on_disk: bool = False

    def is_in(self, sight: Sight) -> bool:
        """Whether it is this grant that was seen, not given back."""
        content = sight.content
        return sight.number == self.number and content is not None and self._is(content.stamp[2])

    def touch(self, leases: int, clock: Callable[[], float], limit: float) -> bool:
        """Change the record, *then* see whether it is still the newest and `limit` has not passed.

        A contender either sees the change, or has been overtaken, or is seen here; and before the limit none
        can have seen the record stand still for a ttl. False is certain; raises `OSError` when nothing is.
        """
        if self.lost or clock() >= limit:
            return False
        try:
            with self._opened(leases) as file:
                if file is None:
                    return False
                self.counter += 1
                _write(file, counter_field(self.counter), COUNTER_AT)
            # Closed by now: that is when a network file system tells its server.
            newest = is_newest(leases, self.place, self.number)
        except FileNotFoundError:
            return False
        return newest and clock() < limit

    def give_back(self, leases: int, proceed: Proceed) -> None:
        """Mark the record as released, if it is ours. The number stays the newest."""
        with self._opened(leases) as file:
            if file is not None:
                proceed()
                _write(file, RELEASED, RELEASED_AT)
                os.utime(file)  # waiters are told of changes of times, not of content

    @contextmanager
    def _opened(self, leases: int) -> Iterator[int | None]:
        """The opened file; None when there is something else in its place.

        Raises `FileNotFoundError` when there is nothing.
        """
        file = -1
        with place_opened(leases, self.place) as folder:
            try:
                file = os.open(str(self.number), READ_WRITE, dir_fd=folder)
            except OSError as error:
                if error.errno not in NO_FILE:
                    raise
        if file < 0:
            yield None
            return
        try:
            yield file if self._is(_read(file)) else None
        finally:
            os.close(file)

    def _is(self, data: bytes) -> bool:
        return is_unchanged(data, self.data, self.counter)


def _read(file: int) -> bytes:
    try:
        return os.pread(file, MAX_RECORD_BYTES + 1, 0)
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise
        return b""  # a pipe


def _write(file: int, data: bytes, offset: int) -> None:
    if os.pwrite(file, data, offset) != len(data):
        raise OSError(errno.EIO, "a record was written in part only")
