"""`/api/v1/peer/cache/changes`: what other workers read of this one's cache. They send no token.

The answers are shared with other implementations, to the byte where they are about the question.
"""

from typing import Any, Final, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from drakkar.cache.changes import ChangesError, ChangesQuery, parse_query
from drakkar.server.models import ChangesPage


class ChangesView(Protocol):
    """What the server reads. Raises anything when the rows cannot be read, or not in time."""

    async def changes(self, query: ChangesQuery) -> bytes: ...


_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"description": "A parameter does not hold"},
    404: {"description": "The cache or its exchange is off"},
    503: {"description": "The rows could not be read in time"},
}
_PARAMETERS: Final = [
    {
        "name": name,
        "in": "query",
        "required": name == "scopes",
        "description": text,
        "schema": {"type": "string"},
    }
    for name, text in {
        "scopes": "cluster, global, or both with a comma between them",
        "after_ms": "updated_at_ms of the last row that was read",
        "after_key": "its key",
        "limit": "1 to 1000; 500 when it is not given",
    }.items()
]
"""Described by hand: what is wrong is answered in the words of the wire, not in those of the framework."""


def peer_router(view: ChangesView | None) -> APIRouter:
    """`view` is None while this worker has nothing to share."""
    router = APIRouter(prefix="/api/v1/peer")

    @router.get(
        "/cache/changes",
        summary="Rows of the cache that this worker wrote, in the order of their changes",
        response_model=ChangesPage,
        responses=_ERRORS,
        openapi_extra={"parameters": _PARAMETERS},
    )
    async def changes(request: Request) -> Response:
        try:
            query = parse_query(dict(request.query_params))  # of a repeated parameter the last one
        except ChangesError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        if view is None:
            return JSONResponse({"error": "this worker shares no cache"}, status_code=404)
        try:
            return Response(await view.changes(query), media_type="application/json")
        except Exception:  # noqa: BLE001  whatever it is, the peer asks again later
            return JSONResponse({"error": "the cache could not be read in time"}, status_code=503)

    return router
