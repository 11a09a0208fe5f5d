"""What a test kit needs to run over this provider."""

from collections.abc import Mapping
from typing import Any

from drakkar.fleet.provider import RegistryProvider

from drakkar_static import make_registry


class Store:
    """A fixed list for one test. It takes no cards, so the checks of reading apply and no others."""

    def __init__(self, options: Mapping[str, Any], prune_after_seconds: float = 600) -> None:
        """`prune_after_seconds` is accepted as by every store; nothing of a fixed list is ever deleted."""
        del prune_after_seconds
        self._options = options

    def make_provider(self) -> RegistryProvider:
        """A new provider, not yet started."""
        return make_registry(self._options)

    def advance(self, seconds: float) -> None:
        """Does nothing: the ages of a fixed list are unknown however long one waits."""
