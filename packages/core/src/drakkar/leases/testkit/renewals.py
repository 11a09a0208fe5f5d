"""Checks of renewing, and of running out when nobody does."""

import asyncio
from dataclasses import replace
from typing import Final

from drakkar.leases.testkit.basics import expect, keys
from drakkar.leases.testkit.candidate import Grant
from drakkar.leases.testkit.harness import LeaseCheck, Stage, lease_check

_MANY: Final = 200
_AT_ONCE: Final = 20


@lease_check
async def check_renew_keeps(stage: Stage) -> None:
    """A lease that is renewed in time is kept, for a whole ttl each time, and refused to others."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        for _ in range(3):
            await stage.advance(0.6 * grant.lease.ttl_seconds)
            [grant] = await holder.expect_kept([grant], "in time")
            await other.expect_refused(name, grant.until, "of a lease that is renewed")
        await stage.advance(0.6 * grant.lease.ttl_seconds)
        await other.expect_refused(name, grant.until, "within a ttl after a renewal")


@lease_check
async def check_renewal_says_for_how_long(stage: Stage) -> None:
    """What a renewal kept it tells with name, holder, token, and the ttl from before the call."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder:
        grant = await holder.acquire(name, "with nobody holding it")
        renewal = await holder.renew(grant.lease)
        if not renewal.kept:
            stage.expect_before(grant.until)
        for lease in renewal.kept:
            told = replace(lease, ttl_seconds=grant.lease.ttl_seconds)
            expect(told == grant.lease, f"expected {grant.lease} to be kept, got {lease}")
            expect(lease.ttl_seconds > 0, f"expected a ttl above 0, got {lease.ttl_seconds!r}")
        expect(len(renewal.kept) == 1, f"expected one lease to be kept, got {len(renewal.kept)}")


@lease_check
async def check_renew_of_nothing(stage: Stage) -> None:
    """A renewal of no lease keeps none and loses none."""
    async with stage.candidate("worker-1") as holder:
        renewal = await holder.renew()
        expect(not renewal.kept and not renewal.lost, f"expected an empty renewal, got {renewal}")


@lease_check
async def check_expiry(stage: Stage) -> None:
    """A lease that nobody renews is refused to others for its ttl, and granted soon after."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        await other.take_over(name, grant.until, "of a lease that nobody renews")


@lease_check
async def check_renewal_puts_expiry_off(stage: Stage) -> None:
    """A lease is free a ttl after its last renewal: not before, and not much later."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        await other.expect_refused(name, grant.until, "with another process holding it")
        await stage.advance(0.5 * grant.lease.ttl_seconds)
        [grant] = await holder.expect_kept([grant], "in time")
        await other.take_over(name, grant.until, "after the last renewal")


@lease_check
async def check_renew_of_a_lost_lease(stage: Stage) -> None:
    """A process whose lease ran out and went to another one is told so, again and again, and changes nothing
    by asking."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        taken = await other.take_over(name, grant.until, "of a lease that nobody renews")
        for _ in range(2):
            await holder.expect_lost(grant.lease, "after another process got it")
        await other.expect_kept([taken], "after its former holder tried to renew it")


@lease_check
async def check_renew_of_a_released_lease(stage: Stage) -> None:
    """A lease that was given back is lost to whoever renews it, and stays free."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        await holder.release(name, grant.lease.token)
        await holder.expect_lost(grant.lease, "after it was given back")
        await other.acquire(name, "after it was given back")


@lease_check
async def check_one_lost_among_many(stage: Stage) -> None:
    """A renewal of many leases of which one is lost keeps the others and tells of the one, where all hang on
    one session of the store too."""
    names = [stage.name(f"gc-leader-{number}-") for number in range(5)]
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grants = [await holder.acquire(name, "with nobody holding it") for name in names]
        gone = grants[2]
        await holder.release(gone.lease.name, gone.lease.token)
        await other.acquire(gone.lease.name, "after it was given back")
        renewal = await holder.renew(*(grant.lease for grant in grants))
        kept = keys(grant.lease for grant in grants if grant is not gone)
        if (keys(renewal.kept), keys(renewal.lost)) != (kept, keys([gone.lease])):
            stage.expect_before(min(grant.until for grant in grants))
            raise AssertionError(
                f"expected to keep four leases and lose {gone.lease}, kept {list(renewal.kept)},"
                f" lost {list(renewal.lost)}"
            )


@lease_check
async def check_renew_compares_the_token(stage: Stage) -> None:
    """An earlier grant of a lease is lost although its holder holds a later one, which stays."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder:
        old = await holder.acquire(name, "with nobody holding it")
        await holder.release(name, old.lease.token)
        new = await holder.acquire(name, "after it was given back")
        await holder.expect_lost(old.lease, "of an earlier grant")
        wrong = replace(new.lease, token=new.lease.token + 1)
        await holder.expect_lost(wrong, "of a grant that was never made")
        await holder.expect_kept([new], "after an earlier grant was renewed")


@lease_check
async def check_renew_compares_the_holder(stage: Stage) -> None:
    """A process that knows name and token of another one's lease cannot renew it."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        await other.expect_refused(name, grant.until, "with another process holding it")
        await stage.advance(0.5 * grant.lease.ttl_seconds)
        forged = replace(grant.lease, holder=other.holder)
        await other.expect_lost(forged, "by another process")
        await other.take_over(name, grant.until, "after another process tried to renew it")


@lease_check
async def check_renew_many(stage: Stage) -> None:
    """Two hundred leases are renewed by one call."""
    names = [stage.name(f"gc-leader-{number}-") for number in range(_MANY)]
    async with stage.candidate("worker-1") as holder:
        grants: list[Grant] = []
        for number in range(0, _MANY, _AT_ONCE):
            part = names[number : number + _AT_ONCE]
            grants += await asyncio.gather(*(holder.acquire(name, "with nobody holding it") for name in part))
            grants = await holder.expect_kept(grants, "of all so far")


RENEWAL_CHECKS: Final[tuple[LeaseCheck, ...]] = (
    check_renew_keeps,
    check_renewal_says_for_how_long,
    check_renew_of_nothing,
    check_expiry,
    check_renewal_puts_expiry_off,
    check_renew_of_a_lost_lease,
    check_renew_of_a_released_lease,
    check_one_lost_among_many,
    check_renew_compares_the_token,
    check_renew_compares_the_holder,
    check_renew_many,
)
