"""Checks of who gets a lease, and for how long."""

import asyncio
from typing import Final

from drakkar.leases.backend import MAX_NAME_CHARS, Held
from drakkar.leases.testkit.basics import expect, keys
from drakkar.leases.testkit.candidate import Candidate, Grant
from drakkar.leases.testkit.harness import LeaseCheck, Stage, lease_check

_MANY: Final = 50
_TAKERS: Final = 10


@lease_check
async def check_one_holder_at_a_time(stage: Stage) -> None:
    """A lease that one process holds is refused to every other one, however often it asks."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as first, stage.candidate("worker-2") as second:
        grant = await first.acquire(name, "with nobody holding it")
        for _ in range(3):
            refusal = await second.expect_refused(name, grant.until, "with another process holding it")
            expect(
                refusal.holder in (None, first.holder, first.worker),
                f"expected the refusal to name {first.holder} or nobody, got {refusal.holder!r}",
            )
        await first.expect_kept([grant], "after others had asked for it")


@lease_check
async def check_fifty_contenders_one_winner(stage: Stage) -> None:
    """Of fifty processes that ask at the same moment, one is granted the lease."""
    name = stage.name("gc-leader-")
    async with stage.candidates(_MANY) as all_:
        for when in ("of a new lease", "of a lease that was given back"):
            winner, grant = await _race(all_, name, when)
            await winner.expect_kept([grant], f"after winning a race {when}")
            await winner.release(name, grant.lease.token)


@lease_check
async def check_contenders_for_an_expired_lease(stage: Stage) -> None:
    """Of ten processes that watched a lease run out, one is granted it."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-0") as holder, stage.candidates(_TAKERS) as takers:
        grant = await holder.acquire(name, "with nobody holding it")
        while True:
            answers = await asyncio.gather(*(taker.ask(name) for taker in takers))
            granted = [answer for answer in answers if isinstance(answer, Grant)]
            late = stage.elapsed() - grant.until
            if granted:
                break
            expect(late < stage.late_seconds, f"expected one grant, all were refused {late:g} s late")
            await stage.advance(min(0.25 * stage.ttl_seconds, max(-late, 0.05)))
        expect(len(granted) == 1, f"expected one grant of an expired lease, got {len(granted)}")
        expect(late >= 0, f"expected a refusal for {-late:g} s more, got a grant")


@lease_check
async def check_acquire_again(stage: Stage) -> None:
    """A process that asks for a lease which it holds gets the same grant, with the same token, also when it
    asks twice at once: the answer to its first try may have been lost."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        for _ in range(2):
            again = await asyncio.gather(*(holder.acquire(name, "by its holder") for _ in range(2)))
            for each in again:
                _expect_same(each, grant, stage)
        await other.expect_refused(name, grant.until, "after its holder asked again")
        await holder.expect_kept([grant], "after its holder asked again")


@lease_check
async def check_acquire_again_has_its_full_ttl(stage: Stage) -> None:
    """A process that asks again for a lease which it holds may count on it for a whole ttl from then."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grant = await holder.acquire(name, "with nobody holding it")
        await stage.advance(0.6 * grant.lease.ttl_seconds)
        again = await holder.acquire(name, "by its holder")
        _expect_same(again, grant, stage)
        expect(
            again.lease.ttl_seconds >= 0.9 * grant.lease.ttl_seconds,
            f"expected a ttl of {grant.lease.ttl_seconds:g} s again, got {again.lease.ttl_seconds:g}",
        )
        await stage.advance(0.6 * grant.lease.ttl_seconds)
        await other.expect_refused(name, again.until, "within a ttl after its holder asked again")


@lease_check
async def check_second_lease_has_its_full_ttl(stage: Stage) -> None:
    """A lease granted to a process that has held another one for a while lasts a whole ttl, also where all
    leases of a process hang on one session of the store."""
    names = [stage.name("gc-leader-"), stage.name("lifecycle-leader-")]
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        first = await holder.acquire(names[0], "with nobody holding it")
        await stage.advance(0.6 * first.lease.ttl_seconds)
        second = await holder.acquire(names[1], "with nobody holding it")
        expect(
            second.lease.ttl_seconds >= 0.9 * first.lease.ttl_seconds,
            f"expected a ttl of {first.lease.ttl_seconds:g} s, got {second.lease.ttl_seconds:g}",
        )
        await stage.advance(0.6 * first.lease.ttl_seconds)
        await other.expect_refused(names[1], second.until, "within a ttl after the grant")


