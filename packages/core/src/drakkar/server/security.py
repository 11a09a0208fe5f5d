"""Who may read, and by which way."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drakkar.server.login import Tickets, login_address
from drakkar.server.page import ASSETS, PAGES

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Probes are asked by machines that have no token, and tell nothing that is secret."""

PEER_PATHS: Final = frozenset({"/api/v1/peer/cache/changes"})
"""Asked by other workers, which do not know our token. Foreign pages are refused there as everywhere."""

LOGIN_PATHS: Final = frozenset({"/login", "/logout"})

_READING: Final = frozenset({"GET", "HEAD"})


class TokenGuard:
    """Refuses every request outside `OPEN_PATHS`, `PEER_PATHS`, the login and the assets that carries neither
    `Authorization: Bearer <token>` nor a ticket of the login. Who wants a page is sent to the login instead.

    Without a token, and so without `tickets`, everything is open, which is why the default is to listen on
    loopback only.
    """

    def __init__(self, app: ASGIApp, tickets: Tickets | None) -> None:
        self._app = app
        self._tickets = tickets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._refusal(scope) or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        """What is answered instead; None to who may pass."""
        tickets = self._tickets
        if scope["type"] != "http" or tickets is None or _is_open(scope["path"]):
            return None
        request = HTTPConnection(scope)
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if tickets.fits(given) and scheme.lower() == "bearer":
            return None
        ticket = request.cookies.get(tickets.cookie)
        if ticket is not None and tickets.holds(ticket):
            # A cookie is sent by the browser, whoever wrote the page: what changes something must tell its
            # origin, which `OriginGuard` has looked at.
            if scope["method"] in _READING or "origin" in request.headers:
                return None
            return JSONResponse(
                {"error": "with the cookie of the login an action needs an Origin header; or send the token"},
                status_code=403,
            )
        if scope["path"] in PAGES and "text/html" in request.headers.get("accept", ""):
            address = login_address(scope["path"], scope["query_string"].decode("latin-1"))
            return RedirectResponse(address, status_code=303)
        return JSONResponse(
            {"error": "a token is needed: send 'Authorization: Bearer <ui.auth_token>'"},
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS | PEER_PATHS | LOGIN_PATHS or path.startswith(ASSETS)


class OriginGuard:
    """Refuses what comes by way of somebody else's web page: a name that was made to point here (the `Host`
    is neither an address nor one of `hosts`), or a request from a page of another origin than that `Host` or
    `origin`, the one of `ui.public_url`: a proxy there may ask under another name.

    Probes are let through: they come by whatever name the platform uses, and learn nothing.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], origin: str) -> None:
        self._app = app
        self._hosts = hosts
        self._origin = origin

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
        if origin is None or origin.partition("://")[2].lower() == host.lower():
            return None
        if self._origin and origin == self._origin:
            return None
        return "requests from pages of another origin are refused"

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._hosts or bool(ipaddress.ip_address(name))
        except ValueError:
            return False


_POLICY: Final = (
    "default-src 'none'",
    *(f"{what} 'self'" for what in ("script-src", "style-src", "connect-src", "img-src", "form-action")),
    *(f"{what} 'none'" for what in ("base-uri", "frame-ancestors")),
)


class SafeHeaders:
    """Adds the headers that keep a browser from doing more with an answer than show it."""

    _HEADERS: Final = (
        (b"content-security-policy", "; ".join(_POLICY).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"same-origin"),  # without any, a form would not tell its origin
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
