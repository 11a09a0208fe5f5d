"""`/api/v1/leases`, `/api/v1/supervisor` and the one action: who leads, what runs here, step down."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from drakkar.clock import Clock
from drakkar.errors import describe
from drakkar.fleet.identity import timestamp
from drakkar.leases.backend import LeaseInfo
from drakkar.masking import mask_text
from drakkar.supervisor.history import HistoryEvent
from drakkar.supervisor.surroundings import LaneReport

LISTING_SECONDS: Final = 1.0
"""How old a listing may be that is given out again: requests do not add up to load on the store."""

COOL_DOWN_SECONDS: Final = 60.0
"""How long a worker that was asked to step down leaves the lease to the others."""

ACTION_HEADER: Final = "x-drakkar-action"
"""Must be sent along with an action. A page of another origin cannot send it without being allowed to, and
nobody is."""


class LeasesView(Protocol):
    """What the server reads and, for an action, calls."""

    @property
    def lease_provider(self) -> str: ...
    def lease_problem(self) -> str | None: ...
    async def list_leases(self) -> Sequence[LeaseInfo]: ...
    def lane_reports(self) -> Mapping[str, Sequence[LaneReport]]: ...
    def leader_for(self) -> Sequence[str]: ...
    def history(self) -> Sequence[HistoryEvent]: ...
    def step_down(self, lease: str, cool_down_seconds: float) -> bool: ...


@dataclass(slots=True)
class _Listing:
    rows: Sequence[LeaseInfo]
    at: float


class LeaseListing:
    """The last listing that worked, refreshed on demand, by one request at a time."""

    def __init__(self, view: LeasesView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._last: _Listing | None = None
        self._error: str | None = None
        self._fresh_until = -math.inf
        self._asking = asyncio.Lock()

    async def answer(self) -> dict[str, Any]:
        """Rows by name, how old they are, and why they are not new: never an empty list for an error."""
        async with self._asking:
            if self._clock.elapsed() >= self._fresh_until:
                began = self._clock.elapsed()
                try:
                    rows = sorted(await self._view.list_leases(), key=lambda row: row.name)
                except Exception as error:  # noqa: BLE001  the store's trouble is part of the answer
                    self._error = mask_text(describe(error))
                    began = self._clock.elapsed()  # who waited for it, gets the same answer
                else:
                    self._last, self._error = _Listing(rows, began), None
                self._fresh_until = began + LISTING_SECONDS
        last = self._last
        age = 0.0 if last is None else self._clock.elapsed() - last.at
        return {
            "provider": self._view.lease_provider,
            "leases": None if last is None else [_lease_row(row, age) for row in last.rows],
            "age_seconds": None if last is None else age,
            "error": self._error,
        }


def leases_router(view: LeasesView, listing: LeaseListing) -> APIRouter:
    router = APIRouter(prefix="/api/v1")

    @router.get("/leases", summary="Every lease of the fleet and who holds it; null while it was never read")
    async def leases() -> JSONResponse:
        return JSONResponse(await listing.answer())

    @router.get("/supervisor", summary="The background workers of this worker, lane by lane")
    async def supervisor() -> JSONResponse:
        return JSONResponse(supervisor_answer(view))

    @router.post("/leases/step-down", summary="Have the run under a lease that this worker holds yield")
    async def step_down(request: Request, name: str = "") -> JSONResponse:
        if request.headers.get(ACTION_HEADER) != "step-down":
            return JSONResponse({"error": f"send the header {ACTION_HEADER}: step-down"}, status_code=403)
        if not name:
            return JSONResponse({"error": "say which lease: step-down?name=NAME"}, status_code=400)
        if not view.step_down(name, COOL_DOWN_SECONDS):
            return JSONResponse({"error": f"this worker does not hold {name!r}"}, status_code=404)
        return JSONResponse({"name": name, "cool_down_seconds": COOL_DOWN_SECONDS}, status_code=202)

    return router


def supervisor_answer(view: LeasesView) -> dict[str, Any]:
    workers = [
        {"name": name, "lanes": [_lane_row(report) for report in reports]}
        for name, reports in view.lane_reports().items()
    ]
    return {
        "workers": workers,
        "leader_for": list(view.leader_for()),
        "lease_provider": view.lease_provider,
        "problem": view.lease_problem(),
    }


def no_leases_router() -> APIRouter:
    """For a worker without background workers: says so, where it might be taken for another program."""
    router = APIRouter(prefix="/api/v1", include_in_schema=False)

    @router.get("/leases")
    @router.get("/supervisor")
    @router.post("/leases/step-down")
    async def none() -> JSONResponse:
        return JSONResponse({"error": "this worker runs no background workers"}, status_code=404)

    return router


def _lease_row(row: LeaseInfo, since_listing: float) -> dict[str, Any]:
    """A row moved forward by the time since it was listed; `worker` is the holder without its instance."""
    holder = row.holder
    age, left = row.age_seconds, row.remaining_seconds
    return {
        "name": row.name,
        "holder": holder,
        "worker": None if holder is None else holder.rpartition("/")[0] or holder,
        "token": row.token,
        "age_seconds": None if age is None else age + since_listing,
        "remaining_seconds": None if left is None else max(0.0, left - since_listing),
    }


def _lane_row(report: LaneReport) -> dict[str, Any]:
    row = asdict(report)
    at = report.last_error_at
    error = None if report.last_error is None else mask_text(report.last_error)
    return {**row, "last_error": error, "last_error_at": None if at is None else timestamp(at)}
