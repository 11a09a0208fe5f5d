"""Who may read, and by which way."""

import ipaddress
import secrets
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Probes are asked by machines that have no token, and tell nothing that is secret."""

PEER_PATHS: Final = frozenset({"/api/v1/peer/cache/changes"})
"""Asked by other workers, which do not know our token. Foreign pages are refused there as everywhere."""


class TokenGuard:
    """Refuses every request outside `OPEN_PATHS` and `PEER_PATHS` that does not carry
    `Authorization: Bearer <token>`.

    Compares in constant time. Without a token everything is open, which is why the default is to listen on
    loopback only.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._expected is None or scope["path"] in OPEN_PATHS | PEER_PATHS:
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


class OriginGuard:
    """Refuses what comes by way of somebody else's web page: a name that was made to point here (the `Host`
    is neither an address nor one of `hosts`), or a request from a page of another origin.

    Probes are let through: they come by whatever name the platform uses, and learn nothing.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = None
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            problem = self._problem(Headers(scope=scope))
        if problem is None:
            await self._app(scope, receive, send)
            return
        await JSONResponse({"error": problem}, status_code=403)(scope, receive, send)

    def _problem(self, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return "this is not a name of this worker: use its address, or set ui.public_url"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return "requests from pages of another origin are refused"
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._hosts or bool(ipaddress.ip_address(name))
        except ValueError:
            return False


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
