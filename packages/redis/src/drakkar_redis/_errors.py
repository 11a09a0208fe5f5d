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

from drakkar_redis._keys import Keys
from drakkar_redis.settings import RedisSettings

LOGIN_ERRORS: Final = (AuthenticationError, AuthorizationError, NoPermissionError)
_MAX_REASON_CHARS: Final = 300
_SCRIPT: Final = re.compile(r" script: [0-9a-f]{40}, on @user_script:\d+\.?")
_NO_KEY: Final = re.compile("(can't|no permissions to) access (at least )?one of the keys")
_NO_COMMAND: Final = re.compile("(can't|no permissions to) run ")
_NO_DATABASE: Final = re.compile("(?i)(db index is out of range|invalid db index|invalid database)")


class StoreError(ConnectionError):
    """The store did not do what it was asked for, or it is not known whether it did. Holds no secret."""


class RefusedError(StoreError):
    """The store refuses what was configured: asking again will not help until somebody changes something."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option
        """Which options to look at, as a message names them."""


class EncryptedKeyError(OSError):
    """The private key has a passphrase, and nobody is there to be asked for it."""


def no_passphrase() -> str:
    """Stands in for the question on the terminal, at which the whole process would wait."""
    raise EncryptedKeyError("key_file is encrypted; give a key without a passphrase")


def told(error: Exception, address: str, settings: RedisSettings) -> StoreError:
    """`error` as a `StoreError`. To be raised without its cause, whose text may quote a command that held a
    secret."""
    if isinstance(error, StoreError):
        return error
    said = str(error).partition(", with args beginning with")[0]
    for secret in (settings.password, settings.sentinel_password):
        said = _without(said, secret)
    reason = _SCRIPT.sub("", " ".join(said.split()))[:_MAX_REASON_CHARS]
    if _NO_KEY.search(reason):
        tag = Keys(settings.prefix).tag
        return RefusedError("prefix", f"{address}: {reason}; the user must have the keys ~{tag}:*")
    if _NO_COMMAND.search(reason):
        return RefusedError("username, password", f"{address} refuses a command: {reason}; {SEE_RIGHTS}")
    if _NO_DATABASE.search(reason):
        return RefusedError("url", f"{address} has no database {settings.db}: {reason}")
    if isinstance(error, LOGIN_ERRORS) or reason.startswith("NOAUTH"):
        return RefusedError("username, password", f"{address} refuses the login: {reason}")
    if isinstance(error, ReadOnlyError):
        return StoreError(f"{address} is a read-only replica: {reason}")
    if isinstance(error, AskError) and not settings.cluster:
        return RefusedError("cluster", f"{address} is part of a Cluster: set it to true")
    if settings.cluster and "cluster support disabled" in reason:
        return RefusedError("cluster", f"{address} is not part of a Cluster")
    return StoreError(f"{address}: {reason or type(error).__name__}")


def _without(text: str, secret: str) -> str:
    """`text` with `***` for `secret`, also in the forms in which it may have been written by others."""
    forms = {secret, repr(secret)[1:-1], repr(secret.encode())[2:-1], json.dumps(secret)[1:-1], quote(secret)}
    for form in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(form, "***")
    return text


SEE_RIGHTS: Final = "the documentation of the provider lists the rights that its user needs"
