"""The files that TLS needs, read. They are small, and read once."""

import os
import ssl
from collections.abc import Sequence
from pathlib import Path

from drakkar_consul._words import line
from drakkar_consul.settings import ConsulSettings, no_good


def tls_of(settings: ConsulSettings) -> ssl.SSLContext | bool:
    """What a connector of aiohttp takes. Raises `ValueError` when a file is no good, with its option."""
    if not settings.tls:
        return True
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
    except (OSError, ValueError) as error:
        raise _unusable(settings, ["ca_file"], error) from error
    if settings.cert_file:
        try:
            # Without a callback, OpenSSL would ask on the terminal for the passphrase of an encrypted key.
            context.load_cert_chain(settings.cert_file, settings.key_file, password=_no_passphrase)
        except _EncryptedError as error:
            raise no_good("key_file", f"cannot be used: {error}") from error
        except (OSError, ValueError) as error:
            raise _unusable(settings, ["cert_file", "key_file"], error) from error
    return context


def _unusable(settings: ConsulSettings, keys: Sequence[str], error: Exception) -> ValueError:
    """That of the files in `keys` which cannot be opened, or all of them: OpenSSL does not tell."""
    files = {key: Path(getattr(settings, key)).absolute() for key in keys}
    for key, file in files.items():
        try:
            os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))
        except OSError as unread:
            return no_good(key, f"cannot be used: {file}: {unread.strerror}")
    first, *others = files.items()
    more = "".join(f" and {key} {file}" for key, file in others)
    return no_good(first[0], f"{first[1]}{more} cannot be used: {line(error)}")


class _EncryptedError(ValueError):
    pass


def _no_passphrase() -> str:
    raise _EncryptedError("the key is encrypted; one without a passphrase is needed")
