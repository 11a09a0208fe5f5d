"""One locked file for each process: how others on the same host notice that it died. All of it blocks.

The kernel drops a `flock` with the last descriptor of the file, so a lock that can be had shows that the
process is gone, but only if it is the same kernel (the boot id), and the very file (device and inode) that
the process named in its records. Everything else proves nothing. A lock that is held proves nothing either:
a child may have inherited the descriptor.

Never `lockf`: its locks end as soon as the process closes any descriptor of the file.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from drakkar_filesystem._files import READ, remove
from drakkar_filesystem._generations import names_in, place_opened
from drakkar_filesystem._lease_record import MAX_TTL_SECONDS, Record, place_of

HOLDERS: Final = ".holders"
_OLD_NS: Final = round(2 * MAX_TTL_SECONDS) * 10**9
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_kept: Final[list[int]] = []
"""Locks that are to last as long as this process."""


class Holders:
    """The file of this process, and a look at those of others."""

    def __init__(self, instance: str, boot_id: str | None) -> None:
        self._name: Final = place_of(instance)
        self.boot_id: Final = boot_id
        self._file = -1
        self._found: tuple[int, int] | None = None
        self.device: int | None = None
        self.inode: int | None = None
        """Of our file; None when nobody could notice our death by it."""

    def take(self, leases: int) -> None:
        """Have a locked file, making it when there is none or it was deleted.

        Where locks do not work, leases are given up by time alone: no error. Raises `OSError` when no file
        can be made.
        """
        with suppress(FileExistsError):
            os.mkdir(HOLDERS, 0o700, dir_fd=leases)
        with place_opened(leases, HOLDERS) as folder:
            if self._is_open() and self._leads_to_ours(folder):
                return
            file = os.open(self._name, _OPEN, 0o600, dir_fd=folder)
            locked = _lock(file, fcntl.LOCK_EX)
            self._close()  # after the new one was made, whose inode is another one that way
            found = os.fstat(file)
            self._file, self._found = file, (found.st_dev, found.st_ino)
            if locked and stat.S_ISREG(found.st_mode) and self._keeps_others_out(folder):
                self.device, self.inode = self._found

    def holds(self, leases: int) -> bool:
        """Whether nobody can take us for dead; false when somebody closed our descriptor.

        Tells the file server that our file is in use.
        """
        if self.inode is None:
            return True
        if not self._is_open():
            return False
        with suppress(OSError):
            os.utime(self._file)
        try:
            with place_opened(leases, HOLDERS) as folder:
                return not self._leads_to_ours(folder) or self._keeps_others_out(folder)
        except FileNotFoundError:
            return True

    def is_dead(self, leases: int, record: Record) -> bool:
        """Whether it is certain that the process that wrote `record` has ended."""
        theirs = record.device, record.inode
        if self.boot_id is None or record.boot_id != self.boot_id or None in theirs:
            return False
        if theirs == (self.device, self.inode):
            return False
        try:
            with _opened(leases, place_of(record.instance)) as file:
                found = os.fstat(file)
                # Shared, so that several who look at once do not take each other for the holder.
                return (found.st_dev, found.st_ino) == theirs and _lock(file, fcntl.LOCK_SH)
        except OSError:
            return False

    def prune(self, leases: int) -> None:
        """Delete files of processes that have long been gone, as far as that can be done."""
        with suppress(OSError), place_opened(leases, HOLDERS) as folder:
            now_ns = os.fstat(self._file).st_mtime_ns
            for name in names_in(folder):
                with suppress(OSError):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if found.st_mtime_ns < now_ns - _OLD_NS and name != self._name:
                        with _opened(leases, name) as file:
                            if _lock(file, fcntl.LOCK_EX):
                                remove(folder, name)

    def leave(self, leases: int) -> None:
        """Delete our file and let it go; then nobody can take us for dead. For when nothing is held."""
        with suppress(FileNotFoundError), place_opened(leases, HOLDERS) as folder:
            if self._is_open() and self._leads_to_ours(folder):
                os.unlink(self._name, dir_fd=folder)
        self._close()

    def keep(self) -> None:
        """Let our file stay locked until the process ends. The one method that does not block."""
        if self._file >= 0:
            _kept.append(self._file)
            self._file = -1

    def _close(self) -> None:
        if self._is_open():
            with suppress(OSError):
                os.close(self._file)
        self._file, self._found, self.device, self.inode = -1, None, None, None

    def _is_open(self) -> bool:
        """Whether the descriptor is our file's still: some programs close all, and its number is reused."""
        try:
            found = os.fstat(self._file)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._found

    def _leads_to_ours(self, folder: int) -> bool:
        try:
            found = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._found

    def _keeps_others_out(self, folder: int) -> bool:
        """Whether our lock does what it should; there are file systems on which every lock succeeds."""
        file = os.open(self._name, READ, dir_fd=folder)
        try:
            return not _lock(file, fcntl.LOCK_SH)
        finally:
            os.close(file)


@contextmanager
def _opened(leases: int, name: str) -> Iterator[int]:
    with place_opened(leases, HOLDERS) as folder:
        file = os.open(name, READ, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def read_boot_id() -> str | None:
    """What tells one run of a kernel from every other; None where there is no such thing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None
