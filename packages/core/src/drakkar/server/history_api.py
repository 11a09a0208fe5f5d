"""`/api/v1/history`: the last leader changes and crashes of this worker, and who led what in the fleet."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from drakkar.masking import mask_text
from drakkar.server.fleet_api import FleetView
from drakkar.server.leases_api import LeasesView
from drakkar.server.models import HistoryAnswer


def history_router(view: FleetView, leases: LeasesView | None) -> APIRouter:
    router = APIRouter(prefix="/api/v1")

    @router.get(
        "/history",
        summary="The last leader changes and crashes here, and who led what in the last hour",
        response_model=HistoryAnswer,
    )
    async def history() -> JSONResponse:
        return JSONResponse(history_answer(view, leases))

    return router


def history_answer(view: FleetView, leases: LeasesView | None) -> dict[str, Any]:
    """Events newest first, none without background workers; spans by name and time."""
    return {
        "since_ts": view.served.identity.started_at.timestamp(),
        "events": [
            {
                "number": event.number,
                "at_ts": event.at.timestamp(),
                "name": event.worker,
                "shard": event.shard,
                "event": event.event,
                "error": None if event.error is None else mask_text(event.error),
            }
            for event in reversed(() if leases is None else leases.history())
        ],
        "spans": [asdict(span) for span in view.timeline.spans(view.now_ts())],
    }
