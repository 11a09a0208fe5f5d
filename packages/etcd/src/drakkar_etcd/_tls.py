"""What the server is known by, and we to it: the files of the settings."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from drakkar_etcd.settings import SECTION, EtcdSettings

T = TypeVar("T")


def context_of(settings: EtcdSettings) -> ssl.SSLContext | None:
    """None for plain http. Raises `ValueError`, one line that names the option, when a file cannot be used.

    The client library ignores the CA without a client certificate, and host names with one.
    """
    if not settings.is_tls:
        return None
    context = _with_file(
        "ca_file", settings.ca_file, lambda: ssl.create_default_context(cafile=settings.ca_file)
    )
    cert, key = settings.cert_file, settings.key_file
    if cert is not None and key is not None:
        # Each by itself first: what loads both does not tell which of them is no good.
        _with_file("cert_file", cert, lambda: ssl.create_default_context(cafile=cert))
        _with_file("key_file", key, lambda: key.open("rb").close())
        _with_file("key_file", key, lambda: _load(context, str(cert), str(key)))
    return context


def _load(context: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        # Without a callback, OpenSSL would ask on the terminal for the passphrase of an encrypted key.
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except ssl.SSLError as error:
        raise ValueError(f"it holds no private key that belongs to cert_file ({_said(error)})") from error


def _no_passphrase() -> str:
    raise ValueError("it is encrypted; a key without a passphrase is needed")


def _said(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _with_file(name: str, file: Path | None, use: Callable[[], T]) -> T:
    try:
        return use()
    except ssl.SSLError as error:
        raise ValueError(f"{SECTION}.{name} cannot be used: {file}: {_said(error)}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{SECTION}.{name} cannot be used: {file}: {reason}") from error
