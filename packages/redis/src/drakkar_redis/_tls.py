"""The files that TLS needs, tried out before anything is connected. The client library reads them anew for
each connection, so that a certificate may be replaced while the worker runs."""

import os
import ssl
from collections.abc import Sequence
from pathlib import Path

from drakkar_redis._address import no_good
from drakkar_redis.settings import RedisSettings


def check_files(settings: RedisSettings) -> None:
    """Raises `ValueError`, one line that names the option and the path, when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.ca_file:
        try:
            context.load_verify_locations(settings.ca_file)
        except (OSError, ValueError) as error:
            raise _unusable(settings, ["ca_file"], error) from error
    if settings.cert_file:
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file, password=no_passphrase)
        except EncryptedKeyError as error:
            file = Path(settings.key_file).absolute()
            raise no_good("key_file", f"cannot be used: {file}: {error}") from None
        except (OSError, ValueError) as error:
            raise _unusable(settings, ["cert_file", "key_file"], error) from error


def _unusable(settings: RedisSettings, keys: Sequence[str], error: Exception) -> ValueError:
    """Names that of the files which cannot be opened, or all of them: OpenSSL does not tell."""
    files = {key: Path(getattr(settings, key)).absolute() for key in keys}
    for key, file in files.items():
        try:
            os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))
        except OSError as unread:
            return no_good(key, f"cannot be used: {file}: {unread.strerror}")
    first, *others = files.items()
    more = "".join(f" and {key} {file}" for key, file in others)
    return no_good(first[0], f"{first[1]}{more} cannot be used: {error}")


class EncryptedKeyError(ValueError):
    """The private key has a passphrase, and nobody is there to be asked for it."""


def no_passphrase() -> str:
    """Stands in for the question on the terminal, at which the whole process would wait."""
    raise EncryptedKeyError("it is encrypted; give a key without a passphrase")
