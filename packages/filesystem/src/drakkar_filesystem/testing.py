"""A folder for a test kit to run over: providers and lease backends that share it, and ways to let time pass.

Meant for the checks of `drakkar.fleet.testkit` and `drakkar.leases.testkit`, or of any other kit for the
same contracts.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drakkar_filesystem._card_file import SUFFIX
from drakkar_filesystem._folder import WORKERS
from drakkar_filesystem.registry import FilesystemRegistry, elapsed_seconds
from drakkar_filesystem.settings import read_settings

if TYPE_CHECKING:
    from drakkar_filesystem.leases import FilesystemLeases

_NS = 1_000_000_000


class Store:
    """The folder that `options` name; two providers of it stand for two processes."""

    lease_ttl_seconds: Final = 2.0
    """The shortest ttl that makes sense."""

    def __init__(self, options: Mapping[str, Any], prune_after_seconds: float = 600) -> None:
        """`options` are those of the provider. Raises `ValueError` when they do not hold."""
        self._options = {**options, "prune_after_seconds": prune_after_seconds}
        self._ahead_seconds = 0.0
        self._workers: Path = read_settings(self._options).dir / WORKERS

    def make_provider(self) -> FilesystemRegistry:
        """A new provider, not yet started."""
        return FilesystemRegistry(self._options)

    def advance(self, seconds: float) -> None:
        """Make every card now stored `seconds` older on the clock of the file server.

        Cards that are published afterwards are new. Does nothing when there is no folder yet.
        """
        try:
            paths = list(self._workers.iterdir())
        except FileNotFoundError:
            return
        for path in paths:
            found = path.lstat()
            if path.name.endswith(SUFFIX) and not path.name.startswith(".") and stat.S_ISREG(found.st_mode):
                back = found.st_mtime_ns - round(seconds * _NS)
                os.utime(path, ns=(found.st_atime_ns, back), follow_symlinks=False)

    def make_lease_backend(self) -> "FilesystemLeases":
        """A new lease backend, not yet started."""
        from drakkar_filesystem.leases import FilesystemLeases

        return FilesystemLeases(self._options, clock=lambda: elapsed_seconds() + self._ahead_seconds)

    def advance_leases(self, seconds: float) -> None:
        """Let that much time pass for every lease backend of this store."""
        self._ahead_seconds += seconds
