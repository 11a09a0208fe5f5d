"""The time of a check: what has passed for the backends, whoever moves it."""

import asyncio
import inspect
import time

from drakkar.leases.testkit.basics import Advance


class TooSlowError(Exception):
    """Time passed too quickly to tell a broken promise from a lease that ran out."""


class Time:
    """Moved by `advance`, which may wait or only pretend, and by itself while calls are made."""

    def __init__(self, advance: Advance, ttl_seconds: float, late_seconds: float) -> None:
        self.ttl_seconds = ttl_seconds
        self.late_seconds = late_seconds
        self._advance = advance
        self._skipped_seconds = 0.0

    def elapsed(self) -> float:
        """At least what has passed for the backends, in seconds from some point."""
        return time.monotonic() + self._skipped_seconds

    def expect_before(self, until: float) -> None:
        """Give up this run of the check if a lease that counts until then may have run out by now."""
        if self.elapsed() >= until:
            raise TooSlowError

    async def advance(self, seconds: float) -> None:
        began = time.monotonic()
        moved = self._advance(seconds)
        if inspect.isawaitable(moved):
            await moved
        self._skipped_seconds += max(0.0, seconds - (time.monotonic() - began))
        await asyncio.sleep(0)
