"""What may go wrong, split by what the caller does next.

Contracts raise plain `ValueError`s of their own (`drakkar.fleet.card`, `drakkar.fleet.provider`), because
they import nothing of ours; the worker turns those that concern the configuration into `ConfigError`.
"""


class DrakkarError(Exception):
    """Base of all errors that this package raises on purpose. The message is one line for a person and
    holds no secret."""


class ConfigError(DrakkarError):
    """Fix the input: a setting, an environment variable, a file or an argument does not hold.

    The message names the key or the file and says what to do. Commands exit with status 2.
    """


class UnavailableError(DrakkarError):
    """Try again later: a worker or a store did not answer. Commands exit with status 1."""
