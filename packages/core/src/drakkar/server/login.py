"""The way of a browser past `ui.auth_token`: a form, and a cookie instead of the token from then on.

The cookie is a ticket: when it ends, a random part, and a signature by a key that is made of the token.
So it outlives a restart, is good for every worker with the same token, does not show the token, and needs no
memory; only those that were given back before their end are remembered.

Guesses are slowed down per address. A guess in the header `Authorization` is not: choose a long token.
"""

import asyncio
import hashlib
import hmac
import math
import re
import secrets
from collections import OrderedDict
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.requests import ClientDisconnect

from drakkar.clock import Clock
from drakkar.server.page import PAGES, page

TICKET_SECONDS: Final = 12 * 3600
FREE_GUESSES: Final = 3
MAX_WAIT_SECONDS: Final = 60.0
FORM_SECONDS: Final = 10.0
"""How long the form may take to come."""

_MAX_FORM_BYTES: Final = 8192
_REMEMBERED: Final = 1024
_WAIT: Final = re.compile(r"[0-9]{1,2}", re.ASCII)
_PROBLEMS: Final = {
    "wrong": "That is not the token.",
    "wait": "Too many wrong tokens.",
    "form": "That is too long for a token, or did not come whole.",
}


class Tickets:
    """Makes and knows the values of the cookie, for a worker with a token that is not empty."""

    def __init__(self, token: str, clock: Clock) -> None:
        self._clock = clock
        self._token = token.encode()
        self._key = hmac.digest(self._token, b"drakkar ticket", hashlib.sha256)
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.cookie: Final = f"drakkar_{hmac.new(self._key, b'name', hashlib.sha256).hexdigest()[:8]}"
        """Its name. Browsers do not tell the ports of a host apart, and each port may have its own token."""

    def fits(self, guess: str) -> bool:
        """Whether this is the token; compared in constant time."""
        return secrets.compare_digest(guess.encode("utf-8", "replace"), self._token)

    def issue(self) -> str:
        head = f"{int(self._now()) + TICKET_SECONDS}.{secrets.token_urlsafe(16)}"
        return f"{head}.{self._sign(head)}"

    def holds(self, ticket: str) -> bool:
        """Whether this is a ticket that was issued, has not ended and was not given back."""
        head, _, signature = ticket.rpartition(".")
        if not secrets.compare_digest(signature.encode("utf-8", "replace"), self._sign(head).encode()):
            return False
        return self._now() < int(head.partition(".")[0]) and head not in self._ended

    def end(self, ticket: str) -> None:
        """Make it worthless, in this process."""
        if self.holds(ticket):
            self._ended[ticket.rpartition(".")[0]] = None
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)

    def _sign(self, head: str) -> str:
        return hmac.new(self._key, head.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def _now(self) -> float:
        # The time of day, since a ticket must outlive a restart: stepping the clock moves its end.
        return self._clock.wall().timestamp()


class Patience:
    """How long an address must wait after wrong guesses: not at all after `FREE_GUESSES`, then 1, 2, 4 ...
    seconds after each further one. Forgets the longest unseen of too many addresses."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_seconds(self, address: str) -> float:
        """Until the next guess is looked at; 0 for now."""
        return max(0.0, self._wrong.get(address, (0, -math.inf))[1] - self._clock.elapsed())

    def wrong(self, address: str) -> None:
        count = self._wrong.pop(address, (0, 0.0))[0] + 1
        wait = min(MAX_WAIT_SECONDS, 2.0 ** (count - FREE_GUESSES - 1)) if count > FREE_GUESSES else 0.0
        self._wrong[address] = (count, self._clock.elapsed() + wait)
        while len(self._wrong) > _REMEMBERED:
            self._wrong.popitem(last=False)

    def right(self, address: str) -> None:
        self._wrong.pop(address, None)


def login_router(tickets: Tickets, clock: Clock) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    patience = Patience(clock)

    @router.get("/login")
    async def form(failed: str = "", wait: str = "") -> Response:
        return _form(_PROBLEMS.get(failed, ""), wait if _WAIT.fullmatch(wait) else "0")

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        if refusal := _foreign(request):
            return refusal
        after = target(request.query_params.get("next", ""))
        try:
            async with asyncio.timeout(FORM_SECONDS):
                guess = await _token_in(request)
        except TimeoutError:
            return _refusal(408, "the form did not come whole in time")
        if guess is None:
            if "text/html" in request.headers.get("accept", ""):
                return _form(_PROBLEMS["form"], "0", status=400)
            return _refusal(400, "send a form with the one field 'token', as the page does")
        address = request.client.host if request.client else ""
        if (wait := patience.wait_seconds(address)) > 0:
            return _again(after, "wait", math.ceil(wait))
        if not tickets.fits(guess):
            patience.wrong(address)
            return _again(after, "wrong", math.ceil(patience.wait_seconds(address)))
        patience.right(address)
        answer = RedirectResponse(f"./{after}", status_code=303)
        answer.set_cookie(
            tickets.cookie,
            tickets.issue(),
            max_age=TICKET_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.headers["origin"].startswith("https:"),
        )
        return answer

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        if refusal := _foreign(request):
            return refusal
        tickets.end(request.cookies.get(tickets.cookie, ""))
        answer = RedirectResponse("login", status_code=303)
        answer.delete_cookie(tickets.cookie, httponly=True, samesite="strict")
        return answer

    return router


def _form(problem: str, wait: str, status: int = 200) -> Response:
    """The page of the form, with one of `_PROBLEMS` on it, and digits: how many seconds to wait."""
    told = f"Try again in {wait} s." if int(wait) else ""
    form = page("login.html")
    body = bytes(form.body).replace(b"{problem}", problem.encode()).replace(b"{wait}", told.encode())
    return Response(body, status, media_type=form.media_type)


def target(wanted: str) -> str:
    """Where to go after the login: one of our pages, with its filters; the first one for anything else."""
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return ""
    if parts.scheme or parts.netloc or f"/{parts.path}" not in PAGES:
        return ""
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def login_address(path: str, query: str) -> str:
    """Where a browser that has no ticket is sent from a page."""
    wanted = path.removeprefix("/") + (f"?{query}" if query else "")
    return f"login?{urlencode({'next': wanted})}" if wanted else "login"


def _again(after: str, why: str, wait_seconds: int) -> Response:
    told = {"failed": why, "wait": str(wait_seconds)} | ({"next": after} if after else {})
    return RedirectResponse(f"login?{urlencode(told)}", status_code=303)


def _foreign(request: Request) -> Response | None:
    """A form of another page is refused before this by its `Origin`; here, one that does not tell it."""
    if "origin" in request.headers:
        return None
    return _refusal(
        403,
        "this is the way of browsers, which send an Origin header;"
        " a program sends 'Authorization: Bearer <ui.auth_token>' with each request instead",
    )


def _refusal(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status_code=status)


async def _token_in(request: Request) -> str | None:
    """The field `token` of the form; None when there is none, or the form is too long to be ours, or does not
    come whole."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _MAX_FORM_BYTES:
                return None
    except ClientDisconnect:  # nobody is there to be answered
        return None
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10)
    except ValueError:  # more fields than that
        return None
    values = fields.get("token", [])
    return values[0] if len(values) == 1 else None
