"""What the store or the client library says, in our words: what went wrong, and what to correct."""

import json
import re
from typing import Final
from urllib.parse import quote

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    ReadOnlyError,
)

from drakkar_redis._address import SECTION
from drakkar_redis._keys import Keys
from drakkar_redis.settings import RedisSettings

LOGIN_ERRORS: Final = (AuthenticationError, AuthorizationError, NoPermissionError)
_MAX_REASON_CHARS: Final = 300
_SCRIPT: Final = re.compile(r" script: [0-9a-f]{40}, on @user_script:\d+\.?")
_NO_KEY: Final = re.compile("(can't|no permissions to) access (at least )?one of the keys")
_NO_COMMAND: Final = re.compile("(can't|no permissions to) run (the '(?P<command>[^']+)')?")
_NO_SCRIPTS: Final = re.compile("(?i)unknown command .?(evalsha|eval|select|cluster)\\b")
_NO_SENTINEL: Final = re.compile("(?i)unknown command .?sentinel\\b")
_NO_DATABASE: Final = re.compile("(?i)(db index is out of range|invalid db index|invalid database)")

_CUT: Final = re.compile(
    "reset by peer|connection lost|closed by server|broken pipe|wrong version|unexpected eof|record layer"
    "|^error connecting to [^ ]+$"
)
"""What is said of a new connection when one side speaks TLS and the other does not."""

_CAUSES: Final = (
    ("local issuer certificate", "ca_file"),
    ("self signed certificate", "ca_file"),
    ("self-signed certificate", "ca_file"),
    ("alert bad certificate", "cert_file"),
    ("alert certificate required", "cert_file"),
    ("alert unknown ca", "cert_file"),
)
"""What OpenSSL says of our side, and the server in an alert; and the option behind it."""


class StoreError(ConnectionError):
    """The store did not do what it was asked for, or it is not known whether it did. Holds no secret."""


class RefusedError(StoreError):
    """The store refuses what was configured: asking again will not help until somebody changes something."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"{reason}; see {SECTION}.{option}")
        self.option = option
        """Which options to look at, as a message names them."""

        self.reason = reason


def told(
    error: Exception,
    address: str,
    settings: RedisSettings,
    *,
    is_new: bool = False,
    by_sentinel: bool = False,
) -> StoreError:
    """`error` as a `StoreError`. To be raised without its cause, whose text may quote a command that held a
    secret. `is_new`: nothing was ever heard there."""
    if isinstance(error, StoreError):
        return error
    said = str(error).partition(", with args beginning with")[0]
    for secret in (settings.password, settings.sentinel_password):
        said = _without(said, secret)
    reason = _SCRIPT.sub("", " ".join(said.split()))[:_MAX_REASON_CHARS]
    login = "sentinel_username, sentinel_password" if by_sentinel else "username, password"
    if _NO_KEY.search(reason):
        tag = Keys(settings.prefix).tag
        return RefusedError("prefix", f"{address}: {reason}; the user must have the keys ~{tag}:*")
    found = _NO_COMMAND.search(reason)
    if found and found["command"]:
        return RefusedError(login, f"{address}: the user lacks +{found['command']}; {SEE_RIGHTS}")
    if found or isinstance(error, NoPermissionError):
        return RefusedError(login, f"{address} refuses a command: {reason}; {SEE_RIGHTS}")
    if _NO_DATABASE.search(reason):
        return RefusedError("url", f"{address} has no database {settings.db}: {reason}")
    if isinstance(error, LOGIN_ERRORS) or reason.startswith("NOAUTH"):
        return RefusedError(login, f"{address} refuses the login: {reason}")
    if _NO_SENTINEL.search(reason):
        return RefusedError("sentinels", f"{address} is no Sentinel: {reason}")
    if _NO_SCRIPTS.search(reason):
        way = "a Sentinel belongs in sentinels, with service_name, in place of url"
        return RefusedError("url", f"{address} lacks what is needed ({reason}); {way}")
    if isinstance(error, ReadOnlyError):
        return StoreError(f"{address} is a read-only replica: {reason}")
    if isinstance(error, AskError) and not settings.cluster:
        return member_of_a_cluster(address)
    if settings.cluster and "cluster support disabled" in reason:
        return RefusedError("cluster", f"{address} is not part of a Cluster")
    return StoreError(f"{address}: {reason.rstrip('.') or 'no answer'}{_look_at(reason, settings, is_new)}")


def member_of_a_cluster(address: str) -> RefusedError:
    return RefusedError("cluster", f"{address} is part of a Cluster: set it to true")


def ask_for_tls(settings: RedisSettings) -> str:
    """What to look at when a new connection is cut, or nothing comes over it."""
    if settings.path:
        return ""
    if settings.tls:
        way = "leave ca_file out" if settings.sentinels else "begin url with redis://"
        return f"; if there is no TLS, {way}"
    return f"; if it wants TLS, {'set ca_file' if settings.sentinels else 'begin url with rediss://'}"


def _look_at(reason: str, settings: RedisSettings, is_new: bool) -> str:
    """Which option has to do with what went wrong, to be put behind it; empty when none is known to."""
    plain = reason.lower().replace("_", " ")
    for said, option in _CAUSES:
        if said in plain:
            return f"; see {SECTION}.{option}"
    if "hostname mismatch" in plain or "ip address mismatch" in plain:
        return f"; {SECTION}.url must name the host as its certificate does" if settings.hosts else ""
    if not is_new or not (_CUT.search(plain) if plain else settings.tls):
        return ""
    if settings.tls and plain and "connecting to" not in plain:  # so after the handshake
        return f"; if it wants a certificate, see {SECTION}.cert_file"
    return ask_for_tls(settings)


def _without(text: str, secret: str) -> str:
    """`text` with `***` for `secret`, also in the forms in which it may have been written by others."""
    forms = {secret, repr(secret)[1:-1], repr(secret.encode())[2:-1], json.dumps(secret)[1:-1], quote(secret)}
    for form in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(form, "***")
    return text


SEE_RIGHTS: Final = "the documentation of the provider lists the rights that its user needs"
