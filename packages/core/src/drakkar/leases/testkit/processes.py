"""Checks of the listing, of calls that are cut short, and of how a backend begins and ends."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from drakkar.leases.backend import LeaseInfo
from drakkar.leases.testkit.basics import expect, failure_of, is_number
from drakkar.leases.testkit.candidate import Candidate
from drakkar.leases.testkit.harness import LeaseCheck, Stage, lease_check, stop

TOLERANCE_SECONDS: Final = 2.0
"""How far an age or a remaining time in a listing may be off."""

_TURNS: Final = (0, 1, 2, 3, 5, 10, 50)
"""After how many turns of the event loop a call is cancelled."""
_SETTLE_SECONDS: Final = 0.1
_END_SECONDS: Final = 5.0


@lease_check
async def check_list_shows_holders(stage: Stage) -> None:
    """Every process lists each lease that is held, once, with holder, token and times that can be true; None
    for what the store cannot tell. A lease that was given back is nobody's."""
    names = [stage.name("gc-leader-"), stage.name("lifecycle-leader-")]
    async with stage.candidates(3) as (first, second, third):
        began = stage.elapsed()
        held = [
            (first, await first.acquire(names[0], "with nobody holding it")),
            (second, await second.acquire(names[1], "with nobody holding it")),
        ]
        for reader in (first, second, third):
            rows = [row for row in await reader.list() if row.name in names]
            for holder, grant in held:
                found = [row for row in rows if row.name == grant.lease.name]
                if not found:
                    stage.expect_before(grant.until)
                expect(len(found) == 1, f"expected one row of {grant.lease.name!r}, got {len(found)}")
                _expect_row(found[0], holder, grant.lease.token, stage.elapsed() - began, stage)
        await first.release(names[0], held[0][1].lease.token)
        rows = [row for row in await third.list() if row.name == names[0] and row.holder == first.holder]
        expect(not rows, f"expected no holder of a lease that was given back, got {rows}")


@lease_check
async def check_cancelled_acquire(stage: Stage) -> None:
    """After an acquire was cancelled, whenever that was, the same process gets the lease by asking again,
    and can give it back."""
    name, last = stage.name("gc-leader-"), 0
    async with stage.candidate("worker-1") as first, stage.candidate("worker-2") as second:
        for turns in _TURNS:
            await _cancelled(first.backend.acquire(name), turns)
            await asyncio.sleep(_SETTLE_SECONDS)  # what still runs somewhere would land now
            for candidate in (first, second):
                grant = await candidate.acquire(name, "after a cancelled acquire")
                expect(grant.lease.token > last, f"expected a token above {last}, got {grant.lease.token}")
                last = grant.lease.token
                await candidate.release(name, last)


@lease_check
async def check_cancelled_renew(stage: Stage) -> None:
    """After a renewal was cancelled the lease is still held, and can be renewed."""
    names = [stage.name(f"gc-leader-{number}-") for number in range(3)]
    async with stage.candidate("worker-1") as holder:
        grants = [await holder.acquire(name, "with nobody holding it") for name in names]
        for turns in _TURNS:
            await _cancelled(holder.backend.renew([grant.lease for grant in grants]), turns)
            grants = await holder.expect_kept(grants, "after a cancelled renewal")


@lease_check
async def check_cancelled_release(stage: Stage) -> None:
    """After a release was cancelled it can be repeated, and the lease is free then."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as first, stage.candidate("worker-2") as second:
        for turns in _TURNS:
            grant = await first.acquire(name, "with nobody holding it")
            await _cancelled(first.backend.release(name, grant.lease.token), turns)
            await first.release(name, grant.lease.token)
            taken = await second.acquire(name, "after a cancelled release was repeated")
            await second.release(name, taken.lease.token)


@lease_check
async def check_cancelled_wait(stage: Stage) -> None:
    """After a wait was cancelled the next one is told of what changed meanwhile."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as first, stage.candidate("worker-2") as second:
        for turns in _TURNS:
            grant = await first.acquire(name, "with nobody holding it")
            await second.expect_refused(name, grant.until, "with another process holding it")
            await _cancelled(second.backend.wait([name], 30.0), turns)
            await first.release(name, grant.lease.token)
            stage.expect_before(grant.until)
            waiting = asyncio.create_task(second.wait([name], 30.0))
            try:
                await stage.expect_woken(waiting, name, "after a cancelled wait")
            finally:
                waiting.cancel()
                await asyncio.wait({waiting})


