"""`/api/v1/workers` and `/api/v1/identity`: what a worker knows of its fleet, from memory.

The shape of a row is shared with other implementations: keys may be added, never renamed.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from drakkar.clock import Clock
from drakkar.fleet.identity import WorkerIdentity, WorkerState, timestamp
from drakkar.fleet.liveness import last_seen
from drakkar.fleet.service import Peer, RegistryHealth
from drakkar.server.models import WorkerInfo, WorkerRow
from drakkar.server.timeline import Timeline, names_led

Row = dict[str, Any]

FRESH_SECONDS: Final = 0.5
SLICE_ROWS: Final = 250

_FROM_CARD: Final = ("backend", "version", "state", "started_at", "instance")
_ONLINE: Final = {"online": True, "offline": False, "unknown": None}


@dataclass(frozen=True, slots=True)
class ServedIdentity:
    """What the server tells of its own worker beyond the card."""

    identity: WorkerIdentity
    ip_address: str
    port: int | None
    registry_provider: str
    lease_provider: str
    config_summary: str


class FleetView(Protocol):
    """What the server reads; every call answers from memory."""

    @property
    def served(self) -> ServedIdentity: ...
    @property
    def state(self) -> WorkerState: ...
    def now_ts(self) -> float: ...
    def peers(self) -> Sequence[Peer]: ...
    def listing(self) -> object: ...
    def leader_for(self) -> Sequence[str]: ...
    def registry_health(self) -> RegistryHealth | None: ...
    @property
    def timeline(self) -> Timeline: ...


class WorkersAnswer:
    """The bytes of the workers list, made once for all who ask within `FRESH_SECONDS`, and anew as soon as
    there is news: a refresh, another state, another leader."""

    def __init__(self, view: FleetView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._made_of: tuple[object, ...] = ()
        self._made_at = -math.inf
        self._body = b""

    def body(self) -> bytes:
        view, now = self._view, self._clock.elapsed()
        news = (view.listing(), view.state, *view.leader_for())
        if news != self._made_of or now - self._made_at >= FRESH_SECONDS:
            self._body = bytes(JSONResponse(worker_rows(view)).body)
            self._made_of, self._made_at = news, now
        return self._body


def fleet_router(view: FleetView, clock: Clock) -> APIRouter:
    router = APIRouter(prefix="/api/v1")
    answer = WorkersAnswer(view, clock)

    @router.get("/workers", summary="This worker and its peers, from memory", response_model=list[WorkerRow])
    async def workers() -> Response:
        return Response(answer.body(), media_type="application/json")

    @router.get("/identity", summary="Who this worker is and how it is configured", response_model=WorkerInfo)
    async def identity() -> JSONResponse:
        return JSONResponse(identity_of(view))

    return router


def worker_rows(view: FleetView) -> list[Row]:
    """One row a worker: those with a cluster first, by cluster and name; then the others, by name."""
    return in_order(itertools.chain.from_iterable(row_slices(view)))


def row_slices(view: FleetView) -> Iterator[list[Row]]:
    """The rows of `worker_rows` in no order, a few hundred at a time: who has time can do other things
    between."""
    now_ts, peers = view.now_ts(), view.peers()
    yield [_own_row(view, now_ts)]
    for start in range(0, len(peers), SLICE_ROWS):
        yield [_peer_row(peer, now_ts) for peer in peers[start : start + SLICE_ROWS]]


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["cluster"] == "", row["cluster"], row["worker_name"]))


def identity_of(view: FleetView) -> Row:
    served, own = view.served, view.served.identity
    return {
        "worker_id": own.worker,
        "cluster": own.cluster or None,
        "instance": own.instance,
        "config_summary": served.config_summary,
        "backend": own.backend,
        "backend_version": own.version,
        "started_at": timestamp(own.started_at),
        "url": own.url,
        "registry_provider": served.registry_provider,
        "lease_provider": served.lease_provider,
    }


def _own_row(view: FleetView, now_ts: float) -> Row:
    served, own = view.served, view.served.identity
    return {
        **_row(own.worker, own.cluster, own.url),
        "is_current": True,
        "ip_address": served.ip_address,
        "debug_port": served.port,
        "last_seen_ts": now_ts,
        "online": True,
        "backend": own.backend,
        "version": own.version,
        "state": view.state,
        "started_at": timestamp(own.started_at),
        "instance": own.instance,
        "leader_for": list(view.leader_for()),
    }


def _peer_row(peer: Peer, now_ts: float) -> Row:
    card = peer.card
    return {
        **_row(card["worker"], card["cluster"], card["url"]),
        "is_current": False,
        "ip_address": None,
        "debug_port": None,
        "last_seen_ts": last_seen(now_ts, peer.age_seconds),
        "online": _ONLINE[peer.liveness],
        **{key: card[key] for key in _FROM_CARD if key in card},
        **({} if (names := names_led(card)) is None else {"leader_for": names}),
    }


def _row(worker: str, cluster: str, url: str) -> Row:
    return {
        "worker_name": worker,
        "cluster_name": cluster or None,
        "cluster": cluster,
        "url": url,
        "debug_url": url,
    }
