"""Where the values of the settings came from, for messages about them."""

from dataclasses import dataclass, field
from typing import Any

from drakkar.settings.text import KeyPath, one_line


@dataclass(slots=True)
class Origins:
    """Files with their lines, variables, the command line. All are equal: they are no part of what is set."""

    _found: dict[KeyPath, str] = field(default_factory=dict, compare=False, repr=False)

    def put(self, path: KeyPath, value: Any, origin: str) -> None:
        """`value`, and what is in it, came from `origin`."""
        self._found[path] = origin
        if isinstance(value, dict):
            for key, inner in value.items():
                self.put((*path, key), inner, origin)

    def of(self, *paths: KeyPath) -> str:
        """Where the values at `paths` came from, as the start of a message; empty for defaults."""
        found = [self._found[path] for path in paths if path in self._found]
        if not found:
            found = [origin for path in paths for origin in self._around(path)]
        return f"{', '.join(one_line(origin, 500) for origin in dict.fromkeys(found))}: " if found else ""

    def _around(self, path: KeyPath) -> list[str]:
        # A section that is there because a variable set a key in it; else the map or list that holds the key.
        inside = [origin for other, origin in self._found.items() if other[: len(path)] == path]
        outside = [path[:length] for length in range(len(path) - 1, 0, -1)]
        return (inside or [self._found[other] for other in outside if other in self._found])[:1]
