"""Where the numbers of a fleet's grants start, so that fencing tokens rise after the servers lost their
data."""

import re
import time
from contextlib import suppress
from typing import Final

from drakkar_consul import _keys as keys
from drakkar_consul._client import ConflictError, ConsulClient, ConsulError
from drakkar_consul._keys import Entry

_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_TRIES: Final = 6


class TokenBase:
    """One key of the fleet, made once, and written again only when numbers came a second time.

    The index of a change rises over release, expiry and deletion, but starts anew when the servers lost their
    data. So a token is the number in this key, the microseconds of the wall clock when it was made, and on
    top of that how many changes came after it. A base that is made anew is higher than every token before as
    long as there were less than a million changes a second between the two; the index itself, which on
    servers of an age is already high when the base is made, does not count. Tokens stay below 2**53 for two
    hundred years.
    """

    def __init__(self, client: ConsulClient, key: str) -> None:
        self._client = client
        self._key = key
        self._entry: Entry | None = None
        self.highest = 0
        """The highest token that this process has seen: a clock that was set back must not make lower
        ones."""

    async def get(self) -> Entry:
        """The key; every grant checks that its index is still this one."""
        if self._entry is None:
            self._entry = await self._read_or_make()
        return self._entry

    def forget(self) -> None:
        """It was changed: read it again."""
        self._entry = None

    async def token(self, changed: int) -> int:
        """The token of a grant that was made by the change `changed`."""
        base = await self.get()
        token = int(base.value) + changed - base.created
        self.highest = max(self.highest, token)
        return token

    async def begin_anew(self) -> None:
        """Count from above all that this process has seen."""
        base = await self.get()
        with suppress(ConflictError):  # somebody else was faster
            await self._client.transact(keys.put(base.key, b"%d" % self._above_all(), base.index))
        self.forget()

    def _above_all(self) -> int:
        return max(time.time_ns() // 1000, self.highest + 1)

    async def _read_or_make(self) -> Entry:
        for _ in range(_TRIES):
            entry = await self._client.get(self._key)
            if entry is not None and _DIGITS.fullmatch(entry.value):
                return entry
            number = self._above_all()
            try:  # one that somebody has overwritten with anything else is replaced
                await self._client.transact(
                    keys.put(self._key, b"%d" % number, 0 if entry is None else entry.index)
                )
            except ConflictError:
                continue  # another worker was faster: take its number
        raise ConsulError(f"{self._client.address}: the key {self._key} changes all the time")
