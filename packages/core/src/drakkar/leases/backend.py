"""The contract between a worker and the store that keeps its leases.

Not guaranteed by any lease: mutual exclusion without looking. A lease is a promise about time, and a process
can be frozen at any instruction, also between looking and acting. Whoever writes where two writers would do
harm passes the fencing token along and lets the written-to side refuse a lower one. Nothing here survives a
store that lost its data, or an operator who edits it, before the holder's next renewal; tokens are for that.

Not needed: agreement between clocks. A holder counts from before it asked, on its own clock; a store counts
on its own; no wall clock decides anything. Clocks that *run* at different speeds are covered up to a tenth,
the margin that a holder gives up of every lease.

Who does what:

- The keeper (`drakkar.leases.keeper`) owns every loop: when to acquire, renew, wait, release, and what a
  failure means. It ends each call at its time limit, and knows by its own clock when a lease has run out.
- A backend stores. Each method is one atomic operation on its store and makes no decision. It has no loop
  but one task of its own that listens for changes, and repeats a request only within one call.

A backend is made by the method `lease_backend(options)` of a factory in the entry-point group
`drakkar.registry_providers`. Like the factory itself it raises `ValueError` with one line for options that
do not hold, opens nothing, and may be called outside of an event loop.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from drakkar.fleet.provider import EventLogger

MAX_NAME_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class LeaseContext:
    """What a backend learns at `start`. New fields always have defaults."""

    worker: str
    instance: str
    """Random, new at every process start: two processes of one name are two holders."""

    cluster: str
    logger: EventLogger
    options: Mapping[str, Any] = field(default_factory=dict)
    ttl_seconds: float = 30.0
    """How long a lease lasts without renewal."""

    timeout_seconds: float = 3.0
    """The keeper ends every call but `wait` after this long."""

    @property
    def holder(self) -> str:
        """Who this process is in the store. Leases belong to the whole fleet, whatever the cluster."""
        return f"{self.worker}/{self.instance}"


@dataclass(frozen=True, slots=True)
class Lease:
    """A grant."""

    name: str
    holder: str
    token: int
    """The fencing token: greater than that of every earlier grant of this name, also after the store lost
    its data, as far as it can."""

    ttl_seconds: float
    """How long the *holder* may count on it, from before it asked; may be less than was asked for. How soon
    a successor can have it is each backend's documented bound."""


@dataclass(frozen=True, slots=True)
class Held:
    """A refusal: the lease is, or may be, somebody else's."""

    holder: str | None = None
    """None where the store cannot tell."""

    retry_after_seconds: float | None = None
    """When asking again may help, if nobody wakes us before; None where the store cannot tell."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """What became of leases. One in neither group is unknown: neither kept nor lost."""

    kept: Sequence[Lease] = ()
    """Renewed in full, and still ours when that happened; `ttl_seconds` counts from before the call."""

    lost: Sequence[Lease] = ()
    """Certainly not ours any more."""


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A row of the listing, for people. None is unknown."""

    name: str
    holder: str | None
    token: int | None
    age_seconds: float | None
    """Since this grant was made."""

    remaining_seconds: float | None
    """Until it runs out if nobody renews it."""


class LeaseBackend(Protocol):
    """Stores leases. Methods run on the worker's event loop and must not block it.

    Every method may raise anything, and a raise means "unknown", never "lost" and never "free".

    Every call may be cancelled; what it asked for may then have happened or not, and the backend must be
    usable again. It may even happen later, on its way through a slow network, as long as the lease that a
    late acquire brings runs out by itself. Where all names of a holder hang on one lease or session of the
    store it would not, so there it must not happen after a later call for that name was answered.

    Names are text of 1 to `MAX_NAME_CHARS` characters, any that UTF-8 can carry; no two may meet in the
    store.
    """

    min_ttl_seconds: float
    """The shortest ttl that this store can keep."""

    fenced: bool
    """Whether tokens rise. False only where leases are assigned, not won."""

    local: bool
    """Whether the leases are seen by this host or process alone."""

    async def start(self, ctx: LeaseContext) -> None:
        """Called before any other method; again, after a failure, until it succeeds."""

    async def acquire(self, name: str) -> Lease | Held:
        """Take the lease if nobody has it.

        May be granted only if, in one atomic step: there is no record of it, or it has run out. Must return
        its own live lease, with its token, when this holder has it already (the answer to an earlier try was
        lost), brought to its full ttl. A refusal by the store that shows this very holder is a grant. A
        record that cannot be read, or has no end, counts as held; it may be removed by compare-and-delete
        once it was seen unchanged for a ttl. Must not be granted to a forked copy of the holder.
        """

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        """Bring all of `leases` to their full ttl, in a number of requests that does not grow with them.

        Must compare holder *and* token of each: an answer about the session or connection that carries
        them is not enough. Success with a failure inside (a keep-alive that names no ttl) is a loss.
        """

    async def release(self, name: str, token: int | None = None) -> None:
        """Give the lease back, so that a waiter is woken; may be repeated.

        Must change nothing unless holder and token are those of the record. Without a token: whatever grant
        this holder has, for an acquire whose answer never came.
        """

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        """Return those of `names` that may be free by now, as soon as there is one; none after the time.

        Must return at once for a name that changed since its last refused `acquire` of this process *began*:
        a change between the refusal and this call must not be lost. May return names that are not free.
        """

    async def list(self) -> Sequence[LeaseInfo]:
        """Every lease that somebody has, in any order; expired ones may be left out or shown with nothing
        remaining. Must raise, not return nothing, when the store cannot be read."""

    async def stop(self) -> None:
        """Called last, also when `start` failed. Close what was opened.

        Must not give back leases that were not released: a run of this process that would not end may still
        be at work under them.
        """
