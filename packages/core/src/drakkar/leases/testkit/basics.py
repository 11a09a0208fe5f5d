"""What the checks are written with, whatever they look at."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from drakkar.leases.backend import Lease, LeaseBackend

MakeBackend = Callable[[], LeaseBackend]
Advance = Callable[[float], object]
"""Lets time pass for the backends, or waits; what it returns is awaited if it can be."""


def expect(holds: bool, message: str) -> None:
    """Raise `AssertionError` with `message` unless `holds`; unlike `assert`, also under `python -O`."""
    if not holds:
        raise AssertionError(message)


def keys(leases: Iterable[Lease]) -> set[tuple[str, int]]:
    """What tells one grant from another."""
    return {(lease.name, lease.token) for lease in leases}


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@contextmanager
def failure_of(call: str) -> Iterator[None]:
    """Make what `call` raises a broken promise."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"expected {call} to work, it raised {error!r}") from error
