"""The contract of a background worker: a job that runs in one process of the fleet at a time.

Not guaranteed: that a job runs exactly once, or that it runs alone without looking. Between losing a lease
and noticing it lies up to a renewal period; a process that was frozen wakes in the middle of a statement.
What is guaranteed: within one process there is never a second run of one name before the first has ended;
a run whose lease is lost is cancelled; and `ctx.lease.check()` raises from the moment on at which another
process may have been given the lease because ours had run out. A job that must not do harm twice checks
before each side effect and passes `ctx.lease.token` along with each write.

What becomes of a run:

- It returns, or raises anything (`SystemExit` and exception groups too): it is started again on the
  schedule of `drakkar.supervisor.backoff`, the lease given back before the wait, so that another process can
  do the work meanwhile. Only raising counts as a crash.
- Its lease is lost: it is cancelled, and wanted again at once. That is no crash.
- The process stops: it is cancelled, and the lease is given back when it has ended.
- It is asked to yield (an operator's step-down, a shard for a peer that has fewer): it returns at its next
  good point, or is cancelled after `supervisor.stop_timeout_seconds`. That is no crash.
- It does not end within `supervisor.stop_timeout_seconds` after its cancellation: it is named in the log, and
  its lease is left to run out. This process does not start the job again until the old run has ended. It
  is not cancelled a second time, which would break into a clean-up that waits for a thread.

Contained is what raises in `build`, in `run` and in tasks of `ctx.create_task`. Nobody can contain a thread,
a child process, a bare `asyncio.create_task` or a blocked event loop: these are the job's own to end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from drakkar.fleet.provider import EventLogger

MAX_NAME_CHARS: Final = 150
"""Of a background worker; leaves room for the shard in a lease name of at most 200."""


def check_name(name: object) -> None:
    """Raise `ValueError` unless `name` can be a background worker's: printable text without commas, which
    separate names, and without space around it.

    `-leader` ends the name in the lease's name, and must not do so twice: two jobs would share a lease.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
        raise ValueError(f"a background worker's name has 1 to {MAX_NAME_CHARS} characters: {name!r:.60}")
    if not name.isprintable() or "," in name or name != name.strip() or "-leader-" in f"{name}-":
        raise ValueError(
            f"{name!r} cannot be a background worker's name: it must be printable, without commas, without"
            " space around it and without -leader"
        )


class LeaseHandle(Protocol):
    """The lease of a run; may be used from any thread."""

    @property
    def name(self) -> str: ...

    @property
    def token(self) -> int:
        """The fencing token; greater than that of every earlier run under this name."""

    @property
    def lost(self) -> bool:
        """Whether the run must not act any more; true for good once it is true."""

    def check(self) -> None:
        """Raise `drakkar.errors.LeaseLost` unless the lease is held at this moment."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """What one run gets."""

    worker: str
    """The name of the background worker."""

    lease: LeaseHandle | None
    """None for a background worker with `skip_lease`."""

    logger: EventLogger
    yielding: asyncio.Event
    """Set when the run is asked to return at the next good point, so that another process can go on. A run
    that does not is cancelled after `supervisor.stop_timeout_seconds`."""

    create_task: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    """Start a task that ends with the run: cancelled when the run ends or is cancelled, and awaited before
    the lease goes. Its crash is the run's; who awaits the task sees a cancellation then."""


class Runner(Protocol):
    """One run of a job."""

    async def run(self, ctx: RunContext) -> None:
        """Work until there is nothing more to do, or until cancelled.

        Must leave things so that another process can take over when it ends, however it ends. May take
        `supervisor.stop_timeout_seconds` to clean up after a cancellation, and must then have really ended,
        threads and child processes included: awaiting the call that started a thread is not enough, since a
        cancelled await returns while the thread goes on. Must not block the event loop.
        """


class SharedCache(Protocol):
    """The cache of the worker; `drakkar.cache.cache.Cache` says what each does. For the event loop alone."""

    def set(
        self,
        key: str,
        value: Any,
        ttl: float | None = None,
        scope: Literal["memory", "local", "cluster", "global"] = "local",
    ) -> None: ...

    async def get(self, key: str) -> Any: ...
    def peek(self, key: str) -> Any: ...
    def delete(self, key: str) -> None: ...
    def __contains__(self, key: object) -> bool: ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What `build` gets. New fields always have defaults."""

    logger: EventLogger
    settings: Any
    """The `drakkar.settings.Settings` of this worker."""

    leases: Any
    """The `drakkar.leases.keeper.LeaseKeeper`, for a job that keeps leases of its own."""

    peers: Callable[[], Sequence[Any]] = tuple
    """The other workers of the fleet, as `drakkar.worker.Worker.peers` gives them; empty without a
    registry."""

    emit_leader: Callable[[str, bool], None] = lambda _name, _leading: None
    """For a background worker with `skip_lease` that keeps leases of its own: tell when it began to lead
    under a name (True) and when it ceased to. To be called in the event loop; when the run ends, whatever it
    said to lead counts as ceased."""

    cache: SharedCache | None = None
    """None with `cache.enabled: false`, which is the default."""


Build = Callable[[Dependencies], Runner]


@dataclass(frozen=True, slots=True)
class BackgroundWorker:
    """A job and how to make it. `build` is called for every run, and reads what it needs from the
    environment itself; what it raises is the run's crash. The lease is called `<name>-leader`.

    Raises `ValueError` for what `check_name` refuses."""

    name: str
    build: Build
    skip_lease: bool = False
    """Run in every process, without a lease."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if not callable(self.build):
            raise ValueError(f"{self.name}: build must be a function that makes a runner")
