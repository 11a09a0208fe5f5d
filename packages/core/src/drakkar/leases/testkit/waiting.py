"""Checks of waiting for a lease to be free."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from drakkar.leases.testkit.basics import expect
from drakkar.leases.testkit.candidate import Candidate
from drakkar.leases.testkit.harness import WAKE_SECONDS, LeaseCheck, Stage, lease_check

_LONG_SECONDS: Final = 30.0
_SHORT_SECONDS: Final = 0.4
_BEGIN_SECONDS: Final = 0.1


@lease_check
async def check_waiter_wakes_on_release(stage: Stage) -> None:
    """A process that waits for a lease is told soon after it was given back."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        for _ in range(2):
            grant = await holder.acquire(name, "with nobody holding it")
            await other.expect_refused(name, grant.until, "with another process holding it")
            async with _waiting(other, [name]) as waiting:
                await asyncio.sleep(_BEGIN_SECONDS)
                await holder.release(name, grant.lease.token)
                stage.expect_before(grant.until)
                await stage.expect_woken(waiting, name, "after a release")


@lease_check
async def check_no_wake_up_is_lost(stage: Stage) -> None:
    """A process that was refused a lease, which is given back before it waits, is told at once."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        for _ in range(2):
            grant = await holder.acquire(name, "with nobody holding it")
            await other.expect_refused(name, grant.until, "with another process holding it")
            await holder.release(name, grant.lease.token)
            stage.expect_before(grant.until)
            async with _waiting(other, [name]) as waiting:
                await stage.expect_woken(waiting, name, "after a release between the refusal and the wait")


@lease_check
async def check_wake_up_is_told_until_it_is_used(stage: Stage) -> None:
    """A change is told to every wait until the lease was asked for again: the answer to the first wait may
    have been lost."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        await other.expect_refused(name, grant.until, "with another process holding it")
        await holder.release(name, grant.lease.token)
        stage.expect_before(grant.until)
        for _ in range(2):
            async with _waiting(other, [name]) as waiting:
                await stage.expect_woken(waiting, name, "after a release")


@lease_check
async def check_waits_for_many(stage: Stage) -> None:
    """One wait for many leases ends with the first that is given back, whichever it is."""
    names = [stage.name(f"gc-leader-{number}-") for number in range(20)]
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grants = {name: await holder.acquire(name, "with nobody holding it") for name in names}
        until = min(grant.until for grant in grants.values())
        for name in names:
            await other.expect_refused(name, until, "with another process holding it")
        async with _waiting(other, names) as waiting:
            await asyncio.sleep(_BEGIN_SECONDS)
            await holder.release(names[13], grants[names[13]].lease.token)
            stage.expect_before(until)
            await stage.expect_woken(waiting, names[13], "after a release of one among twenty")


@lease_check
async def check_wait_ends_after_its_time(stage: Stage) -> None:
    """A wait ends when its time is over and nothing has changed: not much later, and not before with
    nothing to tell."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        await other.expect_refused(name, grant.until, "with another process holding it")
        began = stage.elapsed()
        async with _waiting(other, [name], _SHORT_SECONDS) as waiting:
            await asyncio.sleep(0)
            ended = await stage.ends_within(_SHORT_SECONDS + WAKE_SECONDS, waiting)
            expect(
                ended, f"expected a wait of {_SHORT_SECONDS:g} s to end, {WAKE_SECONDS:g} s late it had not"
            )
            early = began + 0.9 * _SHORT_SECONDS - stage.elapsed()
            expect(
                early <= 0 or bool(waiting.result()),
                f"expected a wait of {_SHORT_SECONDS:g} s to go on, it ended with nothing {early:g} s before",
            )


@lease_check
async def check_processes_wait_by_themselves(stage: Stage) -> None:
    """Every process that waits for a lease is told, not only one."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-0") as holder, stage.candidates(3) as others:
        grant = await holder.acquire(name, "with nobody holding it")
        for other in others:
            await other.expect_refused(name, grant.until, "with another process holding it")
        async with (
            _waiting(others[0], [name]) as first,
            _waiting(others[1], [name]) as second,
            _waiting(others[2], [name]) as third,
        ):
            await asyncio.sleep(_BEGIN_SECONDS)
            await holder.release(name, grant.lease.token)
            stage.expect_before(grant.until)
            for waiting in (first, second, third):
                await stage.expect_woken(waiting, name, "after a release")


WAITING_CHECKS: Final[tuple[LeaseCheck, ...]] = (
    check_waiter_wakes_on_release,
    check_no_wake_up_is_lost,
    check_wake_up_is_told_until_it_is_used,
    check_waits_for_many,
    check_wait_ends_after_its_time,
    check_processes_wait_by_themselves,
)


@asynccontextmanager
async def _waiting(
    candidate: Candidate, names: list[str], timeout_seconds: float = _LONG_SECONDS
) -> AsyncIterator["asyncio.Task[frozenset[str]]"]:
    task = asyncio.create_task(candidate.wait(names, timeout_seconds))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # so that the loop does not report it a second time
