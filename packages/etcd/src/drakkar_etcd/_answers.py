"""What etcd says, and what it means when it says no.

Of the client library's own errors none is used: it cannot read those of a server of 3.5.
"""

import json
from typing import Any, Final

_UNAVAILABLE: Final = 14
_DEADLINE_EXCEEDED: Final = 4
_UNAUTHENTICATED: Final = 16
_NOT_LOGGED_IN: Final = ("user name is empty", "invalid auth token", "auth store is old")
_NO_LOGINS: Final = "authentication is not enabled"
_LEASE_GONE: Final = "requested lease not found"


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
        self.unavailable = (
            code in (_UNAVAILABLE, _DEADLINE_EXCEEDED)
            or status in (503, 504)
            or "context deadline exceeded" in message  # 3.4 has code 2 for it
        )


class UnansweredError(ConnectionError):
    """No endpoint gave an answer. What was asked for may have happened, and may still happen."""


class CompactedError(Exception):
    """The changes that a watch should begin with are no longer there."""


def read_answer(status: int, body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise EtcdError(status, 0, f"status {status} and no JSON: is there an etcd at this address?")
    # Refusals: 3.4 has `error`, `message` and `code`; 3.5 has no `error`, which the library cannot read;
    # those of streams lie one level deeper.
    inner = answer.get("error")
    refusal = inner if isinstance(inner, dict) else answer
    if status >= 400 or inner is not None:
        code = refusal.get("code", refusal.get("grpc_code", 0))
        message = refusal.get("message") or inner or f"status {status}"
        raise EtcdError(status, code if isinstance(code, int) else 0, str(message))
    return answer


def read_message(line: bytes) -> dict[str, Any]:
    result = read_answer(200, line).get("result")
    return result if isinstance(result, dict) else {}
