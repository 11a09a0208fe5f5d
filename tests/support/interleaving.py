"""Several threads, of which one runs at a time, changing over at system calls only: at the ones we choose.

`Schedule` runs functions to their end. Before each system call that another process could notice, the one
that runs hands over to whichever the schedule picks, which may leave it out for as long as it likes: that is
what a process looks like that was frozen there. One can also be killed there: nothing of it runs any more.
"""

import os
import random
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

_SHARED = frozenset(
    {"open", "link", "rename", "unlink", "mkdir", "listdir", "stat", "pread", "pwrite", "write", "utime"}
)


class Killed(BaseException):
    """What a process sees of its end: in the test it has to be unwound."""


class Schedule:
    """Runs `bodies` by name; `pick` chooses who goes next; `between` is called before each system call."""

    def __init__(self, pick: Callable[[list[str]], str], between: Callable[[], None]) -> None:
        self._pick = pick
        self._between = between
        self._turn = threading.Condition()
        self._running: str | None = None
        self._waiting: set[str] = set()
        self._names = threading.local()
        self._killed: set[str] = set()
        self._failure: BaseException | None = None
        self.steps = 0

    def run(self, bodies: dict[str, Callable[[], None]]) -> None:
        """Return when all have ended. Raises what one of them raised, or `between`."""
        threads = [
            threading.Thread(target=self._body, args=(name, body), daemon=True)
            for name, body in bodies.items()
        ]
        self._waiting = set(bodies)
        self._running = self._pick(sorted(self._waiting))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "the schedule stands still"
        if self._failure is not None:
            raise self._failure

    def kill(self) -> None:
        """End the process that runs now: from here on it has no effect."""
        self._killed.add(self._names.value)
        raise Killed

    def call(self, name: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """One system call."""
        me = getattr(self._names, "value", None)
        if me is None:
            return function(*arguments, **keywords)
        if me in self._killed:
            raise Killed
        if name == "fsync":  # nobody notices, and it takes the most time
            return None
        self._hand_over(me)
        return function(*arguments, **keywords)

    def revive(self) -> None:
        """Another process takes the place of the killed one."""
        self._killed.discard(self._names.value)

    def _body(self, name: str, body: Callable[[], None]) -> None:
        self._names.value = name
        try:
            with self._turn:
                self._turn.wait_for(lambda: self._running == name)
            body()
        except BaseException as error:  # noqa: BLE001  for the one that called `run`
            self._failure = self._failure or error
        with self._turn:
            self._waiting.discard(name)
            self._running = self._pick(sorted(self._waiting)) if self._waiting else None
            self._turn.notify_all()

    def _hand_over(self, me: str) -> None:
        if self._failure is not None:
            raise Killed
        self.steps += 1
        self._between()
        with self._turn:
            self._running = self._pick(sorted(self._waiting))
            if self._running != me:
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._running == me)


class _System:
    """Stands for a module: its functions are called through the schedule."""

    def __init__(self, module: ModuleType, schedule: Schedule, instead: dict[str, Any]) -> None:
        self._module = module
        self._schedule = schedule
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        found = self._instead.get(name) or getattr(self._module, name)
        if name not in _SHARED and name != "fsync":
            return found

        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._schedule.call(name, found, *arguments, **keywords)

        return call


def take_over(patch: pytest.MonkeyPatch, schedule: Schedule, *modules: ModuleType, **instead: Any) -> None:
    """Let the system calls of `modules` go through the schedule; some may be done by other functions."""
    for module in modules:
        patch.setattr(module, "os", _System(os, schedule, instead))


def evenly(chance: random.Random, freezes: float = 0.0, longest: int = 200) -> Callable[[list[str]], str]:
    """Every step may be anybody's; at one of them, as likely as `freezes`, who would be next is left out for
    as many as `longest` steps."""
    frozen: dict[str, int] = {}

    def pick(names: list[str]) -> str:
        for name in list(frozen):
            frozen[name] -= 1
            if frozen[name] <= 0:
                del frozen[name]
        awake = [name for name in names if name not in frozen]
        if len(awake) > 1 and chance.random() < freezes:
            frozen[awake.pop(chance.randrange(len(awake)))] = chance.randint(5, longest)
        return chance.choice(awake or names)

    return pick


def by_rank(chance: random.Random, changes: int, steps: int) -> Callable[[list[str]], str]:
    """The highest rank runs until it ends; at a few steps whoever runs falls to the last rank.

    That finds what needs only a few changes at the right places (Burckhardt and others, 2010).
    """
    ranks: dict[str, float] = {}
    falls = {chance.randrange(steps) for _ in range(changes)}
    count = 0

    def pick(names: list[str]) -> str:
        nonlocal count
        count += 1
        for name in names:
            ranks.setdefault(name, chance.random())
        best = max(names, key=lambda name: ranks[name])
        if count in falls:
            ranks[best] = -float(count)
            best = max(names, key=lambda name: ranks[name])
        return best

    return pick
