"""Making the next generation of a lease, so that one contender wins. Every function here blocks.

Whoever wants the lease gives a finished file the next number by `link`, which only one can. That alone is not
enough: whoever was frozen before its `link` may meet a number that was used, and cleaned up, long ago. So a
claim has won only if a listing made *after* the link shows no generation newer than the one it was judged
by, save its own; else it is taken back. Only winners clean up, and only numbers below their own, so the
newest is never deleted and no number is granted twice.
"""

import errno
import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from drakkar_filesystem._files import CREATE, READ, remove, write_all
from drakkar_filesystem._generations import NUMBER, Sight, names_in, numbers, place_opened, sync
from drakkar_filesystem._lease_record import MAX_RECORD_BYTES

BASE: Final = "base"
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")
_HIGHEST: Final = 10**18 - 1
_OLD_NS: Final = 3600 * 10**9
_MS_NS: Final = 10**6


def show_usable(leases: int, key: str) -> None:
    """Raise `OSError` where a second name for a file cannot be made, or does not lead to the same file."""
    first, second = f".{key}.tmp", f".{key}.link.tmp"
    file = os.open(first, CREATE, 0o600, dir_fd=leases)
    try:
        os.link(first, second, src_dir_fd=leases, dst_dir_fd=leases, follow_symlinks=False)
        if not _is(leases, second, file):
            raise OSError(errno.ENOTSUP, "hard links on this file system do not lead to the same file")
    finally:
        os.close(file)
        remove(leases, first)
        remove(leases, second)


def next_number(folder: int, sight: Sight, key: str) -> int:
    """The number that a claim judged by `sight` has to take: everybody who saw the same takes the same."""
    newest = sight.number or _read_base(folder) or _make_base(folder, key)
    if not newest:
        raise OSError(errno.EBUSY, "the base of its numbers was deleted while it was made")
    if newest >= _HIGHEST:
        raise OSError(errno.EOVERFLOW, "its numbers are used up: delete its folder")
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
    except (ValueError, TypeError, KeyError, RecursionError):
        base = None
    if type(base) is int and 0 < base < _HIGHEST:
        return base
    raise OSError(errno.EINVAL, "the base of its numbers is damaged: delete its folder")


def _make_base(folder: int, key: str) -> int:
    """Fix where the numbers start: at the milliseconds of the file server's clock, so that they rise even
    when everything was deleted."""
    temporary = f".{key}.tmp"
    file = os.open(temporary, CREATE, 0o600, dir_fd=folder)
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
    leases: int,
    place: str,
    folder: int,
    sight: Sight,
    number: int,
    key: str,
    data: bytes,
    linking: Callable[[], None],
) -> bool:
    """Make `data` the generation `number`; tell whether it has won. `key` is new for each claim.

    `folder` is the opened `place` that the lease was judged in by `sight`. Calls `linking` right before the
    link; when anything is raised from then on, the claim may stand. What has lost is taken back. Returns
    when all of it is on the disk.
    """
    temporary = f".{key}.tmp"
    file = os.open(temporary, CREATE, 0o600, dir_fd=folder)
    try:
        try:
            write_all(file, data)
            linking()
            if not _link(folder, temporary, str(number), file):
                return False
            if not _link(folder, temporary, f".{number}", file):  # used before; its record was deleted
                remove(folder, str(number))
                return False
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


def settle(leases: int, place: str, number: int) -> bool:
    """Do what is left of a claim that had won and then met an error; false when it had not won after all."""
    with place_opened(leases, place) as folder:
        file = os.open(str(number), READ, dir_fd=folder)
        try:
            if not _link(folder, str(number), f".{number}", file):
                return False
            os.fsync(file)
        finally:
            os.close(file)
        sync(folder)
        return True


def _link(folder: int, name: str, new: str, file: int) -> bool:
    """Give the opened file, which is called `name`, a further name, unless there is such a file already."""
    try:
        os.link(name, new, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        # Ours after all, if a network file system lost its first answer and asked again.
        return _is(folder, new, file)
    return True


def _listed_if_won(leases: int, place: str, sight: Sight, number: int, file: int) -> list[str] | None:
    with place_opened(leases, place) as folder:
        names = names_in(folder)
        newest_other = max(numbers(names) - {number}, default=0)
        return names if newest_other <= sight.number and _is(folder, str(number), file) else None


def _is(folder: int, name: str, file: int) -> bool:
    """Whether `name` leads to the opened file."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))


def _clean(folder: int, names: Iterable[str], number: int, now_ns: int) -> None:
    """Delete what is older than the generation `number`, as far as that can be done."""
    for name in names:
        if (found := NUMBER.fullmatch(name)) and int(found[1]) < number:
            remove(folder, name)
        elif _TEMPORARY.fullmatch(name):
            with suppress(OSError):
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns < now_ns - _OLD_NS:
                    remove(folder, name)
