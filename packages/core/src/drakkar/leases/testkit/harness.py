"""Runs of checks: their backends, what they are called with, and their end."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Protocol

from drakkar.fleet.provider import EventLogger
from drakkar.leases.backend import LeaseBackend, LeaseContext
from drakkar.leases.testkit.basics import Advance, MakeBackend, expect, failure_of
from drakkar.leases.testkit.candidate import Candidate
from drakkar.leases.testkit.timing import Time, TooSlowError

LATE_SECONDS: Final = 5.0
"""How much later than its ttl a lease that nobody renews may become free, unless the caller says."""

WAKE_SECONDS: Final = 2.0
"""How long a waiter may take to notice a release."""

_STEP_SECONDS: Final = 0.01

CHECK_LIMIT_SECONDS: Final = 60.0
"""What a check may take beside the time that it lets pass."""

STOP_LIMIT_SECONDS: Final = 5.0
_ATTEMPTS: Final = 3


class LeaseCheck(Protocol):
    """A check, as it is called. `late_seconds` is the bound that the backend documents for a successor."""

    __name__: str

    def __call__(
        self,
        make_backend: MakeBackend,
        advance: Advance,
        ttl_seconds: float,
        *,
        late_seconds: float = LATE_SECONDS,
    ) -> Coroutine[Any, Any, None]: ...


class SilentLogger:
    """Takes every event and drops it."""

    def debug(self, event: str, **fields: Any) -> None: ...
    def info(self, event: str, **fields: Any) -> None: ...
    def warning(self, event: str, **fields: Any) -> None: ...
    def error(self, event: str, **fields: Any) -> None: ...


def make_context(
    worker: str,
    instance: str = "0123456789abcdef",
    *,
    cluster: str = "",
    logger: EventLogger | None = None,
    options: Mapping[str, Any] | None = None,
    ttl_seconds: float = 30.0,
    timeout_seconds: float = 5.0,
) -> LeaseContext:
    """A context for `LeaseBackend.start`; without a logger, events are dropped."""
    return LeaseContext(
        worker=worker,
        instance=instance,
        cluster=cluster,
        logger=SilentLogger() if logger is None else logger,
        options={} if options is None else options,
        ttl_seconds=ttl_seconds,
        timeout_seconds=timeout_seconds,
    )


class Stage(Time):
    """One run of one check: its backends, their time, and lease names that no other run has."""

    def __init__(
        self, make_backend: MakeBackend, advance: Advance, ttl_seconds: float, late_seconds: float
    ) -> None:
        super().__init__(advance, ttl_seconds, late_seconds)
        self._make_backend = make_backend
        self._mark = secrets.token_hex(4)

    def name(self, begin: str, end: str = "") -> str:
        """A lease name of this run."""
        return f"{begin}{self._mark}{end}"

    @asynccontextmanager
    async def candidate(self, worker: str, instance: str | None = None) -> AsyncIterator[Candidate]:
        """A backend of its own for a process of that worker, started, and stopped whatever happens."""
        instance = secrets.token_hex(8) if instance is None else instance
        ctx = make_context(worker, instance, ttl_seconds=self.ttl_seconds)
        backend = self._make_backend()
        try:
            await backend.start(ctx)
            yield Candidate(self, backend, ctx)
        finally:
            await stop(backend)

    @asynccontextmanager
    async def candidates(self, count: int) -> AsyncIterator[list[Candidate]]:
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(self.candidate(f"worker-{number + 1}"))
                for number in range(count)
            ]

    def unstarted(self) -> LeaseBackend:
        return self._make_backend()

    async def ends_within(self, seconds: float, waiting: "asyncio.Task[Any]") -> bool:
        """Whether `waiting` ends while so much time passes, counted in small steps: while the machine stands
        still nobody can be blamed."""
        for _ in range(round(seconds / _STEP_SECONDS)):
            if waiting.done():
                break
            await self.advance(_STEP_SECONDS)
            await asyncio.sleep(_STEP_SECONDS)
        return waiting.done()

    async def expect_woken(self, waiting: "asyncio.Task[frozenset[str]]", name: str, when: str) -> None:
        """The waiter is told of `name` soon."""
        woken = await self.ends_within(WAKE_SECONDS, waiting)
        expect(woken, f"{when}: expected to be woken within {WAKE_SECONDS:g} s")
        found = waiting.result()
        expect(name in found, f"{when}: expected to be told of {name!r}, got {sorted(found)}")


def lease_check(check: Callable[[Stage], Awaitable[None]]) -> LeaseCheck:
    """Give `check` the signature of the kit and a time limit: to hang is to fail. A run in which the machine
    was too slow to tell is done again."""

    async def run(
        make_backend: MakeBackend,
        advance: Advance,
        ttl_seconds: float,
        *,
        late_seconds: float = LATE_SECONDS,
    ) -> None:
        limit_seconds = CHECK_LIMIT_SECONDS + 6 * (ttl_seconds + late_seconds)
        limit = asyncio.timeout(_ATTEMPTS * limit_seconds)
        try:
            async with limit:
                for _ in range(_ATTEMPTS):
                    try:
                        await check(Stage(make_backend, advance, ttl_seconds, late_seconds))
                    except TooSlowError:
                        continue
                    return
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AssertionError(f"expected an end within {limit_seconds:g} s, got none") from error
        raise AssertionError(f"expected calls that take a fraction of the ttl of {ttl_seconds:g} s")

    name: str = getattr(check, "__name__", "check")
    run.__name__ = run.__qualname__ = name
    run.__doc__ = check.__doc__
    return run


async def stop(backend: LeaseBackend) -> None:
    limit = asyncio.timeout(STOP_LIMIT_SECONDS)
    try:
        async with limit:
            with failure_of("stop"):
                await backend.stop()
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AssertionError(f"expected stop to return within {STOP_LIMIT_SECONDS:g} s") from error
