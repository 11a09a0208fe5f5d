"""Asking for leases until they are ours: every attempt, every wait between two, and what a doubtful one got.

A candidate is one call of `win`. What the store may have granted it without its knowledge is in doubt until
it knows better, and is given back when it stops asking.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from drakkar.calls import CallError
from drakkar.clock import Clock
from drakkar.fleet.provider import EventLogger
from drakkar.leases.backend import Held, Lease
from drakkar.leases.calls import LeaseCalls
from drakkar.leases.deadline import LeaseTiming, failure_delay, retry_delay
from drakkar.leases.givebacks import GiveBacks
from drakkar.leases.handle import LeaseHandle
from drakkar.leases.wakeups import WakeUps

CONCURRENT_ACQUIRES: Final = 16

TRUSTED_WAKEUPS: Final = 3
"""How many wake-ups in a row, each followed by a refusal, a candidate answers at once. After these it takes
its time, `MAX_WAKEUP_DELAY_SECONDS` at most: a store whose every change looks like a release must not make it
ask without end."""

MAX_WAKEUP_DELAY_SECONDS: Final = 1.0

BeforeAttempt = Callable[[], Awaitable[None]]
AfterRefusal = Callable[[], None]


class Candidates:
    """All that want a lease. One at a time for each name: the caller sees to that."""

    def __init__(
        self,
        calls: LeaseCalls,
        givebacks: GiveBacks,
        timing: LeaseTiming,
        *,
        fenced: bool,
        clock: Clock,
        logger: EventLogger,
    ) -> None:
        self._calls = calls
        self._givebacks = givebacks
        self._timing = timing
        self._fenced = fenced
        self._clock = clock
        self._logger = logger
        self._wakeups = WakeUps(calls.wait, clock)
        self._slots = asyncio.Semaphore(CONCURRENT_ACQUIRES)
        self._open = asyncio.Event()
        self._ended = False
        self._doubtful: set[str] = set()

    def begin(self) -> None:
        """The store can be asked. Does nothing after `end`."""
        if not self._ended:
            self._open.set()

    def end(self) -> None:
        """Ask for nothing more, and give back what an attempt under way is granted."""
        self._ended = True
        self._open.clear()

    def settle_doubts(self) -> None:
        """Begin to give back what candidates may have been granted that have not been told yet."""
        for name in self._doubtful:
            self._givebacks.start(name, None)

    async def stop(self) -> None:
        await self._wakeups.stop()

    async def win(
        self, name: str, before_attempt: BeforeAttempt | None, after_refusal: AfterRefusal | None
    ) -> LeaseHandle:
        """Return when a grant is ours that a run may start on."""
        failures = early = 0
        try:
            while True:
                await self._open.wait()
                if before_attempt is not None:
                    await before_attempt()
                await self._givebacks.settled(name, self._timing.ttl_seconds)
                async with self._slots:
                    if self._ended:
                        continue
                    self._doubtful.add(name)
                    sent_at = self._clock.elapsed()
                    answer = await self._ask(name)
                handle = self._granted(answer, sent_at) if isinstance(answer, Lease) else None
                if answer is not None:
                    self._doubtful.discard(name)
                if handle is not None:
                    return handle
                if isinstance(answer, Held):
                    failures = 0
                    if after_refusal is not None:
                        after_refusal()
                    early = early + 1 if await self._wakeups.sleep(name, self._patience(answer)) else 0
                    await self._calm_down(early - TRUSTED_WAKEUPS)
                    continue
                failures += 1
                if answer is None or failures > 1:  # one grant that is of no use is a left-over of ours
                    await self._clock.sleep(failure_delay(failures, random.random()))  # noqa: S311  no secret
        except BaseException:
            if name in self._doubtful:
                self._doubtful.discard(name)
                self._givebacks.start(name, None)
            raise

    async def _ask(self, name: str) -> Lease | Held | None:
        try:
            return await self._calls.acquire(name)
        except CallError:
            return None

    def _granted(self, lease: Lease, sent_at: float) -> LeaseHandle | None:
        """The handle of a grant that a run may start on; one that it may not is given back."""
        spent = self._givebacks.spent.get(lease.name)
        handle = LeaseHandle(lease, sent_at, self._clock)
        used = self._fenced and spent is not None and lease.token <= spent
        if used or handle.lost or self._ended:  # lost: the answer took longer than the lease lasts
            self._givebacks.start(lease.name, lease.token)
            if used and lease.token != spent:
                self._logger.error(
                    "lease_token_went_back", name=lease.name, token=lease.token, last_token=spent
                )
            return None
        self._logger.info("lease_acquired", name=lease.name, token=lease.token)
        self._givebacks.spent[lease.name] = lease.token
        return handle

    def _patience(self, refusal: Held) -> float:
        """No longer than a lease lasts that nobody renews, whatever the store says: a wake-up can be lost."""
        longest = max(self._timing.ttl_seconds, self._timing.retry_seconds)
        chance = random.random()  # noqa: S311  no secret
        return retry_delay(refusal.retry_after_seconds, self._timing.retry_seconds, chance, longest)

    async def _calm_down(self, excess: int) -> None:
        if excess > 0:
            delay = failure_delay(excess, random.random())  # noqa: S311  no secret
            await self._clock.sleep(min(MAX_WAKEUP_DELAY_SECONDS, delay))
