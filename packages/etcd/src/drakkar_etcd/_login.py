"""Who we are to the server: one login for all that this process asks.

A token of etcd ends in the index that the store had when it was made. A member that has not come to that
index does not refuse the token: it lets the request wait until it has. A store that lost its data, or was set
back to a snapshot, comes to it in days or never. So a request that had no answer puts its token in doubt, and
what is asked next logs in first.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

from drakkar_etcd._answers import EtcdError, NoEtcdError
from drakkar_etcd.settings import EtcdSettings

LOGIN_PAUSE_SECONDS: Final = 1.0
"""How long a login that was refused counts for all: each costs the server 65 ms of a processor."""


class Login:
    """`send` sends a login, without any token, and returns the answer."""

    def __init__(
        self, settings: EtcdSettings, send: Callable[[dict[str, str]], Awaitable[dict[str, Any]]]
    ) -> None:
        self._settings = settings
        self._send = send
        self._turn = asyncio.Lock()
        self._doubted: str | None = None
        self._failure: EtcdError | None = None
        self._failed_at = 0.0
        self._tokens: deque[str] = deque(maxlen=8)
        self.token: str | None = None

    @property
    def is_wanted(self) -> bool:
        return bool(self._settings.username)

    def doubt(self, token: str | None) -> None:
        """What was asked with `token` had no answer, which may be because of the token."""
        if token == self.token:  # not one that somebody has replaced meanwhile
            self._doubted = token

    async def ready(self) -> str | None:
        """The token to ask with, made anew if the one that we have is in doubt. Raises what `send` does."""
        if self.token is not None and self.token == self._doubted:
            await self.renew(self.token)
        return self.token

    async def renew(self, stale: str | None) -> None:
        """Log in unless somebody did since `stale` was the token: once for all that found it no good.

        Until there is another token the old one stays: whoever has no answer to a login has none to anything
        else, and does not need the answer "user name is empty" on top. Raises what `send` does.
        """
        async with self._turn:
            if self.token != stale:
                return
            failure, now = self._failure, asyncio.get_running_loop().time()
            if failure is not None and now - self._failed_at < LOGIN_PAUSE_SECONDS:
                raise EtcdError(failure.status, failure.code, failure.message)
            self._failure = None
            try:
                answer = await self._send(
                    {"name": self._settings.username, "password": self._settings.password}
                )
                if "token" not in answer:
                    raise NoEtcdError(200, "no token for a login")
                self.token = answer["token"]
                self._tokens.append(answer["token"])
            except EtcdError as error:
                if error.no_logins:
                    self.token = None  # 3.4 would refuse it, or let it wait, though it asks for none
                    return
                if not error.unavailable:  # which is no word on the login, and another member may take it
                    self._failure, self._failed_at = error, now
                raise

    def hidden(self, text: str) -> str:
        """`text` with `***` for our password and tokens, which a server or a proxy may have sent back, in the
        forms in which others may have written them."""
        forms = {
            form
            for each in (self._settings.password, *self._tokens)
            for form in (
                each,
                repr(each)[1:-1],
                repr(each.encode())[2:-1],
                json.dumps(each)[1:-1],
                quote(each),
            )
        }
        for form in sorted(forms - {""}, key=len, reverse=True):
            text = text.replace(form, "***")
        return text