@lease_check
async def check_cancelled_list(stage: Stage) -> None:
    """After a listing was cancelled the next one is complete."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-1") as holder:
        for turns in _TURNS:
            grant = await holder.acquire(name, "with nobody else holding it")
            await _cancelled(holder.backend.list(), turns)
            if name not in {row.name for row in await holder.list()}:
                stage.expect_before(grant.until)
                raise AssertionError(f"expected {name!r} to be listed after a cancelled listing")


@lease_check
async def check_stop_gives_nothing_back(stage: Stage) -> None:
    """A lease that was not released is refused to others after its holder's backend was stopped: work may
    still be going on under it."""
    name = stage.name("gc-leader-")
    async with stage.candidate("worker-2") as other:
        async with stage.candidate("worker-1") as holder:
            grant = await holder.acquire(name, "with nobody holding it")
        await other.expect_refused(name, grant.until, "after its holder's backend was stopped")
        await other.take_over(name, grant.until, "after its holder's backend was stopped")


@lease_check
async def check_stop_at_any_time(stage: Stage) -> None:
    """A backend may be stopped without a start, as after one that failed, and twice."""
    backend = stage.unstarted()
    await stop(backend)
    async with stage.candidate("worker-1") as candidate:
        await stop(candidate.backend)


@lease_check
async def check_attributes(stage: Stage) -> None:
    """A backend tells, before it is started, the shortest ttl that it can keep, whether its tokens rise, and
    whether its leases are seen here alone."""
    backend = stage.unstarted()
    with contextlib.ExitStack() as stack:
        stack.enter_context(failure_of("reading min_ttl_seconds, fenced and local"))
        shortest, flags = backend.min_ttl_seconds, (backend.fenced, backend.local)
    expect(is_number(shortest), f"expected min_ttl_seconds to be a number, got {shortest!r}")
    expect(0 <= shortest <= stage.ttl_seconds, f"expected a ttl of {shortest:g} s at least to check with")
    for flag in flags:
        expect(isinstance(flag, bool), f"expected fenced and local to be True or False, got {flag!r}")


PROCESS_CHECKS: Final[tuple[LeaseCheck, ...]] = (
    check_list_shows_holders,
    check_cancelled_acquire,
    check_cancelled_renew,
    check_cancelled_release,
    check_cancelled_wait,
    check_cancelled_list,
    check_stop_gives_nothing_back,
    check_stop_at_any_time,
    check_attributes,
)


def _expect_row(row: LeaseInfo, holder: Candidate, token: int, age_seconds: float, stage: Stage) -> None:
    expect(row.holder == holder.holder, f"expected {holder.holder} as the holder, got {row.holder!r}")
    expect(row.token in (None, token), f"expected the token {token} or None, got {row.token!r}")
    _expect_seconds(row.age_seconds, age_seconds, "age_seconds")
    _expect_seconds(row.remaining_seconds, stage.ttl_seconds + stage.late_seconds, "remaining_seconds")


def _expect_seconds(value: float | None, most_seconds: float, field: str) -> None:
    sound = value is None or (is_number(value) and 0 <= value <= most_seconds + TOLERANCE_SECONDS)
    expect(sound, f"expected {field} to be None or within {most_seconds:g} s, got {value!r}")


async def _cancelled(call: Coroutine[Any, Any, object], turns: int) -> None:
    """Cancel `call` after `turns` of the event loop, and wait for its end, whichever that is."""
    task = asyncio.create_task(call)
    try:
        for _ in range(turns):
            await asyncio.sleep(0)
    finally:
        task.cancel()
    _, running = await asyncio.wait({task}, timeout=_END_SECONDS)
    expect(not running, f"expected a cancelled call to end, it still ran {_END_SECONDS:g} s later")
    if not task.cancelled():
        task.exception()  # a call that was too quick to be cancelled, or failed on its way out: both allowed
