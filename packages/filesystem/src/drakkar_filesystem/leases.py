"""The lease backend `filesystem`: one folder per lease in `<dir>/leases`, one file per grant.

Not guaranteed: that a lease whose holder died on another host is free after its ttl; a contender has to have
watched it for that long itself. Nor that whoever can write the folder does no harm: a record that somebody
deletes or overwrites is free, or may be taken, before its holder notices at its next renewal.

This is the side on the event loop: threads, time limits and waiting. What touches the disk is in
`_candidate` and `_lookout`, each on a thread of its own.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, Final, TypeVar

from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal

from drakkar_filesystem._candidate import Candidate
from drakkar_filesystem._client import FileThread, Proceed
from drakkar_filesystem._folder import LEASES, Folder
from drakkar_filesystem._holders import Holders, read_boot_id
from drakkar_filesystem._lease_record import MAX_TTL_SECONDS
from drakkar_filesystem._lookout import Lookout
from drakkar_filesystem._notices import Notices
from drakkar_filesystem._watches import Watches
from drakkar_filesystem.registry import elapsed_seconds
from drakkar_filesystem.settings import read_lease_settings

T = TypeVar("T")

POLL_SECONDS: Final = 0.2
"""How often the leases that are waited for are looked at, at most."""

TOLD_POLL_SECONDS: Final = 0.5
"""The same where the kernel tells of changes; of the death of a holder it does not."""

LOG_EVERY_SECONDS: Final = 60.0

_POLL_SHARE: Final = 20
"""Looking takes no more than this part of the time, however many leases are waited for."""


class FilesystemLeases:
    """Keeps leases as files. See `drakkar.leases.backend.LeaseBackend` for what each method promises.

    A call that the folder does not answer within nine tenths of the keeper's time limit raises
    `TimeoutError`. It may stay behind on the thread; then later calls wait for it, each within its limit.
    """

    min_ttl_seconds = 2.0
    fenced = True

    def __init__(self, options: Mapping[str, Any], *, clock: Callable[[], float] = elapsed_seconds) -> None:
        """`clock` returns elapsed seconds. Raises `ValueError`, one line, when the options do not hold."""
        self._settings = read_lease_settings(options)
        self.local = self._settings.local
        self._clock = clock
        self._renewing = FileThread("drakkar-filesystem-leases")
        self._looking = FileThread("drakkar-filesystem-lookout")
        self._turn = asyncio.Lock()  # many acquires and releases do not stand in line before a renewal
        self._notices = Notices()
        self._limit_seconds = 0.0
        self._quiet_until = float("-inf")
        self._ctx: LeaseContext | None = None
        self._pid = 0
        self._candidate: Candidate
        self._holders: Holders
        self._lookout: Lookout

    async def start(self, ctx: LeaseContext) -> None:
        """Make the folder, show that it can do what leases need, and lock a file by which others on this host
        notice the death of this process.

        Raises `OSError` when that fails, and `ValueError` for a ttl that is too long; may be called again.
        """
        if ctx.ttl_seconds > MAX_TTL_SECONDS:
            raise ValueError(
                f"a lease in a folder lasts at most {MAX_TTL_SECONDS:g} s, not {ctx.ttl_seconds:g}"
            )
        if self._ctx is None:
            self._make_parts(ctx)
            self._renewing.start()
            self._looking.start()
        await self._call(self._renewing, self._candidate.prepare)
        try:
            await self._call(self._looking, self._lookout.prepare)
        except (ImportError, OSError, RuntimeError) as error:
            ctx.logger.info("lease_notices_unavailable", error=str(error), poll_seconds=POLL_SECONDS)
        self._notices.listen()

    def _make_parts(self, ctx: LeaseContext) -> None:
        self._ctx = ctx
        self._pid = os.getpid()
        self._limit_seconds = 0.9 * ctx.timeout_seconds
        self._holders = Holders(ctx.instance, self._settings.boot_id or read_boot_id())
        watches = Watches(ctx.ttl_seconds)
        self._candidate = Candidate(
            Folder(self._settings.dir, LEASES),
            self._holders,
            watches,
            holder=ctx.holder,
            instance=ctx.instance,
            ttl_seconds=ctx.ttl_seconds,
            clock=self._clock,
        )
        self._lookout = Lookout(
            Folder(self._settings.dir, LEASES),
            self._candidate,
            self._holders,
            watches,
            self._notices,
            self._clock,
        )

    async def acquire(self, name: str) -> Lease | Held:
        """Take the lease when it was given back, when its holder is known to be dead, or when this backend
        has seen it stand still for the holder's ttl; `Held.retry_after_seconds` is what is left of that.

        Cancelling may or may not have taken effect: then the next `acquire` returns the grant, or it was
        given back.
        """
        asked_at = self._clock()
        answer = await self._call(
            self._renewing, lambda proceed: self._candidate.acquire(name, asked_at, proceed), self._turn
        )
        if isinstance(answer, Held):
            self._notices.dirty.add(name)
        return answer

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        """Renew all in one hop to the thread. What takes too long is cut off: what was renewed by then is
        kept, the rest is unknown and comes first the next time.

        Raises `OSError` when nothing could be renewed.
        """
        asked = list(leases)
        asked_at = self._clock()
        give_up_at = asked_at + 0.8 * self._limit_seconds
        outcome = await self._call(
            self._renewing, lambda proceed: self._candidate.renew(asked, asked_at, give_up_at, proceed)
        )
        if outcome.failed:
            lease, error = outcome.failed[0]
            if not outcome.kept and not outcome.lost:
                raise error
            if asked_at >= self._quiet_until:
                self._quiet_until = asked_at + LOG_EVERY_SECONDS
                failed = len(outcome.failed)
                logger = self._context().logger
                logger.warning("lease_file_failed", name=lease.name, error=str(error), leases=failed)
        return Renewal(outcome.kept, outcome.lost)

    async def release(self, name: str, token: int | None = None) -> None:
        """Mark the grant as given back; may be repeated. Raises `OSError` when that cannot be done."""
        await self._call(
            self._renewing, lambda proceed: self._candidate.release(name, token, proceed), self._turn
        )

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        """Look at the leases when the kernel tells of a change, and a few times a second in any case: of what
        other hosts do it tells nothing.

        Raises `OSError` when the folder cannot be looked at. Cancelling leaves no change.
        """
        self._context()
        wanted = frozenset(names)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        await self._call(self._looking, lambda _: self._notices.unwatch_all_but(wanted))
        while True:
            self._notices.changed.clear()
            began = loop.time()
            free = await self._call(self._looking, lambda proceed: self._lookout.free_among(wanted, proceed))
            now = loop.time()
            if free or now >= until:
                return free
            poll = POLL_SECONDS if self._lookout.blind else TOLD_POLL_SECONDS
            pause = min(until - now, max(poll, _POLL_SHARE * (now - began)))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._notices.changed.wait()

    async def list(self) -> Sequence[LeaseInfo]:
        """Every lease that somebody has. The age is known for our own alone; what remains of others' is what
        is left until this backend has seen them stand still for a ttl.

        Raises `OSError` when the folder is missing or cannot be read.
        """
        return await self._call(self._looking, self._lookout.rows)

    async def stop(self) -> None:
        """Let the threads go without waiting for them; leases that were not given back stay until the process
        ends, or run out. May be called twice, and without `start`."""
        if os.getpid() != self._pid:
            return  # there are no threads, or they are the parent's
        await self._notices.stop()
        try:
            with suppress(OSError, RuntimeError):  # then its file stays behind, which costs nothing
                await self._call(self._renewing, self._candidate.leave)
            self._holders.keep()
        finally:
            self._renewing.close()
            self._looking.close()

    def _context(self) -> LeaseContext:
        if self._ctx is None:
            raise RuntimeError("the lease backend has not started")
        if os.getpid() != self._pid:
            raise RuntimeError("a forked copy of a process has none of its leases")
        return self._ctx

    async def _call(
        self,
        thread: FileThread,
        work: Callable[[Proceed], T],
        turn: AbstractAsyncContextManager[object] = nullcontext(),  # noqa: B008  it has no state
    ) -> T:
        self._context()
        limit = asyncio.timeout(self._limit_seconds)
        try:
            async with limit, turn:
                return await thread.run(work)
        except TimeoutError:
            if not limit.expired():  # the file system's own ETIMEDOUT
                raise
        raise TimeoutError(f"{self._settings.dir / LEASES} did not answer within {self._limit_seconds:g} s")
