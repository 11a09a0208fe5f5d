"""What may go wrong, split by what the caller does next.

Contracts raise plain `ValueError`s of their own (`drakkar.fleet.card`, `drakkar.fleet.provider`), because
they import nothing of ours; the worker turns those that concern the configuration into `ConfigError`.
"""

from typing import Final

from drakkar.masking import mask_text

_DESCRIBED_CHARS: Final = 500
_LOOKED_AT_CHARS: Final = 20_000
"""More than is shown, so that a secret is not cut in its middle and taken for none."""


class DrakkarError(Exception):
    """Base of all errors that this package raises on purpose. The message is one line for a person and
    holds no secret."""


class ConfigError(DrakkarError):
    """Fix the input: a setting, an environment variable, a file or an argument does not hold.

    The message names the key or the file and says what to do. Commands exit with status 2.
    """


class UnavailableError(DrakkarError):
    """Try again later: a worker or a store did not answer. Commands exit with status 1."""


class LeaseLost(DrakkarError):  # noqa: N818  the state of affairs, as in asyncio.CancelledError
    """Step down: this process must not act under the lease any more. The message names the lease."""


def describe(error: BaseException) -> str:
    """One line for a person: the kind of error and its message, without secrets, cut when it is long.

    Works for an error whose `str` raises; of a group it names what is inside.
    """
    if isinstance(error, BaseExceptionGroup):
        inner = "; ".join(describe(each) for each in error.exceptions[:3])
        return f"{type(error).__name__} of {len(error.exceptions)}: {inner}"[:_DESCRIBED_CHARS]
    try:
        text = " ".join(mask_text(str(error)[:_LOOKED_AT_CHARS]).split())
    except Exception:  # noqa: BLE001  an error that cannot be shown is still only an error
        text = ""
    return f"{type(error).__name__}: {text}"[:_DESCRIBED_CHARS] if text else type(error).__name__
