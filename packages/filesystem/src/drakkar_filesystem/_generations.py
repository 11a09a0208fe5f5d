"""The folder of one lease: the generations in it, looked at and added to. Every function here blocks.

    base        where the numbers start; made once, and looked at only while there is no generation
    <number>    a generation: the record of one grant; its number is the fencing token
    .<number>   the same file under a second name, so that a number stays used when its file is deleted
    .<claim>.tmp  a record that has no number yet

Who wants the lease gives a finished file the next number by `link`, which only one can. That alone is not
enough: whoever was frozen before its `link` may meet a number that was used, and cleaned up, long ago. So a
claim has won only if a listing made *after* the link shows no generation newer than the one it was judged
by, save its own; else it is taken back. Only winners clean up, and only numbers below their own, so the
newest is never deleted and no number is granted twice.

Folders are opened anew where it matters what others did: that is when a network file system asks its
server.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from drakkar_filesystem._lease_record import MAX_RECORD_BYTES, Record, decode

BASE: Final = "base"
_NUMBER: Final = re.compile(r"\.?([1-9][0-9]{0,17})")
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")
_HIGHEST: Final = 10**18 - 1
_TRIES: Final = 20
_OLD_NS: Final = 3600 * 10**9
_MS_NS: Final = 10**6

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe that lies there must not block.
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
READ_WRITE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

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


def look(leases: int, place: str) -> Sight:
    """Find the newest generation and read it. Raises `OSError` when that cannot be told."""
    for _ in range(_TRIES):
        with place_opened(leases, place) as folder:
            names = os.listdir(folder)
            number = max(numbers(names), default=0)
            content = read(folder, number) if number else None
        if content is not None or str(number) not in names:
            return Sight(number, content)
        # Deleted since the listing, by one who has made a newer one.
    raise OSError(errno.EBUSY, "its generations change faster than they can be read", place)


def numbers(names: list[str]) -> set[int]:
    """The generations that were ever seen under these names of files."""
    return {int(found[1]) for name in names if (found := _NUMBER.fullmatch(name))}


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


def show_usable(leases: int, key: str) -> None:
    """Raise `OSError` where a second name for a file cannot be made, or does not lead to the same file."""
    first, second = f".{key}.tmp", f".{key}2.tmp"
    file = os.open(first, _CREATE, 0o600, dir_fd=leases)
    try:
        os.link(first, second, src_dir_fd=leases, dst_dir_fd=leases, follow_symlinks=False)
        if not _is(leases, second, file):
            raise OSError(errno.ENOTSUP, "hard links of this file system do not lead to the same file")
    finally:
        os.close(file)
        remove(leases, first)
        remove(leases, second)


def next_number(leases: int, place: str, sight: Sight, claim: str) -> int:
    """The number that a claim judged by `sight` has to take: everybody who saw the same takes the same."""
    newest = sight.number
    if not newest:
        with place_opened(leases, place) as folder:
            newest = _read_base(folder) or _make_base(folder, claim)
        if not newest:
            raise OSError(errno.EBUSY, "the base of its numbers was deleted while it was made", place)
    if newest >= _HIGHEST:
        raise OSError(errno.EOVERFLOW, "its numbers are used up: delete this folder", place)
    return newest + 1


def _read_base(folder: int) -> int:
    """0 when there is none yet."""
    try:
        file = os.open(BASE, READ, dir_fd=folder)
    except FileNotFoundError:
        return 0
    try:
        data = os.pread(file, MAX_RECORD_BYTES, 0)
    finally:
        os.close(file)
    try:
        base = json.loads(data)["base"]
        if type(base) is int and 0 < base < _HIGHEST:
            return base
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise OSError(errno.EINVAL, "the base of its numbers is damaged: delete this folder", BASE)


def _make_base(folder: int, claim: str) -> int:
    """Fix where the numbers start: at the milliseconds of the file server's clock, so that they rise even
    when everything was deleted."""
    temporary = f".{claim}.tmp"
    file = os.open(temporary, _CREATE, 0o600, dir_fd=folder)
    try:
        base = max(1, os.fstat(file).st_mtime_ns // _MS_NS)
        write_all(file, json.dumps({"base": base}).encode())
        os.fsync(file)
        with suppress(FileExistsError):  # somebody was faster
            os.link(temporary, BASE, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(file)
        remove(folder, temporary)
    return _read_base(folder)


def claim(
    leases: int, place: str, sight: Sight, number: int, key: str, data: bytes, *, linking: Callable[[], None]
) -> bool:
    """Make `data` the generation `number`; tell whether it has won. `key` is new for each claim.

    Calls `linking` right before the link; when anything is raised from then on, the claim may stand. What
    has lost is taken back. Returns when all of it is on the disk.
    """
    temporary = f".{key}.tmp"
    with place_opened(leases, place) as folder:
        file = os.open(temporary, _CREATE, 0o600, dir_fd=folder)
        try:
            try:
                write_all(file, data)
                linking()
                if not _link(folder, temporary, number, file):
                    return False
                os.rename(temporary, f".{number}", src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                remove(folder, temporary)
            names = _listed_if_won(leases, place, sight, number, file)
            if names is None:
                # The second name first: a number whose record is missing would count as free.
                remove(folder, f".{number}")
                remove(folder, str(number))
                return False
            os.fsync(file)
            sync(folder)
            _clean(folder, names, number, os.fstat(file).st_mtime_ns)
            return True
        finally:
            os.close(file)


def _link(folder: int, temporary: str, number: int, file: int) -> bool:
    try:
        os.link(temporary, str(number), src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        # Ours after all, if a network file system lost its first answer and asked again.
        return _is(folder, str(number), file)
    return True


def _listed_if_won(leases: int, place: str, sight: Sight, number: int, file: int) -> list[str] | None:
    with place_opened(leases, place) as folder:
        names = os.listdir(folder)
        newest_other = max(numbers(names) - {number}, default=0)
        return names if newest_other <= sight.number and _is(folder, str(number), file) else None


def _is(folder: int, name: str, file: int) -> bool:
    """Whether `name` leads to the opened file."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))


def _clean(folder: int, names: list[str], number: int, now_ns: int) -> None:
    """Delete what is older than the generation `number`, as far as that can be done."""
    for name in names:
        if (found := _NUMBER.fullmatch(name)) and int(found[1]) < number:
            remove(folder, name)
        elif _TEMPORARY.fullmatch(name):
            with suppress(OSError):
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns < now_ns - _OLD_NS:
                    remove(folder, name)


def settle(leases: int, place: str, number: int) -> None:
    """Do what is left of a claim that has won and then met an error."""
    with place_opened(leases, place) as folder:
        with suppress(FileExistsError):
            os.link(str(number), f".{number}", src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        file = os.open(str(number), READ, dir_fd=folder)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        sync(folder)


def is_newest(leases: int, place: str, number: int) -> bool:
    """Whether the generation is there and there is no newer one."""
    with place_opened(leases, place) as folder:
        names = os.listdir(folder)
    return max(numbers(names), default=0) == number and str(number) in names


def write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def remove(folder: int, name: str) -> None:
    """Delete the file if that is possible; somebody else may have been faster."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def sync(folder: int) -> None:
    """Bring the names in the folder to the disk, where that can be asked for."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
