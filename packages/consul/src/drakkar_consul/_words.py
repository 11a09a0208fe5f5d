"""What went wrong, in one line that holds no secret."""

import json
import os
import re
import socket
import ssl
from collections.abc import Sequence
from typing import Final

import aiohttp
from consul import base

from drakkar_consul._keys import Op
from drakkar_consul.settings import SECTION, ConsulSettings

DENIED = "Permission denied"

_CAUSES: Final = (
    ("local issuer certificate", "ca_file"),
    ("self signed certificate", "ca_file"),
    ("self-signed certificate", "ca_file"),
    ("alert bad certificate", "cert_file"),
    ("alert certificate required", "cert_file"),
    ("alert unknown ca", "cert_file"),
    ("no path to datacenter", "datacenter"),
)
"""What is said by OpenSSL of our side, by the agent in an alert, and by its servers; and the option behind
it."""


def hidden(text: str, token: str) -> str:
    """`text` without the token."""
    return text.replace(token, "***") if token else text


def line(error: BaseException, token: str = "") -> str:
    """What it says, without the token, and not long. Not aiohttp's words for a connection, which begin with
    `ssl:default` for plain http."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        text = str(error.certificate_error)
    elif isinstance(error, aiohttp.ClientConnectorError):
        text = _unconnected(error.os_error)
    else:
        text = str(error)
    return re.sub(r"\s+", " ", hidden(text, token)).strip()[:300] or type(error).__name__


def _unconnected(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    in_handshake = isinstance(error, ssl.SSLError | ConnectionResetError)  # connecting itself is *refused*
    if error.errno and not in_handshake:
        return os.strerror(error.errno)  # asyncio puts an address in the place of the system's own words
    if in_handshake or isinstance(error, ConnectionError):  # without a number it is from there too
        reason = getattr(error, "reason", None) or error.strerror or "the connection was closed"
        return f"no TLS handshake, is it https:// there? ({reason.lower().replace('_', ' ')})"
    return str(error)


def look_at(text: str) -> str:
    """Which option has to do with what went wrong, to be put behind it; empty when none is known to."""
    plain = text.lower().replace("_", " ")
    option = next((option for said, option in _CAUSES if said in plain), None)
    return "" if option is None else f"; see {SECTION}.{option}"


def failures_in(error: Exception) -> list[tuple[int, str]] | None:
    """What failed in a transaction. TRAP: the library has it in the text of an error alone."""
    status, _, body = str(error).partition(" ")
    if not isinstance(error, base.ClientError) or status != "409":
        return None
    try:
        return [(each["OpIndex"], each["What"]) for each in json.loads(body)["Errors"]] or None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def refusal(settings: ConsulSettings, said: str, right: str) -> str:
    """That the agent said no to our token, or to none, and which `right` would have done."""
    what = f"refused the token: {said}" if settings.token else f"refused a request without a token: {said}"
    if DENIED not in said:  # it does not know the token at all
        return f"{settings.address} {what}; see {SECTION}.token"
    return f"{settings.address} {what}; {SECTION}.token needs {right}"


def may_read(path: str) -> str:
    """A key, or all below what ends with a slash."""
    return f'{"key_prefix" if path.endswith("/") else "key"} "{path}" {{ policy = "read" }}'


def may_write(ops: Sequence[Op]) -> str:
    """What a transaction takes. One key is named for all, since they are in the same folder."""
    return f'key "{ops[-1]["Key"]}" {{ policy = "write" }}'


MAY_MAKE_SESSIONS = 'session_prefix "" { policy = "write" }'
