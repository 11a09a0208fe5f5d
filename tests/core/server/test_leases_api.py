"""The routes of the leases, asked in ways that they do not take."""

from typing import Any

import httpx
from drakkar.server.leases_api import LeaseListing, leases_router
from fastapi import FastAPI
from support.clock import FakeClock


async def test_a_step_down_without_a_name_is_refused_as_every_other_bad_request_is() -> None:
    nobody: Any = None  # is not asked
    app = FastAPI()
    app.include_router(leases_router(nobody, LeaseListing(nobody, FakeClock())))
    transport = httpx.ASGITransport(app)

    async with httpx.AsyncClient(transport=transport, base_url="http://worker-1/") as client:
        answer = await client.post("api/v1/leases/step-down", headers={"X-Drakkar-Action": "step-down"})

    assert (answer.status_code, answer.json()) == (400, {"error": "say which lease: step-down?name=NAME"})
