"""What the checks are written with: contexts, started backends, time, and expectations about an answer."""

import asyncio
import inspect
import math
import secrets
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from drakkar.fleet.provider import EventLogger
from drakkar.leases.backend import Held, Lease, LeaseBackend, LeaseContext, LeaseInfo, Renewal

LATE_SECONDS: Final = 5.0
"""How much later than its ttl a lease that nobody renews may become free, unless the caller says."""

WAKE_SECONDS: Final = 2.0
"""How long a waiter may take to notice a release."""

CHECK_LIMIT_SECONDS: Final = 60.0
"""What a check may take beside the time that it lets pass."""

STOP_LIMIT_SECONDS: Final = 5.0
_ATTEMPTS: Final = 3

MakeBackend = Callable[[], LeaseBackend]
Advance = Callable[[float], object]
"""Lets time pass for the backends, or waits; what it returns is awaited if it can be."""


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


@dataclass(frozen=True)
class Grant:
    """A lease, and the moments between which a holder may count on it."""

    lease: Lease
    sent_at: float

    @property
    def until(self) -> float:
        return self.sent_at + self.lease.ttl_seconds


class Candidate:
    """A started backend and the process it stands for. What its calls raise is a broken promise."""

    def __init__(self, stage: "Stage", backend: LeaseBackend, ctx: LeaseContext) -> None:
        self.backend = backend
        self.worker = ctx.worker
        self.holder = ctx.holder
        self._stage = stage

    async def ask(self, name: str) -> Grant | Held:
        """Acquire, and look at the form of the answer."""
        sent_at = self._stage.elapsed()
        with failure_of("acquire"):
            answer = await self.backend.acquire(name)
        if isinstance(answer, Lease):
            self._look_at_grant(answer, name)
            return Grant(answer, sent_at)
        expect(isinstance(answer, Held), f"expected a Lease or a Held, got {type(answer).__name__}")
        self._look_at_refusal(answer)
        return answer

    async def acquire(self, name: str, when: str) -> Grant:
        """The lease, which must be free or this candidate's own."""
        answer = await self.ask(name)
        if not isinstance(answer, Grant):
            raise AssertionError(f"{when}: expected a grant, got {answer}")
        return answer

    async def expect_refused(self, name: str, until: float, when: str) -> Held:
        """Ask for a lease that somebody else may count on until then."""
        answer = await self.ask(name)
        if isinstance(answer, Held):
            return answer
        self._stage.expect_before(until)
        raise AssertionError(f"{when}: expected a refusal, got {answer.lease}")

    async def take_over(self, name: str, until: float, when: str) -> Grant:
        """Ask until the lease is granted: not before `until`, and not much later."""
        stage = self._stage
        while True:
            answer = await self.ask(name)
            now = stage.elapsed()
            if isinstance(answer, Grant):
                expect(now >= until, f"{when}: expected a refusal for {until - now:g} s more, got a grant")
                return answer
            late = now - until
            expect(late < stage.late_seconds, f"{when}: expected a grant, still refused {late:g} s late")
            await stage.advance(min(0.25 * stage.ttl_seconds, max(-late, 0.05)))

    async def renew(self, *leases: Lease) -> Renewal:
        with failure_of("renew"):
            renewal = await self.backend.renew(leases)
        expect(isinstance(renewal, Renewal), f"expected a Renewal, got {type(renewal).__name__}")
        return renewal

    async def expect_kept(self, grants: Iterable[Grant], when: str) -> list[Grant]:
        """Renew `grants`, expect to keep all, and return them as they count from now on."""
        grants = list(grants)
        sent_at = self._stage.elapsed()
        renewal = await self.renew(*(grant.lease for grant in grants))
        if keys(renewal.kept) == keys(grant.lease for grant in grants) and not renewal.lost:
            return [replace(grant, sent_at=sent_at) for grant in grants]
        self._stage.expect_before(min(grant.until for grant in grants))
        raise AssertionError(
            f"{when}: expected to keep {len(grants)} of {len(grants)} leases, kept {len(renewal.kept)},"
            f" lost {len(renewal.lost)}"
        )

    async def expect_lost(self, lease: Lease, when: str) -> None:
        """Renew `lease`, and expect to be told of its loss."""
        renewal = await self.renew(lease)
        told = (lease.name, lease.token) in keys(renewal.lost)
        expect(
            told and not renewal.kept,
            f"{when}: expected to be told that {lease} is lost, kept {list(renewal.kept)},"
            f" lost {list(renewal.lost)}",
        )

    async def release(self, name: str, token: int | None = None) -> None:
        with failure_of("release"):
            await self.backend.release(name, token)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        names = frozenset(names)
        with failure_of("wait"):
            found = await self.backend.wait(names, timeout_seconds)
        expect(frozenset(found) <= names, f"expected names that were waited for, got {sorted(found)}")
        return frozenset(found)

    async def list(self) -> Sequence[LeaseInfo]:
        with failure_of("list"):
            return await self.backend.list()

    def _look_at_grant(self, lease: Lease, name: str) -> None:
        expect(lease.name == name, f"expected a grant of {name!r}, got one of {lease.name!r}")
        expect(lease.holder == self.holder, f"expected {self.holder} as the holder, got {lease.holder!r}")
        expect(type(lease.token) is int, f"expected a token that is an int, got {lease.token!r}")
        sound = is_number(lease.ttl_seconds) and lease.ttl_seconds > 0
        expect(sound, f"expected a ttl above 0, got {lease.ttl_seconds!r}")

    def _look_at_refusal(self, refusal: Held) -> None:
        holder, seconds = refusal.holder, refusal.retry_after_seconds
        expect(holder is None or isinstance(holder, str), f"expected a holder or None, got {holder!r}")
        expect(holder != self.holder, "expected no refusal that shows the very holder who asks")
        longest = 2 * self._stage.ttl_seconds + self._stage.late_seconds
        sound = seconds is None or (is_number(seconds) and 0 <= seconds <= longest)
        expect(sound, f"expected retry_after_seconds to be None or within {longest:g}, got {seconds!r}")


