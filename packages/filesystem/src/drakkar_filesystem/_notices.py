"""What the kernel tells of changes in the folders of leases, by inotify; nothing, where it cannot.

It tells what processes of this host did, through the same mount. So it only makes waiting shorter: whoever
relies on it looks by itself now and then. Renewals go unnoticed on purpose: they write into a file, and that
is not asked for. A release also sets the file's times.
"""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncinotify import Inotify, Watch

MAX_WATCHES: Final = 8192


class Notices:
    """`changed` is set when a name was added to `dirty`; who looks at the name takes it out before."""

    def __init__(self) -> None:
        self.changed: Final = asyncio.Event()
        self.dirty: Final[set[str]] = set()
        self._inotify: Inotify | None = None
        self._watches: dict[str, Watch] = {}
        self._names: dict[Path, str] = {}
        self._listener: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Get ready. Blocks: looking for the C library may start a process. Raises when it is of no use."""
        if sys.platform == "linux" and self._inotify is None:
            from asyncinotify import Inotify

            self._inotify = Inotify()

    def listen(self) -> None:
        """Start the task that listens, on the event loop."""
        if self._inotify is not None and self._listener is None:
            self._listener = asyncio.create_task(self._listen(self._inotify), name="drakkar lease notices")

    async def stop(self) -> None:
        """End the task and let go of the kernel. May be called twice, and without `listen`."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = self._listener = None

    def would_tell(self, name: str) -> bool:
        """Whether nothing has changed since the name was taken out of `dirty`, as far as the kernel knows."""
        return name in self._watches and name not in self.dirty and self._is_listening()

    def watch(self, name: str, path: Path) -> bool:
        """Ask the kernel to tell of the lease; tell whether it does. Blocks."""
        if self._inotify is None or not self._is_listening():
            return False
        if name in self._watches:
            return True
        if len(self._watches) >= MAX_WATCHES:
            return False
        from asyncinotify import Mask

        mask = Mask.ATTRIB | Mask.CREATE | Mask.DELETE | Mask.MOVE | Mask.DELETE_SELF | Mask.MOVE_SELF
        self._names[path] = name  # before the first event can come
        try:
            self._watches[name] = self._inotify.add_watch(path, mask | Mask.ONLYDIR | Mask.DONT_FOLLOW)
        except OSError:
            self._names.pop(path, None)
            return False
        return True

    def _is_listening(self) -> bool:
        return self._listener is not None and not self._listener.done()

    def unwatch_all_but(self, names: Iterable[str]) -> None:
        """Forget those that nobody waits for, when they have become many."""
        wanted = set(names)
        unwanted = self._watches.keys() - wanted
        if self._inotify is None or len(unwanted) <= 16 + len(wanted):
            return
        for name in unwanted:
            watch = self._watches.pop(name)
            with suppress(OSError):  # it may have gone with its folder
                self._inotify.rm_watch(watch)

    async def _listen(self, inotify: "Inotify") -> None:
        from asyncinotify import Mask

        async for event in inotify:
            watch = event.watch
            name = None if watch is None else self._names.get(watch.path)
            if watch is None or name is None:
                self.dirty.update(self._watches)  # too many events came, and some were left out
            else:
                self.dirty.add(name)
                if event.mask & (Mask.IGNORED | Mask.MOVE_SELF):  # the folder is another one by now
                    self._watches.pop(name, None)
                    self._names.pop(watch.path, None)
            self.changed.set()
