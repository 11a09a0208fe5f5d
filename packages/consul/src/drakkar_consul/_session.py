"""One session of this process with the servers, on which all its cards or all its leases hang."""

import asyncio
import time
from contextlib import suppress
from typing import Final

from drakkar_consul._client import ConsulClient, ConsulError

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed_seconds() -> float:
    """Seconds since some fixed point, also while the host was suspended where the system can tell."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class Session:
    """Made when it is first needed, and again when it was lost. Its keys are freed, or deleted, when it was
    not renewed for twice `ttl_seconds`."""

    def __init__(self, client: ConsulClient, name: str, ttl_seconds: float, *, delete: bool) -> None:
        self._client = client
        self._name = name
        self._ttl_seconds = ttl_seconds
        self._delete = delete
        self._turn = asyncio.Lock()
        self._renewed_at = float("-inf")
        self.id: str | None = None

    async def fresh(self, since: float) -> str:
        """The session, made or renewed by a request sent at `since` or later, by `elapsed_seconds`.

        Many callers share one request, but never one that was sent before they asked: what is granted on the
        session counts from then.
        """
        async with self._turn:
            if self.id is None or self._renewed_at < since:
                sent_at = elapsed_seconds()
                if self.id is None or not await self._client.renew_session(self.id):
                    self.id = None
                    sent_at = elapsed_seconds()
                    self.id = await self._client.create_session(
                        self._name, self._ttl_seconds, delete=self._delete
                    )
                self._renewed_at = sent_at
            return self.id

    async def renew(self) -> bool:
        """Renew it; False when there is none any more."""
        async with self._turn:
            if self.id is None:
                return False
            sent_at = elapsed_seconds()
            if not await self._client.renew_session(self.id):
                self.id = None
                return False
            self._renewed_at = sent_at
            return True

    def forget(self, session: str) -> None:
        """`session` has ended, as the agent says."""
        if self.id == session:
            self.id = None

    async def destroy(self) -> None:
        """End it, and with it whatever may still hang on it, if the agent can be asked; else it runs out."""
        session, self.id = self.id, None
        if session is not None:
            with suppress(ConsulError):
                await self._client.destroy_session(session)
