"""What a run gets to know of the lease it works under."""

import asyncio
import os
from enum import Enum
from typing import Final

from drakkar.clock import Clock
from drakkar.errors import LeaseLost
from drakkar.leases.backend import Lease
from drakkar.leases.deadline import deadline, free_at


class LeaseState(Enum):
    """A lease ends once, in one of three ways; one that is lost may be abandoned on top."""

    HELD = "held"
    LOST = "lost"
    """It ran out, or the store says it is not ours."""

    ABANDONED = "abandoned"
    """Its run would not end: not renewed any more, given back when it has run out."""

    RELEASED = "released"
    """Given back after its run had ended."""


_NEXT: Final = {
    LeaseState.HELD: {LeaseState.LOST, LeaseState.ABANDONED, LeaseState.RELEASED},
    LeaseState.LOST: {LeaseState.ABANDONED},
    LeaseState.ABANDONED: set[LeaseState](),
    LeaseState.RELEASED: set[LeaseState](),
}


class LeaseHandle:
    """One grant, from `acquire` to its end. Made by the keeper; `name`, `token`, `lost` and `check` are for
    the run and may be used from any thread."""

    def __init__(self, lease: Lease, sent_at: float, clock: Clock) -> None:
        self.lease = lease
        self.state = LeaseState.HELD
        self.acquired_at = sent_at
        self.ttl_seconds = lease.ttl_seconds
        """What the last grant or renewal was good for."""

        self._clock = clock
        self._pid = os.getpid()
        self._ended = asyncio.Event()
        self._sent_at = sent_at
        self._deadline = deadline(sent_at, lease.ttl_seconds)
        self._free_at = free_at(sent_at, lease.ttl_seconds)
        self._overdue = False

    @property
    def name(self) -> str:
        return self.lease.name

    @property
    def token(self) -> int:
        """The fencing token: pass it along with every write that the written-to side can refuse."""
        return self.lease.token

    @property
    def lost(self) -> bool:
        """Whether the lease must not be acted under any more; true for good once it is true. Always true in a
        forked copy of the process, which would not hear that the lease was given back."""
        if self._pid != os.getpid():
            return True
        if self._clock.elapsed() >= self._deadline:
            self._overdue = True  # whoever saw this was told to stop: no late answer may take it back
        return self._overdue or self.state is not LeaseState.HELD

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is held at this moment, by the clock, whatever the event loop
        had time to notice. Call it before a side effect; it costs less than a microsecond."""
        if self.lost:
            raise LeaseLost(f"lease {self.name!r} is lost (token {self.token})")

    async def wait_lost(self) -> None:
        """Return when the keeper has found the lease at its end, at most a second after its deadline unless
        the event loop was held up."""
        await self._ended.wait()

    @property
    def deadline(self) -> float:
        """The moment from which the holder must not act, by the elapsed clock."""
        return self._deadline

    @property
    def free_at(self) -> float:
        """The moment from which giving the lease back is not early even for a run that goes on."""
        return self._free_at

    def renewed(self, sent_at: float, ttl_seconds: float) -> bool:
        """Count from a request sent at `sent_at`; tell whether it counts. Not when the lease is lost by now,
        whatever the answer says, nor when a younger request has been answered."""
        if self.lost or sent_at < self._sent_at:
            return False
        self.ttl_seconds, self._sent_at = ttl_seconds, sent_at
        self._deadline = deadline(sent_at, ttl_seconds)
        self._free_at = max(self._free_at, free_at(sent_at, ttl_seconds))
        return True

    def end(self, state: LeaseState) -> bool:
        """Leave `HELD` for `state`; tell whether that counts, for a lease ends only once."""
        if state not in _NEXT[self.state]:
            return False
        self.state = state
        self._ended.set()
        return True
