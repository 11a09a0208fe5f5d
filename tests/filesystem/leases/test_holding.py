"""Who has a lease, and for how long, by the clocks of the contenders alone."""

import json
import os

import pytest
from drakkar.leases.backend import Lease, Renewal
from support.folders import Elapsed
from support.lease_folders import NAME, TTL, LeaseFolder, granted, refused, rows_of


async def test_a_free_lease_is_granted_with_a_token_and_refused_to_others(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")

    lease = await granted(first)
    refusal = await refused(second)

    assert lease == Lease(NAME, "worker-1/worker-1-1", lease.token, TTL)
    assert lease.token > 10**12  # milliseconds
    assert (refusal.holder, refusal.retry_after_seconds) == ("worker-1/worker-1-1", TTL)


async def test_a_grant_is_on_the_disk_before_it_is_told(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that loses its power forgets no token that somebody has acted under."""
    backend = await fleet.start()
    first = await granted(backend)
    await backend.release(NAME, first.token)
    flushed, fsync = set[int](), os.fsync

    def noting(file: int) -> None:
        fsync(file)
        flushed.add(os.fstat(file).st_ino)

    monkeypatch.setattr(os, "fsync", noting)
    second = await granted(backend)

    assert second.token > first.token
    assert flushed == {fleet.newest().stat().st_ino, fleet.place().stat().st_ino}


async def test_a_contender_takes_over_after_it_has_seen_a_record_stand_still_for_the_ttl_and_not_before(
    fleet: LeaseFolder,
) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    fleet.clock.now += 8 * TTL  # nobody has looked yet
    assert (await refused(second)).retry_after_seconds == TTL

    fleet.clock.now += TTL - 1
    assert (await refused(second)).retry_after_seconds == 1
    fleet.clock.now += 1
    taken = await granted(second)

    assert taken.token == lease.token + 1
    assert await first.renew([lease]) == Renewal(kept=[], lost=[lease])


async def test_a_renewal_that_a_contender_sees_makes_it_begin_anew(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    await refused(second)

    for _ in range(5):
        fleet.clock.now += 0.85 * TTL
        assert await first.renew([lease]) == Renewal(kept=[lease], lost=[])
        assert (await refused(second)).retry_after_seconds == TTL


async def test_a_renewal_is_seen_where_times_of_files_are_coarse(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    os.utime(fleet.newest(), (0, 0))
    await refused(second)

    fleet.clock.now += 0.6 * TTL
    await first.renew([lease])
    os.utime(fleet.newest(), (0, 0))
    fleet.clock.now += 0.6 * TTL

    assert (await refused(second)).retry_after_seconds == TTL


@pytest.mark.parametrize(("theirs", "ours"), [(30.0, 5.0), (5.0, 30.0)])
async def test_it_is_the_ttl_of_the_holder_that_counts(
    fleet: LeaseFolder, theirs: float, ours: float
) -> None:
    first = await fleet.start("worker-1", ttl_seconds=theirs)
    second = await fleet.start("worker-2", ttl_seconds=ours)
    await granted(first)
    assert (await refused(second)).retry_after_seconds == theirs

    fleet.clock.now += theirs - 0.5
    await refused(second)
    fleet.clock.now += 0.5

    assert (await granted(second)).ttl_seconds == ours


async def test_the_clocks_of_two_processes_have_nothing_to_do_with_each_other(fleet: LeaseFolder) -> None:
    theirs, ours = Elapsed(), Elapsed()
    theirs.now, ours.now = 9e9, 3.0
    first, second = await fleet.start("worker-1", clock=theirs), await fleet.start("worker-2", clock=ours)
    lease = await granted(first)
    await refused(second)

    theirs.now += 0.5 * TTL
    ours.now += 0.9 * TTL
    await refused(second)
    await first.renew([lease])
    ours.now += 0.2 * TTL
    assert (await refused(second)).retry_after_seconds == TTL
    ours.now += TTL

    await granted(second)


class Slow(Elapsed):
    """A clock that goes on by a step whenever it is read."""

    step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


async def test_the_time_that_a_look_takes_is_not_counted(fleet: LeaseFolder) -> None:
    clock = Slow()
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2", clock=clock)
    await granted(first)
    began = clock.now
    clock.step = 1

    await refused(second)  # asked at 1, looked from 2 to 3
    clock.now = began + TTL - 1

    assert (await refused(second)).retry_after_seconds == 2  # looked from TTL + 1 on


async def test_a_slow_look_proves_no_more_than_a_quick_one(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read near the start of a look says nothing of its end."""
    clock = Elapsed()
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2", clock=clock)
    await granted(first)
    pread = os.pread

    def slow(file: int, length: int, offset: int) -> bytes:
        data = pread(file, length, offset)
        clock.now += 2
        return data

    monkeypatch.setattr(os, "pread", slow)
    began = clock.now
    await refused(second)
    assert clock.now > began
    clock.now += TTL - 1

    assert (await refused(second)).retry_after_seconds == 1


async def test_its_own_live_lease_comes_back_with_the_same_token_and_its_full_time(
    fleet: LeaseFolder,
) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    await refused(second)
    fleet.clock.now += 0.8 * TTL

    assert await granted(first) == lease

    assert (await refused(second)).retry_after_seconds == TTL
    fleet.clock.now += 0.8 * TTL
    assert (await first.renew([lease])).kept == [lease]


async def test_its_own_lease_that_is_over_comes_back_with_a_new_token(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    lease = await granted(first)

    fleet.clock.now += 0.9 * TTL

    assert (await granted(first)).token == lease.token + 1
    assert await first.renew([lease]) == Renewal(kept=[], lost=[lease])


class Leaping(Elapsed):
    """A clock that leaps at its n-th reading from now on, as if the process had been frozen before it."""

    def __init__(self) -> None:
        super().__init__()
        self.countdown = 0
        self.leap_seconds = 0.0

    def __call__(self) -> float:
        self.countdown -= 1
        if self.countdown == 0:
            self.now += self.leap_seconds
        return self.now


@pytest.mark.parametrize("reading", [2, 3, 4])
async def test_a_renewal_that_was_frozen_until_its_lease_was_over_is_none(
    fleet: LeaseFolder, reading: int
) -> None:
    """Read when it is asked, before each lease, before the change of the record, and after it."""
    clock = Leaping()
    first = await fleet.start("worker-1", clock=clock)
    lease = await granted(first)

    clock.countdown, clock.leap_seconds = reading, 0.9 * TTL

    assert (await first.renew([lease])).kept == []


@pytest.mark.parametrize("reading", [2, 3, 4, 5])
async def test_its_own_lease_is_not_given_again_when_it_was_frozen_until_that_was_over(
    fleet: LeaseFolder, reading: int
) -> None:
    clock = Leaping()
    first = await fleet.start("worker-1", clock=clock)
    lease = await granted(first)

    clock.countdown, clock.leap_seconds = reading, 0.9 * TTL

    assert (await granted(first)).token == lease.token + 1
    assert clock.countdown <= 0


async def test_a_lease_that_is_over_by_its_own_clock_is_not_renewed(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    lease = await granted(first)

    fleet.clock.now += 0.9 * TTL

    assert await first.renew([lease]) == Renewal(kept=[], lost=[lease])


async def test_a_lease_once_said_to_be_lost_stays_lost(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    lease = await granted(first)
    record = fleet.newest().read_bytes()
    fleet.newest().write_bytes(b"garbage")
    assert (await first.renew([lease])).lost == [lease]

    fleet.newest().write_bytes(record)

    assert (await first.renew([lease])).lost == [lease]
    assert (await granted(first)).token == lease.token + 1


async def test_a_release_frees_the_lease_at_once_and_may_be_repeated(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    await refused(second)

    await first.release(NAME, lease.token)
    await first.release(NAME, lease.token)

    assert await first.renew([lease]) == Renewal(kept=[], lost=[lease])
    taken = await granted(second)
    await first.release(NAME, lease.token)
    assert (await second.renew([taken])).kept == [taken]


async def test_a_release_without_a_token_gives_back_what_it_has(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)

    await first.release(NAME)

    await granted(second)


@pytest.mark.parametrize("off", [-1, 1])
async def test_a_release_with_another_token_changes_nothing(fleet: LeaseFolder, off: int) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)

    await first.release(NAME, lease.token + off)

    assert (await first.renew([lease])).kept == [lease]
    await refused(second)


async def test_a_release_of_an_old_grant_changes_nothing_of_a_new_one(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    old = await granted(first)
    await first.release(NAME, old.token)
    new = await granted(first)

    await first.release(NAME, old.token)

    assert (await first.renew([new])).kept == [new]
    await refused(second)


async def test_a_release_by_somebody_else_changes_nothing(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)

    await second.release(NAME, lease.token)
    await second.release(NAME)

    assert (await first.renew([lease])).kept == [lease]


async def test_a_release_does_not_touch_a_record_that_took_the_place_of_its_own(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    lease = await granted(first)
    other = json.dumps({**fleet.record(), "claim": "0" * 32, "holder": "worker-9/1"}).encode()
    fleet.newest().write_bytes(other)

    await first.release(NAME, lease.token)

    assert fleet.newest().read_bytes() == other


async def test_two_candidates_with_the_same_identity_never_both_lead(fleet: LeaseFolder) -> None:
    """The trial of that name: ownership is a secret of each grant, so also a copied instance does no harm."""
    first = await fleet.start("worker-1", "same")
    twin = await fleet.start("worker-1", "same")
    lease = await granted(first)

    assert (await refused(twin)).holder is None
    await twin.release(NAME, lease.token)
    await twin.release(NAME)
    assert (await twin.renew([lease])).lost == [lease]
    assert (await first.renew([lease])).kept == [lease]


async def test_one_lost_among_many_is_told_alone(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    leases = [await granted(first, f"gc-{number}") for number in range(5)]
    fleet.newest("gc-3").unlink()

    renewal = await first.renew(leases)

    assert renewal.lost == [leases[3]]
    assert [lease.name for lease in renewal.kept] == ["gc-0", "gc-1", "gc-2", "gc-4"]


async def test_a_lease_that_cannot_be_looked_at_is_neither_kept_nor_lost(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    good, bad = await granted(first, "good"), await granted(first, "bad")
    fleet.place("bad").rename(fleet.path / "elsewhere")
    fleet.place("bad").symlink_to(fleet.path / "elsewhere")

    assert await first.renew([good, bad]) == Renewal(kept=[good], lost=[])

    assert fleet.log.named("lease_file_failed") == [
        {"name": "bad", "error": fleet.log.named("lease_file_failed")[0]["error"], "leases": 1}
    ]
    with pytest.raises(NotADirectoryError, match="not a link"):
        await first.renew([bad])
    await first.renew([good, bad])
    assert len(fleet.log.named("lease_file_failed")) == 1  # not every few seconds


async def test_the_listing_tells_what_it_knows_and_no_more(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    done = await granted(first, "done")
    await first.release("done", done.token)
    fleet.clock.now += 3

    ours = (await rows_of(first))[NAME]
    assert (ours.holder, ours.token) == (lease.holder, lease.token)
    assert (ours.age_seconds, ours.remaining_seconds) == (3, TTL - 3)
    theirs = (await rows_of(second))[NAME]
    assert (theirs.holder, theirs.token) == (lease.holder, lease.token)
    assert (theirs.age_seconds, theirs.remaining_seconds) == (None, TTL)
    fleet.clock.now += 4
    assert (await rows_of(second))[NAME].remaining_seconds == TTL - 4
    assert (await rows_of(second)).keys() == {NAME}


async def test_a_renewal_that_runs_out_of_time_keeps_what_was_done_and_begins_with_the_rest(
    fleet: LeaseFolder,
) -> None:
    clock = Slow()
    first = await fleet.start("worker-1", ttl_seconds=100, timeout_seconds=10, clock=clock)
    leases = [await granted(first, f"gc-{number}") for number in range(12)]
    clock.step = 0.5

    some = await first.renew(leases)
    rest = [lease for lease in leases if lease not in some.kept]

    assert len(some.kept) > 2
    assert len(rest) > 2
    assert some.lost == []
    assert list((await first.renew(leases)).kept)[: len(rest)][:3] == rest[:3]
