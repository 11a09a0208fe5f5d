"""The values that are at hand: the last used ones, by number and by size."""

from collections import OrderedDict
from typing import Any, Final

from drakkar.cache.rows import Row, decode_value

MAX_BYTES: Final = 256 * 1024 * 1024
"""Of all values together, as JSON text; what they take as objects is some times that."""

UNREAD: Final = object()


class Entry:
    """A row in memory. Its value is made of the text when somebody first asks for it."""

    __slots__ = ("expires_at_ms", "row", "value")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.expires_at_ms = row.expires_at_ms
        self.value: Any = UNREAD

    def read(self) -> Any:
        """Make the value. Raises `ValueError` when the text is no JSON."""
        self.value = decode_value(self.row.value)
        return self.value


class Memory:
    """Entries by key; when there are too many, those that were not used for the longest time go first."""

    def __init__(self, max_entries: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self.entries: OrderedDict[str, Entry] = OrderedDict()

    def put(self, row: Row) -> None:
        self.drop(row.key)
        self.entries[row.key] = Entry(row)
        self._bytes += _size(row)
        while len(self.entries) > self._max_entries or self._bytes > self._max_bytes:
            _, oldest = self.entries.popitem(last=False)
            self._bytes -= _size(oldest.row)

    def drop(self, key: str) -> None:
        if (entry := self.entries.pop(key, None)) is not None:
            self._bytes -= _size(entry.row)


def _size(row: Row) -> int:
    return row.size_bytes + len(row.key)
