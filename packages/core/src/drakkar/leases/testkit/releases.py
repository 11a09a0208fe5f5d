"""Checks of giving a lease back."""

from typing import Final

from drakkar.leases.testkit.harness import LeaseCheck, Stage, lease_check


@lease_check
async def check_release_frees_at_once(stage: Stage) -> None:
    """A lease that was given back is granted to the next process that asks."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        await other.expect_refused(name, grant.until, "with another process holding it")
        await holder.release(name, grant.lease.token)
        await other.acquire(name, "after it was given back")


@lease_check
async def check_release_without_token(stage: Stage) -> None:
    """A release without a token gives back whatever grant its process has: it may have lost the answer that
    had the token."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        await holder.acquire(name, "with nobody holding it")
        await holder.release(name)
        await other.acquire(name, "after it was given back without a token")


@lease_check
async def check_release_by_another(stage: Stage) -> None:
    """A release by a process that does not hold the lease changes nothing, with its token or without."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        for token in (None, grant.lease.token):
            await other.release(name, token)
            await other.expect_refused(name, grant.until, "after a release by another process")
        await holder.expect_kept([grant], "after a release by another process")


@lease_check
async def check_release_with_another_token(stage: Stage) -> None:
    """A release of an earlier grant changes nothing for a later one of the same process: it may have been
    long on its way."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        old = await holder.acquire(name, "with nobody holding it")
        await holder.release(name, old.lease.token)
        new = await holder.acquire(name, "after it was given back")
        for token in (old.lease.token, new.lease.token + 1):
            await holder.release(name, token)
            await other.expect_refused(name, new.until, "after a release of another grant")
        await holder.expect_kept([new], "after a release of another grant")


@lease_check
async def check_release_twice(stage: Stage) -> None:
    """A release may be repeated, also when another process has the lease by then, and whoever never had it
    may release it too."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        await holder.release(name)
        grant = await holder.acquire(name, "with nobody holding it")
        await holder.release(name, grant.lease.token)
        await holder.release(name, grant.lease.token)
        await holder.release(name)
        taken = await other.acquire(name, "after it was given back twice")
        await holder.release(name, grant.lease.token)
        await holder.release(name)
        await other.expect_kept([taken], "after its former holder gave it back once more")


RELEASE_CHECKS: Final[tuple[LeaseCheck, ...]] = (
    check_release_frees_at_once,
    check_release_without_token,
    check_release_by_another,
    check_release_with_another_token,
    check_release_twice,
)
