"""The application that a worker serves: from snapshots, nothing from third parties, one action."""

from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from drakkar.clock import Clock
from drakkar.server.fleet_api import FleetView, fleet_router
from drakkar.server.history_api import history_router
from drakkar.server.leases_api import LeaseListing, LeasesView, leases_router, no_leases_router
from drakkar.server.login import Tickets, login_router
from drakkar.server.models import Health, Readiness
from drakkar.server.page import page_router
from drakkar.server.peer_api import ChangesView, peer_router
from drakkar.server.security import OriginGuard, SafeHeaders, TokenGuard
from drakkar.server.snapshots import Snapshots
from drakkar.server.stream import stream_router

_WHY: Final = {404: "no such route", 405: "no such method of this route"}


def make_app(
    view: FleetView,
    leases: LeasesView | None,
    cache: ChangesView | None,
    release: str,
    metrics: CollectorRegistry,
    auth_token: str,
    hosts: frozenset[str],
    origin: str,
    clock: Clock,
) -> ASGIApp:
    """Build the application of one worker, which answers by addresses and by the names in `hosts`, and pages
    of `origin` too, if it is not empty; `leases` is None for one without background workers, `cache` for one
    that shares none. An empty `auth_token` leaves everything open to everybody who can connect."""
    api = FastAPI(title="Drakkar worker", version=release, docs_url=None, redoc_url=None)
    api.add_exception_handler(HTTPException, _refused)
    api.include_router(fleet_router(view, clock))
    api.include_router(page_router())
    listing = None
    if leases is None:
        api.include_router(no_leases_router())
    else:
        listing = LeaseListing(leases, clock)
        api.include_router(leases_router(leases, listing))
    api.include_router(history_router(view, leases))
    tickets = Tickets(auth_token, clock) if auth_token else None
    api.include_router(stream_router(Snapshots(view, leases, listing, clock), tickets))
    if tickets is not None:
        api.include_router(login_router(tickets, clock))
    api.include_router(peer_router(cache))

    # HEAD by a route of its own: one route for both would have one operation id twice in the description.
    @api.head("/healthz", include_in_schema=False)
    @api.get("/healthz", summary="Whether the event loop answers", response_model=Health)
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @api.head("/readyz", include_in_schema=False)
    @api.get(
        "/readyz",
        summary="Whether the worker runs, and since when a store fails",
        response_model=Readiness,
        responses={503: {"model": Readiness, "description": "It starts or it drains"}},
    )
    async def readyz() -> JSONResponse:
        # A failing registry does not make a worker unready: its work does not depend on it, and a probe
        # that took the whole fleet out of service because of one store would be the worse outage.
        health = view.registry_health()
        registry = None
        if health is not None:
            registry = {
                "provider": health.provider,
                "snapshot_age_seconds": round(health.snapshot_age_seconds, 3),
                "failing_for_seconds": {op: round(age, 3) for op, age in health.failing.items()},
            }
        ready = view.state == "running"
        return JSONResponse(
            {"ready": ready, "state": view.state, "registry": registry}, status_code=200 if ready else 503
        )

    @api.get("/metrics", summary="Metrics in the Prometheus text format", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return SafeHeaders(OriginGuard(TokenGuard(api, tickets), hosts, origin))


async def _refused(_: Request, error: Exception) -> Response:
    """What no route has answered, in the shape of all other refusals."""
    if not isinstance(error, HTTPException):
        raise error
    why = _WHY.get(error.status_code, error.detail)
    return JSONResponse({"error": why}, status_code=error.status_code, headers=error.headers)
