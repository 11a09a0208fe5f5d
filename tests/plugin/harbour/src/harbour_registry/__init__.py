"""A small provider, registered as a function and as a class."""

from collections.abc import Mapping
from typing import Any

from drakkar.fleet.provider import RegistryProvider


def make_registry(options: Mapping[str, Any]) -> RegistryProvider:
    from .registry import HarbourRegistry

    return HarbourRegistry(options)
