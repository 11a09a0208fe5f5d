"""Leave to act: what work in a thread asks for before each step."""

import threading
from collections.abc import Callable
from typing import TypeVar

from drakkar.supervisor.worker import LeaseHandle

from objectstore.files import in_thread

T = TypeVar("T")


class Withdrawn(Exception):  # noqa: N818  not an error; nobody sees it
    """The run was cancelled while its thread was at work."""


class Permit:
    """The lease of a run, and whether the run goes on. Made for one run."""

    def __init__(self, lease: LeaseHandle) -> None:
        self._lease = lease
        self._cancelled = threading.Event()

    @property
    def lease(self) -> str:
        return self._lease.name

    @property
    def token(self) -> int:
        return self._lease.token

    def cancel(self) -> None:
        """The run was cancelled: let its threads end."""
        self._cancelled.set()

    def check(self) -> None:
        """Raise unless the lease is held and the run goes on. From any thread, before each side effect."""
        if self._cancelled.is_set():
            raise Withdrawn
        self._lease.check()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what `work` returns. After a cancellation `work` ends at its next `check`, and only then the
        cancellation is passed on: a run is not over while a thread of it writes."""

        def checked() -> T:
            self.check()
            return work()

        return await in_thread(checked, self.cancel)
