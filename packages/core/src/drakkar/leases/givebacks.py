"""Giving leases back, in the background and until the store has said that it is done."""

import asyncio
import random
from typing import Final

from drakkar.calls import CallError, wait_ended
from drakkar.clock import Clock
from drakkar.leases.backend import Held
from drakkar.leases.calls import LeaseCalls
from drakkar.leases.deadline import failure_delay

CONCURRENT_GIVEBACKS: Final = 16


class GiveBacks:
    """One task for each grant: a name and a token, or None for whatever an acquire without an answer got."""

    def __init__(self, calls: LeaseCalls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._tasks: dict[str, dict[int | None, asyncio.Task[None]]] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_GIVEBACKS)
        self._acquiring_ended = False
        self._stopping = asyncio.Event()
        self._stopped = False
        self.spent: dict[str, int] = {}
        """The highest token of each name that a run had or a release was sent for; one number for each name
        ever led. Such a token is never run on again: a release that was delayed on its way could still take
        the lease from under the run."""

    def start(self, name: str, token: int | None, not_before: float = 0.0) -> None:
        """Give back the grant `token` once the clock shows `not_before`. Takes the place of an earlier one
        of that token. After `stop` it does nothing: the lease runs out in the store."""
        if self._stopped:
            return
        tasks = self._tasks.setdefault(name, {})
        tasks[token] = task = asyncio.create_task(
            self._give_back(name, token, not_before, tasks.get(token)), name=f"drakkar lease give back {name}"
        )
        task.add_done_callback(lambda task: self._done(name, token, task))

    async def done(self, name: str, token: int | None, limit_seconds: float) -> None:
        """Return when the grant `token` is not being given back any more, or after `limit_seconds`."""
        if (task := self._tasks.get(name, {}).get(token)) is not None:
            await wait_ended([task], limit_seconds, self._clock)

    async def settled(self, name: str, limit_seconds: float) -> None:
        """Return when nothing of this name is being given back.

        A grant whose token is known is waited for no longer than `limit_seconds`: its release cannot hit
        another one, and a store that never takes it must not keep us from the lease for ever.
        """
        while (task := self._tasks.get(name, {}).get(None)) is not None:
            await asyncio.wait({task})
        await wait_ended(self._tasks.get(name, {}).values(), limit_seconds, self._clock)

    def end_acquiring(self) -> None:
        """From now on no name is acquired, so that no release can hit a later grant of ours."""
        self._acquiring_ended = True

    async def stop(self, limit_seconds: float) -> None:
        """Give those that are due this long, then leave the rest to run out in the store."""
        self._stopping.set()
        await wait_ended(self._all(), limit_seconds, self._clock)
        self._stopped = True
        if tasks := self._all():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _give_back(
        self, name: str, token: int | None, not_before: float, earlier: asyncio.Task[None] | None
    ) -> None:
        if earlier is not None:
            earlier.cancel()
            await asyncio.wait({earlier})
        while (left := not_before - self._clock.elapsed()) > 0:
            if await self._clock.wait(self._stopping, left):
                return
        failures = 0
        while True:
            try:
                async with self._slots:
                    if token is None and not self._acquiring_ended:
                        # A release without a token could reach the store late and hit a later grant of ours.
                        # To ask again tells the token of what we got.
                        answer = await self._calls.acquire(name)
                        if isinstance(answer, Held):
                            return
                        token = answer.token
                    if token is not None:
                        self.spent[name] = max(token, self.spent.get(name, token))
                    await self._calls.release(name, token)
                    return
            except CallError:
                failures += 1
            await self._clock.sleep(failure_delay(failures, random.random()))  # noqa: S311  no secret

    def _all(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._tasks.values() for task in tasks.values()]

    def _done(self, name: str, token: int | None, task: asyncio.Task[None]) -> None:
        tasks = self._tasks.get(name, {})
        if tasks.get(token) is task:
            del tasks[token]
            if not tasks:
                del self._tasks[name]