class TooSlowError(Exception):
    """Time passed too quickly to tell a broken promise from a lease that ran out."""


class Stage:
    """One run of one check: its backends, their time, and lease names that no other run has."""

    def __init__(
        self, make_backend: MakeBackend, advance: Advance, ttl_seconds: float, late_seconds: float
    ) -> None:
        self.ttl_seconds = ttl_seconds
        self.late_seconds = late_seconds
        self._make_backend = make_backend
        self._advance = advance
        self._mark = secrets.token_hex(4)
        self._skipped_seconds = 0.0

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

    def elapsed(self) -> float:
        """At least what has passed for the backends, in seconds, whether `advance` waits or only pretends."""
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

    async def expect_woken(self, waiting: "asyncio.Task[frozenset[str]]", name: str, when: str) -> None:
        """The waiter is told of `name` soon."""
        give_up_at = time.monotonic() + WAKE_SECONDS
        while not waiting.done():
            in_time = time.monotonic() < give_up_at
            expect(in_time, f"{when}: expected to be woken within {WAKE_SECONDS:g} s")
            await self.advance(0.01)
            await asyncio.sleep(0.01)
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


def expect(holds: bool, message: str) -> None:
    """Raise `AssertionError` with `message` unless `holds`; unlike `assert`, also under `python -O`."""
    if not holds:
        raise AssertionError(message)


def keys(leases: Iterable[Lease]) -> set[tuple[str, int]]:
    """What tells one grant from another."""
    return {(lease.name, lease.token) for lease in leases}


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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


@contextmanager
def failure_of(call: str) -> Iterator[None]:
    """Make what `call` raises a broken promise."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"expected {call} to work, it raised {error!r}") from error