@lease_check
async def check_many_leases_of_one_process(stage: Stage) -> None:
    """A process can ask for twenty leases at once, and keeps all that it was granted."""
    names = [stage.name(f"gc-leader-{number}-") for number in range(20)]
    async with stage.candidate("worker-1") as holder:
        grants = await asyncio.gather(*(holder.acquire(name, "with nobody holding it") for name in names))
        await holder.expect_kept(grants, "after asking for twenty at once")


@lease_check
async def check_names_do_not_meet(stage: Stage) -> None:
    """Names are kept apart, however much they look alike and whatever is in them."""
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grants = await _acquire_all(stage, holder)
        for grant in grants:
            name = grant.lease.name
            await other.expect_refused(name, min(each.until for each in grants), f"of {name!r}")
            grants = await holder.expect_kept(grants, "of names that look alike")


@lease_check
async def check_release_of_one_name(stage: Stage) -> None:
    """A release frees that name alone, and none that looks like it."""
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grants = await _acquire_all(stage, holder)
        for grant in grants[::2]:
            await holder.release(grant.lease.name, grant.lease.token)
            grants = [each for each in grants if each.lease != grant.lease]
            await other.acquire(grant.lease.name, f"of {grant.lease.name!r}, which was given back")
            grants = await holder.expect_kept(grants, f"after a release of {grant.lease.name!r}")


@lease_check
async def check_listing_has_names_as_they_are(stage: Stage) -> None:
    """The listing of any process has the name of every lease that is held, exactly."""
    async with stage.candidate("worker-1") as holder, stage.candidate("worker-2") as other:
        grants = await _acquire_all(stage, holder)
        listed = {row.name for row in await other.list()}
        missing = [grant.lease.name for grant in grants if grant.lease.name not in listed]
        if missing:
            stage.expect_before(min(grant.until for grant in grants))
            raise AssertionError(f"expected the listing to have all names, it lacks {missing}")


GRANT_CHECKS: Final[tuple[LeaseCheck, ...]] = (
    check_one_holder_at_a_time,
    check_fifty_contenders_one_winner,
    check_contenders_for_an_expired_lease,
    check_acquire_again,
    check_acquire_again_has_its_full_ttl,
    check_second_lease_has_its_full_ttl,
    check_many_leases_of_one_process,
    check_names_do_not_meet,
    check_release_of_one_name,
    check_listing_has_names_as_they_are,
)

_BEGINNINGS: Final = (
    *("a", "A", "/a", "../", "./a", "-a", "~a", "a/b", "a//b", "a%2Fb", "a b", "a\nb", "a\x00b"),
    *("a*", "a[1]", "a{1}", "a:b", "a\\b", "a?b#c", "\u00e9", "e\u0301", "\u6f22\U0001f680" * 60),
    *("x" * (MAX_NAME_CHARS - 8), "x" * (MAX_NAME_CHARS - 9)),
)
_ENDINGS: Final = ("", "/", "/.", "/..", ".", " ", "\n", "%", "/b", "/b/")
"""Between the two come eight characters, the same for all of one run."""


async def _race(candidates: list[Candidate], name: str, when: str) -> tuple[Candidate, Grant]:
    answers = await asyncio.gather(*(candidate.ask(name) for candidate in candidates))
    won = [
        (who, answer) for who, answer in zip(candidates, answers, strict=True) if isinstance(answer, Grant)
    ]
    expect(len(won) == 1, f"expected one winner of a race {when}, got {len(won)}")
    refused = sum(isinstance(answer, Held) for answer in answers)
    expect(refused == len(candidates) - 1, f"expected all others to be refused {when}, {refused} were")
    return won[0]


async def _acquire_all(stage: Stage, holder: Candidate) -> list[Grant]:
    grants: list[Grant] = []
    for name in [stage.name(begin) for begin in _BEGINNINGS] + [stage.name("", end) for end in _ENDINGS]:
        grants.append(await holder.acquire(name, f"of {name!r} with nobody holding it"))
        grants = await holder.expect_kept(grants, f"together with {name!r}")
    return grants


def _expect_same(again: Grant, grant: Grant, stage: Stage) -> None:
    if keys([again.lease]) != keys([grant.lease]):
        stage.expect_before(grant.until)
        raise AssertionError(f"expected the grant {grant.lease} once more, got {again.lease}")
