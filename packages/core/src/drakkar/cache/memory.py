"""The values that are at hand: so many, of so much together; who was not used for a while goes first."""

from collections import OrderedDict
from typing import Any, Final

from drakkar.cache.rows import Row, decode_value

MAX_BYTES: Final = 256 * 1024 * 1024
"""Of all values together, as JSON text; what they take as objects is some times that."""

_SECOND_CHANCES: Final = 16
"""At most, for one that comes in: else it might have to look through all that there are."""


class Entry:
    """A row in memory. Its value is made of the text when somebody first asks for it."""

    __slots__ = ("row", "timed", "used", "value")

    value: Any
    """Missing until it is made, and for a row that expires: who finds it need not look further."""

    timed: Any
    """The same for a row that expires."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.used = False

    def read(self) -> Any:
        """The value, the same object each time; None for a text that is no JSON, as only a peer can send."""
        self.used = True
        kept = "value" if self.row.expires_at_ms is None else "timed"
        if not hasattr(self, kept):
            try:
                setattr(self, kept, decode_value(self.row.value))
            except ValueError:
                setattr(self, kept, None)
        return getattr(self, kept)


class Memory:
    """Entries by key. When there are too many, the oldest goes that was not used since it came or was last
    passed over: a use costs no more than a mark, whereas moving to the end at each would cost more than the
    look-up."""

    def __init__(self, max_entries: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self.entries: OrderedDict[str, Entry] = OrderedDict()

    def put(self, row: Row) -> Entry:
        self.drop(row.key)
        entry = self.entries[row.key] = Entry(row)
        self._bytes += _size(row)
        chances = _SECOND_CHANCES
        while len(self.entries) > self._max_entries or self._bytes > self._max_bytes:
            key, oldest = self.entries.popitem(last=False)
            if oldest.used and chances:
                oldest.used = False
                self.entries[key] = oldest
                chances -= 1
            else:
                self._bytes -= _size(oldest.row)
        return entry

    def drop(self, key: str) -> None:
        if (entry := self.entries.pop(key, None)) is not None:
            self._bytes -= _size(entry.row)


def _size(row: Row) -> int:
    return row.size_bytes + len(row.key)
