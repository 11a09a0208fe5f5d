"""The changing set of keys of a keyed fan-out: asked for again and again, from code that may do anything."""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from drakkar.calls import CallError, bounded, wait_ended
from drakkar.leases.backend import MAX_NAME_CHARS
from drakkar.supervisor.surroundings import Surroundings
from drakkar.telemetry.unfailing import UnfailingLogger

MAX_KEYS: Final = 10_000

CALL_SECONDS: Final = 30.0
"""How long one call may take, however often it is made; and how long after a failed one it is made again, at
the latest."""

Keys = Callable[[], Awaitable[Iterable[str]]]


class KeySet:
    """`current` is the last answer that made sense, empty until there is one; `on_change` is called when it
    changes. Between `__init__` and `stop` `keys` is asked every `seconds`.

    A call may take `CALL_SECONDS`; then it is cancelled. One that ignores that is left alone, and `keys` is
    not called again before it has ended.
    """

    def __init__(
        self,
        name: str,
        keys: Keys,
        seconds: float,
        around: Surroundings,
        on_change: Callable[[], None],
    ) -> None:
        self.current: frozenset[str] = frozenset()
        self._name = name
        self._keys = keys
        self._seconds = seconds
        self._clock = around.clock
        self._logger = UnfailingLogger(around.logger)
        self._on_change = on_change
        self._running = False
        self._failing = False
        self._refused: frozenset[str] = frozenset()
        self._task = asyncio.create_task(self._ask_forever(), name=f"drakkar keys of {name}")

    def stop(self) -> None:
        self._task.cancel()

    async def ended(self) -> None:
        """Return when nobody asks any more: within a second after `stop`."""
        await asyncio.wait({self._task})

    async def _ask_forever(self) -> None:
        while True:
            try:
                keys = await self._ask()
            except CallError as error:
                if not self._failing:
                    self._logger.error("worker_keys_failed", worker=self._name, error=str(error))
                self._failing = True
            else:
                self._failing = False
                if keys != self.current:
                    self.current = keys
                    self._on_change()
            await self._clock.sleep(min(self._seconds, CALL_SECONDS) if self._failing else self._seconds)

    async def _ask(self) -> frozenset[str]:
        if self._running:
            raise CallError("an earlier call was cancelled and has not ended")
        task = asyncio.create_task(bounded(self._tracked, math.inf))
        try:
            await wait_ended([task], CALL_SECONDS, self._clock)
        finally:
            in_time = task.done()
            if not in_time:
                task.cancel()
                await asyncio.wait({task})  # short: `bounded` leaves alone what ignores its cancellation
        if not in_time:
            raise CallError(f"no answer within {CALL_SECONDS:g} s")
        if task.cancelled():
            raise CallError("the call was cancelled by somebody else")
        return task.result()

    async def _tracked(self) -> frozenset[str]:
        self._running = True
        try:
            return self._sound(await self._keys())
        finally:
            self._running = False

    def _sound(self, answer: object) -> frozenset[str]:
        """The keys of an answer that can be keys; the others are left out, and named when they change."""
        if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
            raise TypeError(f"keys must return the keys, not {type(answer).__name__}")
        given = list(itertools.islice(answer, MAX_KEYS + 1))
        if len(given) > MAX_KEYS:
            raise ValueError(f"more than {MAX_KEYS} keys")
        sound = frozenset(key for key in given if self._is_key(key))
        refused = frozenset(f"{key!r:.60}" for key in given if not self._is_key(key))
        if refused - self._refused:
            self._logger.error(
                "worker_keys_refused",
                worker=self._name,
                keys=sorted(refused)[:5],
                count=len(refused),
                hint=f"a key is text that makes a lease name of at most {MAX_NAME_CHARS} characters",
            )
        self._refused = refused
        return sound

    def _is_key(self, key: object) -> bool:
        if not isinstance(key, str) or not key or len(lease_of(self._name, key)) > MAX_NAME_CHARS:
            return False
        try:
            key.encode()
        except UnicodeEncodeError:
            return False
        return True


def lease_of(name: str, key: str) -> str:
    """The lease of a key."""
    return f"{name}-leader-{key}"
