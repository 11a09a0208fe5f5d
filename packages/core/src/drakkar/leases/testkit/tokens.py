"""Checks of the fencing tokens: each grant of a name has a greater one than all before."""

from typing import Final

from drakkar.leases.testkit.basics import expect
from drakkar.leases.testkit.harness import LeaseCheck, Stage, lease_check

_ROUNDS: Final = 10


@lease_check
async def check_tokens_rise_over_release(stage: Stage) -> None:
    """A grant after a release has a greater token than the one before, whoever gets it."""
    name, last = stage.name("gc-leader-"), None
    async with stage.candidate("worker-1") as first, stage.candidate("worker-2") as second:
        for candidate in (first, second, second, first) * _ROUNDS:
            grant = await candidate.acquire(name, "after a release")
            _expect_above(last, grant.lease.token, "after a release")
            last = grant.lease.token
            await candidate.release(name, last)


@lease_check
async def check_tokens_rise_over_expiry(stage: Stage) -> None:
    """A grant of a lease that ran out has a greater token, and that stays so after the next release."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as first, stage.candidate("worker-2") as second:
        grant = await first.acquire(name, "with nobody holding it")
        taken = await second.take_over(name, grant.until, "of a lease that nobody renewed")
        _expect_above(grant.lease.token, taken.lease.token, "after an expiry")
        await second.release(name, taken.lease.token)
        again = await first.acquire(name, "after a release")
        _expect_above(taken.lease.token, again.lease.token, "after an expiry and a release")


@lease_check
async def check_tokens_rise_over_restart(stage: Stage) -> None:
    """A grant has a greater token than all before it when every process has gone, and new ones came."""
    name, last = stage.name("gc-leader-"), None
    for _ in range(3):
        async with stage.candidate("worker-1") as candidate:
            grant = await candidate.acquire(name, "in a new process")
            _expect_above(last, grant.lease.token, "in a new process")
            last = grant.lease.token
            await candidate.release(name)


@lease_check
async def check_restart_is_another_holder(stage: Stage) -> None:
    """A process that starts anew under its old worker name is another holder: it is refused what the old one
    held, and can neither renew nor release it."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as old, stage.candidate("worker-1") as new:
        grant = await old.acquire(name, "with nobody holding it")
        await new.expect_refused(name, grant.until, "by another process of that worker name")
        await new.release(name)
        await new.release(name, grant.lease.token)
        await old.expect_kept([grant], "after another process of that worker name released it")
        await new.expect_refused(name, grant.until, "by another process of that worker name")


TOKEN_CHECKS: Final[tuple[LeaseCheck, ...]] = (
    check_tokens_rise_over_release,
    check_tokens_rise_over_expiry,
    check_tokens_rise_over_restart,
    check_restart_is_another_holder,
)


def _expect_above(last: int | None, token: int, when: str) -> None:
    expect(last is None or token > last, f"{when}: expected a token above {last}, got {token}")
