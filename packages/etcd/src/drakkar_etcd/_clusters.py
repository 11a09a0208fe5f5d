"""Whether all endpoints are of one cluster. Every answer of an etcd says of which it is.

Two clusters behind one list of endpoints would be two leaders, each sound by itself. Which of them is the one
that was meant, nobody here can tell, so neither is led in. What an endpoint said last counts until it says
something else; when it is silent instead, for a while: it may still be there for others, but it may also have
been lost together with a cluster that was made anew.
"""

from collections.abc import Sequence
from typing import Final

from drakkar_etcd._wire import Json, number

FORGET_SECONDS: Final = 60.0
"""How long an endpoint that is asked, and says nothing, still counts for what it said last."""


class Clusters:
    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = endpoints
        self._ids: dict[str, int] = {}
        self._silent_since: dict[str, float] = {}

    def heard(self, endpoint: str, answer: Json) -> None:
        header = answer.get("header") or answer.get("result", {}).get("header", {})
        if id_ := number(header.get("cluster_id")):
            self._ids[endpoint] = id_
            self._silent_since.pop(endpoint, None)

    def silent(self, endpoint: str, now: float) -> None:
        """It was asked of which cluster it is, and did not say."""
        if now - self._silent_since.setdefault(endpoint, now) >= FORGET_SECONDS:
            self._ids.pop(endpoint, None)

    def knows(self, endpoint: str) -> bool:
        return endpoint in self._ids

    def difference(self) -> str:
        """Two endpoints that are of different clusters, in words; empty when none are known to be."""
        first, *others = [endpoint for endpoint in self._endpoints if endpoint in self._ids] or [""]
        for other in others:
            if self._ids[other] != self._ids[first]:
                return f"{first} is of the cluster {self._ids[first]:x}, {other} of {self._ids[other]:x}"
        self._silent_since.clear()
        return ""
