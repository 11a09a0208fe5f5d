"""Cards and leases of a fleet as files in a shared folder: the provider `filesystem`.

Only the factory is here. Importing it opens nothing and loads nothing else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from drakkar_filesystem.leases import FilesystemLeases
    from drakkar_filesystem.registry import FilesystemRegistry

__all__ = ["make_registry"]


class _Factory:
    """What the entry point names: `make_registry(options)` returns a provider that is not yet started."""

    def __call__(self, options: Mapping[str, Any]) -> "FilesystemRegistry":
        """Raises `ValueError`, one line that names the option, when `options` do not hold."""
        from drakkar_filesystem.registry import FilesystemRegistry

        return FilesystemRegistry(options)

    def lease_backend(self, options: Mapping[str, Any]) -> "FilesystemLeases":
        """Return a lease backend that is not yet started; raises as a call does."""
        from drakkar_filesystem.leases import FilesystemLeases

        return FilesystemLeases(options)


make_registry: Final = _Factory()
