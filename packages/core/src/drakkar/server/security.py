"""Who may read."""

import secrets
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Probes are asked by machines that have no token, and tell nothing that is secret."""


class TokenGuard:
    """Refuses every request outside `OPEN_PATHS` that does not carry `Authorization: Bearer <token>`.

    Compares in constant time. Without a token everything is open, which is why the default is to listen on
    loopback only.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._expected is None or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("authorization", "").encode("latin-1")
        if secrets.compare_digest(given, self._expected):
            await self._app(scope, receive, send)
            return
        refusal = JSONResponse(
            {"error": "a token is needed: send 'Authorization: Bearer <ui.auth_token>'"},
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)


class SafeHeaders:
    """Adds the headers that keep a browser from doing more with an answer than show it."""

    _HEADERS: Final = (
        (b"content-security-policy", b"default-src 'none'; style-src 'self'; frame-ancestors 'none'"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
    )

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)
