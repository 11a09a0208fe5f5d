"""Asking a running worker, as a client that does not trust it: bounded in time and size, no redirects."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from drakkar.errors import ConfigError, UnavailableError
from drakkar.server.address import DEFAULT_PORT, url_of
from drakkar.settings import Settings
from drakkar.settings.text import one_line

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
TIMEOUT_SECONDS: Final = 5.0
"""Time limit for each step of a request."""

REQUEST_SECONDS: Final = 15.0
"""Time limit for all steps together."""

_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognized, not bound

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker told."""

    data: Any
    now: datetime | None
    """The time on that worker's clock; None when it did not say. Only by this are its times to be read."""

    url: str
    """Of the worker, as it may be printed."""

    remark: str = ""
    """What else a person should know of it."""


def worker_url(settings: Settings, given: str | None) -> str:
    """The base URL of the worker to ask, with a slash at the end: the one that is given, else the one of
    a worker with these settings on this host.

    Raises `ConfigError` when it is none or cannot be known.
    """
    if given is None:
        return _own_url(settings)
    try:
        parts = urlsplit(given)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:  # bad brackets, a port that is no number
        raise ConfigError("--url must be an http:// or https:// URL with a host") from error
    if not usable or not given.isprintable() or " " in given:
        raise ConfigError("--url must be an http:// or https:// URL with a host")
    if "@" in parts.netloc:
        raise ConfigError("--url must not hold a user name or password; set ui.auth_token instead")
    return f"{given.partition('?')[0].partition('#')[0].rstrip('/')}/"


def _own_url(settings: Settings) -> str:
    ui = settings.ui
    if ui.public_url:
        return f"{ui.public_url.rstrip('/')}/"
    if ui.port == 0:
        raise ConfigError("ui.port is 0, so the port of the worker is not known; give its address with --url")
    return url_of(_WILDCARDS.get(ui.host, ui.host), ui.port or DEFAULT_PORT)


@asynccontextmanager
async def connect(url: str, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client for the worker at `url`, which keeps its connection."""
    token = settings.ui.auth_token.get_secret_value()
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    async with httpx.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=httpx.Timeout(TIMEOUT_SECONDS),
        follow_redirects=False,
        trust_env=False,  # neither a proxy nor somebody's .netrc between us and a worker
        verify=ssl.create_default_context() if url.startswith("https") else False,
    ) as client:
        yield client


async def ask(
    client: httpx.AsyncClient,
    path: str,
    method: str = "GET",
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Raises `UnavailableError` for a worker that does not answer, not well, or not in JSON."""
    url = one_line(str(client.base_url), 1000)
    try:
        async with (
            asyncio.timeout(REQUEST_SECONDS),
            client.stream(method, path, params=params, headers=headers) as response,
        ):
            body = await _body(response, url)
            _check(response, body, url)
            return Answer(_json(body, url), _date(response), url)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:  # OSError: TimeoutError, too
        raise UnavailableError(
            f"{url} does not answer: {_reason(error)}; is a worker running there?"
        ) from error


async def ask_workers(client: httpx.AsyncClient) -> Answer:
    """The workers list. Raises `UnavailableError` for a worker that does not answer with one."""
    answer = await ask(client, "api/v1/workers")
    if not isinstance(answer.data, list) or not all(_is_row(row) for row in answer.data):
        raise UnavailableError(
            f"{answer.url} answers with something that is no workers list; is it a worker?"
        )
    return answer


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("worker_name"), str)


async def _body(response: httpx.Response, url: str) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise UnavailableError(f"{url} answers with more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _reason(error: BaseException) -> str:
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "no answer in time"
    deepest = error  # the layers above it only say that connecting failed
    while (cause := deepest.__cause__ or deepest.__context__) is not None:
        deepest = cause
    told = str(error)
    if isinstance(deepest, OSError) and deepest.errno is not None:
        # By its number, since asyncio has words of its own; name look-up has negative ones.
        told = os.strerror(deepest.errno) if deepest.errno > 0 else deepest.strerror or told
    return one_line(told or type(error).__name__)


def _check(response: httpx.Response, body: bytes, url: str) -> None:
    status = response.status_code
    if status == 401 or (status == 403 and not _told(body)):
        raise UnavailableError(f"{url} refuses with status {status}; set ui.auth_token to the worker's token")
    if response.has_redirect_location:
        raise UnavailableError(
            f"{url} sends elsewhere (status {status}), which is not followed; correct --url"
        )
    if not response.is_success:
        told = _told(body)
        raise UnavailableError(f"{url} answers with status {status}{told or '; is it a worker?'}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise UnavailableError(f"{url} answers in an encoding that was not asked for")


def _told(body: bytes) -> str:
    """The reason that a worker gave for a refusal; empty when there is none."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return ""
    return f": {one_line(error, 300)}" if isinstance(error, str) and error else ""


def _json(body: bytes, url: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise UnavailableError(f"{url} answers with something that is not JSON; is it a worker?") from None


def _date(response: httpx.Response) -> datetime | None:
    try:
        told = parsedate_to_datetime(response.headers["Date"])
    except (KeyError, ValueError, OverflowError):
        return None
    return told if told.tzinfo is not None else told.replace(tzinfo=UTC)  # "-0000" is UTC of an unknown place
