"""The folder of one lease, and what is the newest generation in it. Every function here blocks.

    base          where the numbers start; made once, and looked at only while there is no generation
    <number>      a generation: the record of one grant; its number is the fencing token
    .<number>     the same file under a second name, so that a number stays used when its file is deleted
    .<claim>.tmp  a record that has no number yet

Folders are opened anew for every look: that is when a network file system asks its server.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from drakkar_filesystem._files import READ
from drakkar_filesystem._lease_record import MAX_RECORD_BYTES, Record, decode

NUMBER: Final = re.compile(r"\.?([1-9][0-9]{0,17})")
_TRIES: Final = 20

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NO_FILE: Final = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV, errno.EISDIR})
"""What opening says of a link, a pipe, a socket or a folder."""

_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})

Stamp = tuple[int, int, bytes]


@dataclass(frozen=True, slots=True)
class Content:
    """What a generation's file held when it was read."""

    stamp: Stamp
    """Differs whenever the holder did anything: inode, time and bytes of the *opened* file."""

    record: Record | None
    """None: garbage."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The newest generation at one moment."""

    number: int
    """0: there has been none."""

    content: Content | None
    """None: its file is gone, or there has been none."""


@contextmanager
def place_opened(leases: int, place: str) -> Iterator[int]:
    """A descriptor of the folder of one lease. Raises `OSError`: `FileNotFoundError` when there is none."""
    try:
        folder = os.open(place, _FOLDER, dir_fd=leases)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            message = "the place of a lease must be a folder, not a file and not a link"
            raise NotADirectoryError(errno.ENOTDIR, message, place) from error
        raise
    try:
        yield folder
    finally:
        os.close(folder)


def make_place(leases: int, place: str) -> None:
    """Make the folder of one lease, to the disk; it may be there already."""
    with suppress(FileExistsError):
        os.mkdir(place, 0o700, dir_fd=leases)
        sync(leases)


@contextmanager
def looked_at(leases: int, place: str) -> Iterator[tuple[int, Sight]]:
    """The folder of one lease, opened, and its newest generation. Raises `OSError` when that cannot be told.

    Who goes on to make a generation does so through this descriptor: the path may lead to another folder by
    then, where the numbers have nothing to do with what was seen.
    """
    for _ in range(_TRIES):
        with place_opened(leases, place) as folder:
            names = names_in(folder)
            number = max(numbers(names), default=0)
            content = read(folder, number) if number else None
            if content is not None or str(number) not in names:
                yield folder, Sight(number, content)
                return
        # Deleted since the listing, by one who has made a newer one.
    raise OSError(errno.EBUSY, "its generations change faster than they can be read", place)


def look(leases: int, place: str) -> Sight:
    """The newest generation alone."""
    with looked_at(leases, place) as (_, sight):
        return sight


def is_newest(leases: int, place: str, number: int) -> bool:
    """Whether the generation is there and there is no newer one."""
    with place_opened(leases, place) as folder:
        names = names_in(folder)
    return max(numbers(names), default=0) == number and str(number) in names


def numbers(names: Iterable[str]) -> set[int]:
    """The generations that were ever seen under these names of files."""
    return {int(found[1]) for name in names if (found := NUMBER.fullmatch(name))}


def read(folder: int, number: int) -> Content | None:
    """What the generation's file holds; None when it is not there."""
    name = str(number)
    try:
        file = os.open(name, READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        return _no_file(folder, name)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return _no_file(folder, name)
        data = os.pread(file, MAX_RECORD_BYTES + 1, 0)
    finally:
        os.close(file)
    return Content((found.st_ino, found.st_mtime_ns, data), decode(data))


def _no_file(folder: int, name: str) -> Content | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Content((found.st_ino, found.st_mtime_ns, b""), None)


def names_in(folder: int) -> list[str]:
    """The names in an opened folder."""
    return os.listdir(folder)


def sync(folder: int) -> None:
    """Bring the names in the folder to the disk, where that can be asked for."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
