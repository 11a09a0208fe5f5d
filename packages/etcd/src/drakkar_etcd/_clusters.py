"""Whether all endpoints are of one cluster. Every answer of an etcd says of which it is.

Two clusters behind one list of endpoints would be two leaders, each sound by itself. Which of them is the one
that was meant, nobody here can tell, so neither is led in. What an endpoint said last counts until it says
something else; when it is silent instead, for a while: it may still be there for others, but it may also have
been lost together with a cluster that was made anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import aiohttp

from drakkar_etcd._answers import EtcdError, UnansweredError
from drakkar_etcd._wire import Json, number
from drakkar_etcd.settings import SECTION

FORGET_SECONDS: Final = 60.0
"""How long an endpoint that is asked, and says nothing, still counts for what it said last."""


class Clusters:
    def __init__(self, endpoints: Sequence[str], ask: Callable[[str], Awaitable[object]]) -> None:
        """`ask` asks one endpoint anything, the answer to which goes to `heard`."""
        self._endpoints = endpoints
        self._ask = ask
        self._ids: dict[str, int] = {}
        self._silent_since: dict[str, float] = {}
        self._looking: asyncio.Task[None] | None = None
        self.on_difference: Callable[[str], None] | None = None
        """Is told, in one line and perhaps often, that two endpoints are of different clusters."""

    def heard(self, endpoint: str, answer: Json) -> None:
        header = answer.get("header") or answer.get("result", {}).get("header", {})
        if id_ := number(header.get("cluster_id")):
            self._ids[endpoint] = id_
            self._silent_since.pop(endpoint, None)

    def knows(self, endpoint: str) -> bool:
        return endpoint in self._ids

    def look(self) -> None:
        """Ask every endpoint where there are several: one look for all who want one meanwhile."""
        if len(self._endpoints) > 1 and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(), name="drakkar etcd clusters")

    def look_if_different(self) -> None:
        """What an endpoint said is asked again before it counts against another one."""
        if self._difference():
            self.look()

    async def agree(self) -> None:
        """Return when no two endpoints are of different clusters, as far as those have told that answer.

        Raises `UnansweredError` that names two which are.
        """
        self.look_if_different()
        if self._looking is not None:
            await asyncio.wait({self._looking})
        if told := self._difference():
            raise UnansweredError(f"{told}, see {SECTION}.endpoints")

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _look(self) -> None:
        await asyncio.gather(*(self._look_at(endpoint) for endpoint in self._endpoints))
        if (told := self._difference()) and self.on_difference is not None:
            self.on_difference(told)

    async def _look_at(self, endpoint: str) -> None:
        try:
            await self._ask(endpoint)
        except (aiohttp.ClientError, OSError, EtcdError):
            now = asyncio.get_running_loop().time()
            if now - self._silent_since.setdefault(endpoint, now) >= FORGET_SECONDS:
                self._ids.pop(endpoint, None)

    def _difference(self) -> str:
        """Two endpoints that are of different clusters, in words; empty when none are known to be."""
        first, *others = [endpoint for endpoint in self._endpoints if endpoint in self._ids] or [""]
        for other in others:
            if self._ids[other] != self._ids[first]:
                return f"{first} is of the cluster {self._ids[first]:x}, {other} of {self._ids[other]:x}"
        self._silent_since.clear()
        return ""
