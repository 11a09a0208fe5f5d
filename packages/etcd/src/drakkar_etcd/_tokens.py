"""What the tokens of a fleet begin with: a key that is made once, and that every grant compares."""

import time

from drakkar_etcd._client import EtcdClient
from drakkar_etcd._records import SCALE
from drakkar_etcd._wire import Json, compare, decoded, encoded, got, number, then_get, transaction


class Tokens:
    """Every method raises as `EtcdClient.call` does."""

    def __init__(self, client: EtcdClient, key: str) -> None:
        self._client = client
        self._key = encoded(key)
        self._text = ""
        self.highest = 0
        """Of all tokens that this process has seen. Revisions count for the whole store, so a new one is
        greater, whatever its name is."""

    @property
    def base(self) -> int:
        """Milliseconds; `prepare` comes first."""
        return int(self._text)

    async def prepare(self) -> None:
        """Find or make the key. One that somebody has overwritten with anything but a number is replaced, as
        if it had been deleted."""
        spoiled = 0
        while not self._text:
            now = self._now()
            request = transaction(
                [compare(self._key, "mod", spoiled)], [self._then_write(now)], [self.look()]
            )
            answer = await self._client.call("/kv/txn", request)
            if answer.get("succeeded"):
                self._text = now
                return
            found = got(answer, 0)
            text = "" if found is None else decoded(found.get("value")).decode(errors="replace")
            if text.isascii() and text.isdigit() and len(text) < 16:
                self._text = text
            spoiled = 0 if found is None else number(found["mod_revision"])

    def saw(self, token: int) -> None:
        self.highest = max(self.highest, token)

    def unchanged(self) -> Json:
        """The condition that a grant names."""
        return compare(self._key, "value", self._text)

    def look(self) -> Json:
        """The read that tells why a grant failed at it."""
        return then_get(self._key)

    def adopt(self, found: Json | None) -> None:
        """Find it anew if this is not what we know."""
        if found is None or decoded(found.get("value")) != self._text.encode():
            self._text = ""

    async def begin_anew(self) -> None:
        """Have tokens begin from now, unless somebody else has seen to that."""
        await self._client.call("/kv/txn", transaction([self.unchanged()], [self._then_write(self._now())]))
        self._text = ""

    def _now(self) -> str:
        # Above all that this process has seen, too: clocks of hosts differ.
        return str(max(round(time.time() * 1000), self.highest // SCALE + 1))

    def _then_write(self, text: str) -> Json:
        return {"request_put": {"key": self._key, "value": encoded(text)}}
