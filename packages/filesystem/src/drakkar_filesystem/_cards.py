"""The cards in the folder: publish one, list all, take one back. Every method here blocks.

They run on the provider's thread, one at a time, so what they remember needs no lock.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from drakkar.fleet.provider import PeerCard, PeerCardList

from drakkar_filesystem._card_file import SUFFIX, CardFile, file_name, plain, read_card_file, write_file
from drakkar_filesystem._client import Proceed
from drakkar_filesystem._files import remove
from drakkar_filesystem._folder import Folder, naming

_NS: Final = 1_000_000_000
_NO_FAULT_OF_THE_STORE: Final = (0, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Listing:
    """What one look at the folder found."""

    cards: PeerCardList
    rejected: list[tuple[str, str]]
    """File name and reason of everything that is named like a card and is none."""

    sharer: str
    """The worker that has its card in our own file; empty when there is none but us."""


class Cards:
    """The cards of the fleet, seen by one worker.

    Ages are those of the file server's clock, which is nowhere to be read. The modification time that our
    own card got when it was written is a sample of it; from then on our own elapsed time is added. So there
    are no ages, and nothing is old enough to be deleted, before the first publish.
    """

    def __init__(
        self,
        folder: Folder,
        worker: str,
        instance: str,
        *,
        prune_after_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._own_worker = worker
        self._instance = plain(instance)
        self._prune_after_seconds = prune_after_seconds
        self._clock = clock
        self._sample: tuple[int, float, int | None] | None = None
        self._files: dict[str, CardFile] = {}

    def probe(self, proceed: Proceed) -> None:
        """Make the folder and show that files can be written there."""
        with self._folder.opened(proceed, make=True) as folder:
            name = f".probe.{self._instance}.tmp"
            write_file(folder, self._folder.path, name, b"{}", proceed)
            remove(folder, name)

    def publish(self, worker: str, data: bytes, proceed: Proceed) -> None:
        """Put `data` in place of the worker's card: a reader sees the old bytes or the new ones."""
        name = file_name(worker)
        temporary = f".{name}.{self._instance}.tmp"
        with self._folder.opened(proceed, make=True) as folder:
            before = self._clock()  # not later than the sample, so that no peer looks younger than it is
            mtime_ns = write_file(folder, self._folder.path, temporary, data, proceed)
            try:
                proceed()  # a card must not appear after a withdraw that came later
                with naming(self._folder.path / name):
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                remove(folder, temporary)
                raise
            self._sample = mtime_ns, before, self._folder.device

    def withdraw(self, worker: str, instance: str, proceed: Proceed) -> None:
        """Delete the worker's card while it is of `instance`; that there is none is no error."""
        name = file_name(worker)
        try:
            with self._folder.opened(proceed) as folder, naming(self._folder.path / name):
                file = read_card_file(folder, name, regular=False)
                if file is None:
                    return
                if file.errno:
                    raise OSError(file.errno, os.strerror(file.errno))
                mine = file.worker == worker and file.card().get("instance") == instance
                if mine and _is_still(folder, name, file):
                    proceed()
                    os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return  # nor is it one that the folder is not there

    def read_all(self, proceed: Proceed) -> Listing:
        """Read what changed, delete what is too old, and tell what there is.

        Raises `OSError` when the folder, or everything in it, cannot be read.
        """
        with self._folder.opened(proceed) as folder, naming(self._folder.path):
            os.stat(".", dir_fd=folder)  # without the right to pass, each single card would look unreadable
            names, temporary = self._scan(folder, proceed)
            for name, regular in names.items():
                proceed()
                file = read_card_file(folder, name, self._files.get(name), regular=regular)
                if file is None:
                    self._files.pop(name, None)
                else:
                    self._files[name] = file
            self._raise_if_all_failed()
            self._delete_old(folder, temporary, proceed)
        return self._listing()

    def _scan(self, folder: int, proceed: Proceed) -> tuple[dict[str, bool], list[str]]:
        """The names of cards, with whether each is known to be a plain file, and of temporary files."""
        names: dict[str, bool] = {}
        temporary = []
        with os.scandir(folder) as entries:
            for entry in entries:
                proceed()
                if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                    names[entry.name] = _is_regular(entry)
                elif entry.name.startswith(".") and entry.name.endswith(".tmp"):
                    temporary.append(entry.name)
        # A name that is replaced during the scan may be missed by it, so a known one gets a second look.
        for name in self._files.keys() - names.keys():
            names[name] = False
        return names, temporary

    def _raise_if_all_failed(self) -> None:
        errors = [file.errno for file in self._files.values() if file.errno not in _NO_FAULT_OF_THE_STORE]
        if errors and not any(file.stamp for file in self._files.values()):
            raise OSError(errors[0], os.strerror(errors[0]))

    def _delete_old(self, folder: int, temporary: Iterable[str], proceed: Proceed) -> None:
        now_ns = self._now_ns()
        if now_ns is None:
            return
        oldest_ns = now_ns - round(self._prune_after_seconds * _NS)
        for name in [name for name, file in self._files.items() if file.mtime_ns < oldest_ns and file.worker]:
            if _is_still(folder, name, self._files.pop(name)):  # else it is new; the next listing shows it
                proceed()
                remove(folder, name)
        for name in temporary:
            with suppress(OSError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and found.st_mtime_ns < oldest_ns:
                    proceed()
                    remove(folder, name)

    def _listing(self) -> Listing:
        cards, rejected, sharer = [], [], ""
        now_ns = self._now_ns()  # at the end: what was read meanwhile has grown older
        for name, file in self._files.items():
            if file.reason:
                rejected.append((name, file.reason))
                continue
            age = None if now_ns is None else max(0.0, (now_ns - file.mtime_ns) / _NS)
            cards.append(PeerCard(file.card(), age))
        own = self._files.get(file_name(self._own_worker))
        if own is not None and own.worker not in ("", self._own_worker):
            sharer = own.worker
        return Listing(cards, rejected, sharer)

    def _now_ns(self) -> int | None:
        """The time on the file server; None before the first publish."""
        if self._sample is None:
            return None
        mtime_ns, at, device = self._sample
        if device != self._folder.device:  # mounted anew, perhaps from another server with another clock
            return None
        return mtime_ns + round((self._clock() - at) * _NS)


def _is_regular(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:  # a file system that does not tell types in listings had to be asked
        return False


def _is_still(folder: int, name: str, file: CardFile) -> bool:
    """Whether the name still leads to that file. Looks at the opened file again, not at its name only."""
    return read_card_file(folder, name, file, regular=False) is file
