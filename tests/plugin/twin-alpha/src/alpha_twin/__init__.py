"""One of two packages that register the name `twin`."""

from drakkar.fleet.none import make_registry as make_registry
