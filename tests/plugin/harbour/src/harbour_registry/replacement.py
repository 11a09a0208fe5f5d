"""What this package puts in place of the provider `filesystem`."""

from collections.abc import Mapping
from typing import Any

from .registry import HarbourRegistry


class Replacement(HarbourRegistry):
    pass


def make_registry(options: Mapping[str, Any]) -> Replacement:
    return Replacement({"name": "filesystem"} | dict(options))
