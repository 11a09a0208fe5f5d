"""One card file: its name, writing it, reading it. Every function here blocks."""

import errno
import marshal
import os
import re
import stat
from pathlib import Path
from typing import Final, cast

from drakkar.fleet.card import MAX_CARD_BYTES, Card, CardError, decode_card

from drakkar_filesystem._client import Proceed
from drakkar_filesystem._files import CREATE, READ, remove, write_all
from drakkar_filesystem._folder import naming

SUFFIX: Final = ".json"
_REPLACED: Final = re.compile(r"[^a-zA-Z0-9_-]")

_VANISHED: Final = frozenset({errno.ENOENT, errno.ESTALE})
_NO_FILE: Final = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV})
_MORE_THAN_THE_FILE: Final = frozenset(  # about this process or the whole file system
    {
        errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT,
        errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNABORTED,
        errno.ECONNREFUSED, errno.ECONNRESET,
    }
)  # fmt: skip

Stamp = tuple[int, int, int, int]


def plain(name: str) -> str:
    """`name` with every character replaced that a file name is not to have."""
    return _REPLACED.sub("_", name)


def file_name(worker: str) -> str:
    """The file of the worker's card. Workers whose names differ only in replaced characters share one."""
    return plain(worker) + SUFFIX


class CardFile:
    """What a file named like a card held when it was last read."""

    __slots__ = ("_bytes", "_unused", "errno", "mtime_ns", "reason", "stamp", "worker")

    def __init__(
        self,
        stamp: Stamp | None = None,
        mtime_ns: int = 0,
        card: Card | None = None,
        worker: str = "",
        reason: str = "",
        errno: int = 0,
    ) -> None:
        self.stamp = stamp
        """Differs when another file was put in place; None: read it again in any case."""

        self.mtime_ns = mtime_ns
        self.reason = reason
        """Why it is no card, in one word; empty when it is one."""

        self.errno = errno
        """Why it is `unreadable`."""

        self.worker = worker
        """Whose card it is; empty when there is none."""

        self._unused = card
        self._bytes = marshal.dumps(card)

    def card(self) -> Card:
        """The card, each time a new one that is the caller's own.

        Made by marshal, from bytes that are nobody's but ours, which takes a third of what parsing takes.
        """
        card, self._unused = self._unused, None
        return card if card is not None else cast("Card", marshal.loads(self._bytes))  # noqa: S302


def read_card_file(folder: int, name: str, last: CardFile | None = None, *, regular: bool) -> CardFile | None:
    """Look at the file `name`; None when there is none.

    The same object as `last` comes back while the file is unchanged. Sizes and times are those of the
    *opened* file, since a network file system may answer a bare stat from memory for up to a minute.
    `regular` says that its type is known already; a pipe or a device is never opened.

    Raises `OSError` only for what concerns more than this file.
    """
    try:
        return _read(folder, name, last, regular)
    except OSError as error:
        if error.errno != errno.ESTALE:
            return _failed(error)
    try:
        return _read(folder, name, last, regular)  # replaced, by another client of the server, while we read
    except OSError as error:
        return _failed(error)


def _read(folder: int, name: str, last: CardFile | None, regular: bool) -> CardFile:
    if not regular and not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return CardFile(reason="not_a_file")
    descriptor = os.open(name, READ, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        size, mtime_ns = found.st_size, found.st_mtime_ns
        stamp = mtime_ns, found.st_ctime_ns, size, found.st_ino
        if last is not None and last.stamp == stamp:
            return last
        if not stat.S_ISREG(found.st_mode):
            return CardFile(reason="not_a_file")
        if size > MAX_CARD_BYTES:
            return CardFile(stamp, mtime_ns, reason="too_large")
        data = os.read(descriptor, size + 1)
        if len(data) != size:  # it is just being written to
            while len(data) <= MAX_CARD_BYTES and (more := os.read(descriptor, MAX_CARD_BYTES)):
                data += more
    finally:
        os.close(descriptor)
    try:
        card = decode_card(data)
    except CardError as error:
        return CardFile(stamp, mtime_ns, reason=error.reason)
    worker = card.get("worker")
    if not isinstance(worker, str) or not worker:  # told of here, where the name of the file is known
        missing = "empty_field" if worker == "" else "wrong_type"
        return CardFile(stamp, mtime_ns, reason=missing if "worker" in card else "missing_field")
    if file_name(worker) != name:  # a copy must not be a second row of its worker
        return CardFile(stamp, mtime_ns, reason="wrong_name")
    return CardFile(stamp, mtime_ns, card, worker)


def _failed(error: OSError) -> CardFile | None:
    if error.errno in _VANISHED:
        return None
    if error.errno in _MORE_THAN_THE_FILE:
        raise error
    if error.errno in _NO_FILE:
        return CardFile(reason="not_a_file")
    return CardFile(reason="unreadable", errno=error.errno or errno.EIO)


def write_file(folder: int, path: Path, name: str, data: bytes, proceed: Proceed) -> int:
    """Write the new file `name`, to the disk of the file server; return its modification time there.

    What fails, or is abandoned, leaves no file behind unless it cannot be deleted.
    """
    with naming(path / name):
        try:
            descriptor = os.open(name, CREATE, 0o600, dir_fd=folder)
        except FileExistsError:  # ours, from a try that could not even clean up
            os.unlink(name, dir_fd=folder)
            descriptor = os.open(name, CREATE, 0o600, dir_fd=folder)
        try:
            try:
                proceed()
                write_all(descriptor, data)
                os.fsync(descriptor)
                return os.fstat(descriptor).st_mtime_ns
            finally:
                os.close(descriptor)
        except BaseException:
            remove(folder, name)
            raise
