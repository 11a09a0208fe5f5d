"""The files that TLS needs, read. They are small, and read once."""

import ssl

from drakkar_consul._words import line
from drakkar_consul.settings import ConsulSettings, no_good


def tls_of(settings: ConsulSettings) -> ssl.SSLContext | bool:
    """What a connector of aiohttp takes. Raises `ValueError` when a file is no good, with its option."""
    if not settings.tls:
        return True
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
    except (OSError, ValueError) as error:
        raise no_good("ca_file", f"cannot be used: {line(error)}") from error
    if settings.cert_file:
        try:
            # Without a callback, OpenSSL would ask on the terminal for the passphrase of an encrypted key.
            context.load_cert_chain(settings.cert_file, settings.key_file, password=_no_passphrase)
        except _EncryptedError as error:
            raise no_good("key_file", f"cannot be used: {error}") from error
        except (OSError, ValueError) as error:
            raise no_good("cert_file", f"and key_file cannot be used: {line(error)}") from error
    return context


class _EncryptedError(ValueError):
    pass


def _no_passphrase() -> str:
    raise _EncryptedError("the key is encrypted; one without a passphrase is needed")
