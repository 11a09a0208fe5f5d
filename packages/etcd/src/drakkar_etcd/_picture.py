"""What one process knows of the cards in the store: what they hold, and when each was published.

No request and no clock in here: the registry tells what it read and heard, and when.
"""

import marshal
from collections.abc import Iterable
from typing import Any, Final, cast

from drakkar_etcd._cards import UnreadableError, decode_card
from drakkar_etcd._wire import Folder, Json, decoded, number


class Entry:
    """One key under the cards, as of its revision `mod`."""

    __slots__ = ("_packed", "heard_at", "key", "lease", "mod", "reason", "seen_at", "shown")

    def __init__(self, kv: Json, folder: Folder, seen_at: float) -> None:
        self.key: Final[str] = kv["key"]
        self.mod: Final = number(kv["mod_revision"])
        self.lease: Final = number(kv.get("lease"))
        """The etcd lease that it hangs on; 0 for none."""

        self.seen_at: Final = seen_at
        """When this process first had it: it is not younger."""

        self.heard_at: float | None = None
        """When it was published, on our own clock; None: not known yet."""

        self.reason = ""
        """Why it is no card; empty when it is one."""

        self.shown: Final = folder.shown(self.key)
        card = None
        try:
            card = decode_card(decoded(kv.get("value")))
            _check_place(card, folder.name(self.key))
        except UnreadableError as error:
            self.reason = error.reason
        self._packed = marshal.dumps(card)

    def card(self) -> dict[str, Any]:
        """The card, each time a new one, the caller's own; marshal takes a third of what parsing does."""
        return cast("dict[str, Any]", marshal.loads(self._packed))  # noqa: S302  the bytes are ours

    def age_seconds(self, now: float) -> float | None:
        return None if self.heard_at is None else max(0.0, now - self.heard_at)

    def is_older_than(self, seconds: float, now: float) -> bool:
        """Certainly, whether its age is known or not."""
        return now - (self.seen_at if self.heard_at is None else self.heard_at) > seconds


def _check_place(card: Json, name: str | None) -> None:
    """Refuse what no worker of that name put here: a copy must not be a second row of its worker. Only here
    is the key known, so a card that names no worker is told of here, too."""
    if "worker" not in card:
        raise UnreadableError("missing_field")
    worker = card["worker"]
    if not isinstance(worker, str):
        raise UnreadableError("wrong_type")
    if not worker:
        raise UnreadableError("empty_field")
    if worker != name:
        raise UnreadableError("wrong_name")


class Picture:
    """The cards as the store had them at `revision`, and some changes after it."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._entries: dict[str, Entry] = {}
        self.revision = 0
        """Every change up to this one is in."""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def unheard(self) -> list[Entry]:
        """Those whose age is not known, and could be."""
        return [entry for entry in self._entries.values() if entry.heard_at is None and entry.lease]

    def is_unheard(self, entry: Entry) -> bool:
        """Whether `entry` is still what is known of its key, and the watch has not told of it."""
        return self._entries.get(entry.key) is entry and entry.heard_at is None

    def forget(self) -> None:
        """The store is another one, or has lost its data."""
        self._entries.clear()
        self.revision = 0

    def replace(self, kvs: Iterable[Json], revision: int, now: float) -> None:
        """The store has these and no others. What has not changed keeps its age."""
        before, self._entries = self._entries, {}
        for kv in kvs:
            old = before.get(kv["key"])
            same = old is not None and old.mod == number(kv["mod_revision"])
            self._entries[kv["key"]] = cast("Entry", old) if same else Entry(kv, self._folder, now)
        self.revision = revision

    def add(self, kvs: Iterable[Json], now: float) -> list[Entry]:
        """Take in what was read and is new; return that."""
        news = [Entry(kv, self._folder, now) for kv in kvs]
        self._entries.update((entry.key, entry) for entry in news)
        return news

    def hear(self, events: Iterable[Json], now: float, live_after: int) -> None:
        """Take in one message of the watch that came at `now`. What has a revision above `live_after` had
        just happened; the rest had been waiting for the watch to begin."""
        newest = self.revision
        for event in events:
            kv = event["kv"]
            mod = number(kv["mod_revision"])
            newest = max(newest, mod)
            entry = self._entries.get(kv["key"])
            if mod > self.revision:  # else a reading had it before, and perhaps what came after it
                if event.get("type") == "DELETE":
                    self._entries.pop(kv["key"], None)
                    continue
                entry = self._entries[kv["key"]] = Entry(kv, self._folder, now)
            if mod > live_after and entry is not None and entry.mod == mod and entry.heard_at is None:
                entry.heard_at = now
        self.revision = newest
