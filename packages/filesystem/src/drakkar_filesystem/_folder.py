"""Opening the shared folder, and making it where that is right. Every function here blocks.

Nothing is kept open between two calls: an open descriptor would hold a mount busy and would go on seeing
the old file system after a remount.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from drakkar_filesystem._client import Proceed

WORKERS: Final = "workers"
LEASES: Final = "leases"

# O_PATH needs no right to read the folder, only to pass through it.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Make an `OSError` of a call with a relative name say which path it was about."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


class Folder:
    """The folder `<dir>/workers`, or another one there. Used by one thread at a time.

    It knows where it was found, so that an empty mount point is not taken for it: a folder that lived on a
    mounted file system and now would be on the file system *around* the mount point is refused, for reading
    and for making it anew. Another file system in the same place is taken as a remount. Not noticed: a mount
    that was absent from the very first call, and one whose device is that of its surroundings (a bind mount).
    """

    def __init__(self, path: Path, name: str = WORKERS) -> None:
        self.path: Final = path / name
        self._top = path
        self.device: int | None = None
        """Of the file system where the folder was found last; None before that."""

        self._device_around: int | None = None

    @contextmanager
    def opened(self, proceed: Proceed, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder; with `make`, missing folders are made, with mode 0700.

        Raises `OSError` naming the path when the folder is missing, is a link or a file, or seems not to be
        mounted.
        """
        descriptor = self._open(proceed, make)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, proceed: Proceed, make: bool) -> int:
        top = self._open_top(proceed, make)
        try:
            proceed()
            descriptor = self._open_inner(top, make)
        finally:
            os.close(top)
        try:
            device = os.fstat(descriptor).st_dev
            self._refuse_unmounted(device)
            if device != self.device:
                self._device_around = self._find_device_around(device)
                self.device = device
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _open_top(self, proceed: Proceed, make: bool) -> int:
        try:
            return os.open(self._top, _PASS)
        except FileNotFoundError:
            if not make:
                raise
        proceed()
        # Made step by step on descriptors: a mount that goes away in between cannot move the place.
        missing: list[Path] = []
        place = Path(os.path.realpath(self._top))
        while (here := _open_if_there(place)) is None:
            missing.append(place)
            place = place.parent
        for path in reversed(missing):
            try:
                below = self._make(path, here)
            finally:
                os.close(here)
            here = below
        return here

    def _open_inner(self, top: int, make: bool) -> int:
        try:
            return self._open_below(self.path, top)
        except FileNotFoundError:
            self._refuse_unmounted(os.fstat(top).st_dev)  # the better message
            if not make:
                raise
        return self._make(self.path, top)

    def _make(self, path: Path, parent: int) -> int:
        self._refuse_unmounted(os.fstat(parent).st_dev)
        with naming(path), suppress(FileExistsError):  # another worker was faster
            os.mkdir(path.name, 0o700, dir_fd=parent)
        return self._open_below(path, parent)

    def _open_below(self, path: Path, parent: int) -> int:
        try:
            with naming(path):
                return os.open(path.name, _READ, dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            message = "it must be a folder, not a file and not a link"
            raise NotADirectoryError(errno.ENOTDIR, message, str(path)) from error

    def _refuse_unmounted(self, device: int) -> None:
        if device == self._device_around:
            message = "the file system of this folder seems not to be mounted"
            raise OSError(errno.ENODEV, message, str(self.path))

    def _find_device_around(self, device: int) -> int | None:
        """The device of the nearest folder above that is on another one; None when there is none."""
        for path in Path(os.path.realpath(self.path)).parents:
            above = path.stat().st_dev
            if above != device:
                return above
        return None


def _open_if_there(path: Path) -> int | None:
    try:
        return os.open(path, _PASS)
    except FileNotFoundError:
        return None
