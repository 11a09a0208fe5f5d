"""What etcd says, and what it means when it says no.

Of the client library's own errors none is used: it cannot read those of a server of 3.5.
"""

import json
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp

from drakkar_etcd._shapes import is_answer
from drakkar_etcd.settings import SECTION, EtcdSettings

_UNAVAILABLE: Final = 14
_DEADLINE_EXCEEDED: Final = 4
_UNAUTHENTICATED: Final = 16
_NOT_LOGGED_IN: Final = ("user name is empty", "invalid auth token", "auth store is old")
_NO_LOGINS: Final = "authentication is not enabled"
_LEASE_GONE: Final = "requested lease not found"
_DENIED: Final = "permission denied"
_LOGIN_REFUSED: Final = "authentication failed"
_MAX_REASON_CHARS: Final = 300
_ALL_REASONS_CHARS: Final = 600
_SHORTEST_REASON_CHARS: Final = 100
_MAX_LINE_CHARS: Final = 2000
_LAST_CODE: Final = 16
_NOT_HERE: Final = f"is there an etcd at this address? See {SECTION}.endpoints"
_CAUSES: Final = (
    ("local issuer certificate", "ca_file"),
    ("self signed certificate", "ca_file"),
    ("self-signed certificate", "ca_file"),
    ("alert bad certificate", "cert_file"),
    ("alert certificate required", "cert_file"),
    ("alert unknown ca", "cert_file"),
)
"""What is said by OpenSSL of our side, and by the server in an alert; and the option behind it."""


class EtcdError(Exception):
    """The server said no. `code` is gRPC's."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"etcd: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.lease_is_gone = _LEASE_GONE in message
        self.not_logged_in = code == _UNAUTHENTICATED or any(text in message for text in _NOT_LOGGED_IN)
        self.no_logins = _NO_LOGINS in message
        self.is_denied = _DENIED in message
        self.login_is_refused = _LOGIN_REFUSED in message
        self.unavailable = (
            code in (_UNAVAILABLE, _DEADLINE_EXCEEDED)
            or status in (503, 504)
            or "context deadline exceeded" in message  # 3.4 has code 2 for it
        )

    def explain(self, endpoint: str, settings: EtcdSettings) -> None:
        """Add who said it, and where the remedy may be; no user and no password."""
        hint = ""
        if self.is_denied:
            hint = f"; {SECTION}.username needs the right to read and write below {settings.prefix}/"
        elif self.login_is_refused:
            hint = f"; see {SECTION}.username and {SECTION}.password"
        elif self.not_logged_in and not settings.username:
            hint = f"; this cluster wants {SECTION}.username and {SECTION}.password"
        self.args = (f"etcd: {on_one_line(self.message)} ({endpoint}{hint})",)


class NoEtcdError(EtcdError):
    """Whoever answered is no etcd, as far as one can tell; a proxy of one that is away, perhaps."""

    def __init__(self, status: int, said: str, told: str = f": {_NOT_HERE}") -> None:
        super().__init__(status, 0, f"{said}{told}")
        self.unavailable = True


class RedirectError(NoEtcdError):
    """It is not followed, as what we ask holds the password or a token."""

    def __init__(self, status: int) -> None:
        super().__init__(status, f"status {status} redirects to another address, see {SECTION}.endpoints", "")


class UnansweredError(ConnectionError):
    """No endpoint gave an answer. What was asked for may have happened, and may still happen."""


class CompactedError(Exception):
    """The changes that a watch should begin with are no longer there."""


def read_answer(status: int, body: bytes) -> dict[str, Any]:
    """Return the answer in `body`, of which every field that is there is of its type.

    Raises `EtcdError` for a refusal, and `NoEtcdError` for what no etcd says.
    """
    try:
        answer = json.loads(body)
        sound = isinstance(answer, dict) and is_answer(answer)
    except (ValueError, RecursionError):
        told = (
            f": it wants https://, see {SECTION}.endpoints" if b"HTTPS server" in body else f": {_NOT_HERE}"
        )
        raise NoEtcdError(status, f"status {status} and no JSON", told) from None
    strange = NoEtcdError(status, f"status {status} and not what an etcd answers")
    if not isinstance(answer, dict):
        raise strange
    # Refusals: 3.4 has `error`, `message` and `code`; 3.5 has no `error`, which the library cannot read;
    # those of streams lie one level deeper.
    inner = answer.get("error")
    refusal = inner if isinstance(inner, dict) else answer
    if status >= 400 or inner is not None:
        code, message = refusal.get("code", refusal.get("grpc_code")), refusal.get("message")
        if type(code) is int and 0 < code <= _LAST_CODE and isinstance(message, str) and message:
            raise EtcdError(status, code, message)
        raise strange
    if not sound:
        raise strange
    return answer


def read_message(line: bytes) -> dict[str, Any]:
    result = read_answer(200, line).get("result")
    return result if isinstance(result, dict) else {}


def on_one_line(text: str, most_chars: int = _MAX_REASON_CHARS) -> str:
    """Words of a server, which may be anything, short enough for a log."""
    return " ".join(text.split())[:most_chars]


def look_at(text: str) -> str:
    """Which option has to do with what went wrong, to be put behind it; empty when none is known to."""
    plain = text.lower().replace("_", " ")
    option = next((option for said, option in _CAUSES if said in plain), None)
    return "" if option is None else f"; see {SECTION}.{option}"


def no_answer_from(reasons: Mapping[str, str]) -> str:
    """One line of why each endpoint gave none, all of them if they are not very many."""
    most_chars = max(_SHORTEST_REASON_CHARS, _ALL_REASONS_CHARS // len(reasons))
    told = (f"{endpoint}: {on_one_line(reason, most_chars)}" for endpoint, reason in reasons.items())
    return on_one_line(f"no answer from etcd, {'; '.join(told)}", _MAX_LINE_CHARS)


def reason_of(error: BaseException, hidden: Callable[[str], str]) -> str:
    """Why a request had no answer. Not aiohttp's own words, which begin with `ssl:default` for plain http.
    What may be a server's words goes through `hidden`."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _unconnected(error.os_error)
    if isinstance(error, aiohttp.ClientResponseError):
        return on_one_line(hidden(error.message))  # in the words of the error it is quoted once more
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return on_one_line(hidden(str(error))) or type(error).__name__


def _unconnected(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    in_handshake = isinstance(error, ssl.SSLError | ConnectionResetError)  # connecting itself is *refused*
    if error.errno and not in_handshake:
        return os.strerror(error.errno)  # asyncio puts an address in the place of the system's own words
    if in_handshake or isinstance(error, ConnectionError):  # without a number it is from there too
        reason = getattr(error, "reason", None) or error.strerror or "the connection was closed"
        return f"no TLS handshake, is it https:// there? ({reason.lower().replace('_', ' ')})"
    return str(error) or type(error).__name__
