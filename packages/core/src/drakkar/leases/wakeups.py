"""Sleeping until a lease may be free: one `wait` of the backend for all names that were refused."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from drakkar.calls import CallError
from drakkar.clock import Clock
from drakkar.leases.deadline import failure_delay

WAIT_SECONDS: Final = 30.0
"""How long one `wait` lasts when nothing changes."""

GATHER_SECONDS: Final = 0.02
"""How long to gather further names, or further news, before asking again: a thousand names refused one after
the other are a few waits, not a thousand. Nothing is lost meanwhile, by the contract of `wait`."""

Wait = Callable[[frozenset[str], float], Awaitable[frozenset[str]]]


class WakeUps:
    """`wait` is the backend's, under a time limit; its failures cost wake-ups, never safety."""

    def __init__(self, wait: Wait, clock: Clock) -> None:
        self._wait = wait
        self._clock = clock
        self._sleeping: dict[str, asyncio.Event] = {}
        self._asked: frozenset[str] = frozenset()
        self._more = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._stopped = False

    async def sleep(self, name: str, seconds: float) -> bool:
        """Return after `seconds`, or earlier when the lease `name` may be free; tell whether it was earlier.
        One sleeper a name."""
        event = self._sleeping[name] = asyncio.Event()
        if name not in self._asked:  # a wait under way tells of changes to all names that it was asked for
            self._more.set()
        if not self._stopped and (self._listener is None or self._listener.done()):
            self._listener = asyncio.create_task(self._listen(), name="drakkar lease wake-ups")
        try:
            return await self._clock.wait(event, seconds)
        finally:
            self._sleeping.pop(name, None)

    async def stop(self) -> None:
        """Listen no more; who sleeps, sleeps to the end."""
        self._stopped = True
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener})

    async def _listen(self) -> None:
        failures = 0
        while self._sleeping:
            self._more.clear()
            self._asked = frozenset(self._sleeping)
            began = self._clock.elapsed()
            free = await self._ask(self._asked)
            self._asked = frozenset()
            if free is None:
                continue
            for name in [name for name in self._sleeping if name in free]:  # the first to come is the first
                self._sleeping.pop(name).set()
            if free or self._clock.elapsed() - began >= 0.5 * WAIT_SECONDS:
                failures = 0
                await self._clock.sleep(GATHER_SECONDS)
            else:  # failed, or had nothing to say long before its time
                failures += 1
                await self._clock.sleep(failure_delay(failures, random.random()))  # noqa: S311  no secret

    async def _ask(self, names: frozenset[str]) -> frozenset[str] | None:
        """What `wait` returned, nothing if it failed; None if it was cut short as there are more names."""
        waiting = asyncio.create_task(self._contained(names))
        more = asyncio.create_task(self._more.wait())
        try:
            await asyncio.wait((waiting, more), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await self._clock.sleep(GATHER_SECONDS)
        finally:
            for task in (waiting, more):
                task.cancel()
            await asyncio.wait((waiting, more))
        return None if waiting.cancelled() else waiting.result()

    async def _contained(self, names: frozenset[str]) -> frozenset[str]:
        try:
            return await self._wait(names, WAIT_SECONDS)
        except CallError:
            return frozenset()
