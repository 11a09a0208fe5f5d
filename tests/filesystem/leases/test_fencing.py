"""The trials "The fencing token forgets" and "Renewing a lease that is gone counts as success", on files."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drakkar.leases.backend import Renewal
from support.folders import make_older
from support.lease_folders import NAME, TTL, LeaseFolder, granted, refused, rows_of

GARBAGE: list[Any] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"3",
    b"9" * 5000,
    b"[" * 8000,
    b'{"a":' * 1500,
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b'{"ttl_seconds": NaN}',
    b"x" * 20000,
    {"ttl_seconds": 0},
    {"ttl_seconds": -1},
    {"ttl_seconds": 1e9},
    {"ttl_seconds": float("nan")},
    {"ttl_seconds": float("inf")},
    {"ttl_seconds": 10**400},
    {"ttl_seconds": True},
    {"ttl_seconds": "10"},
    {"ttl_seconds": None},
    {"holder": 7},
    {"claim": None},
    {"boot_id": 7},
    {"device": "x"},
    {"released": "true"},
]


def garbage(fleet: LeaseFolder, what: Any) -> bytes:
    return what if isinstance(what, bytes) else json.dumps({**fleet.record(), **what}).encode()


def delete_record(fleet: LeaseFolder) -> None:
    fleet.newest().unlink()


def delete_all_that_is_shown(fleet: LeaseFolder) -> None:
    for path in fleet.place().glob("[!.]*"):
        path.unlink()


def delete_place(fleet: LeaseFolder) -> None:
    shutil.rmtree(fleet.place())


def delete_everything(fleet: LeaseFolder) -> None:
    shutil.rmtree(fleet.leases)


def delete_the_root(fleet: LeaseFolder) -> None:
    shutil.rmtree(fleet.path)


def empty_the_record(fleet: LeaseFolder) -> None:
    fleet.newest().write_bytes(b"")


def replace_by_another(fleet: LeaseFolder) -> None:
    other = {**fleet.record(), "holder": "worker-9/1", "claim": "0" * 32, "boot_id": None}
    fleet.newest().write_bytes(json.dumps(other).encode())


def replace_by_a_link(fleet: LeaseFolder) -> None:
    path = fleet.newest()
    path.rename(fleet.path / "elsewhere")
    path.symlink_to(fleet.path / "elsewhere")


def replace_by_a_pipe(fleet: LeaseFolder) -> None:
    path = fleet.newest()
    path.unlink()
    os.mkfifo(path)


def replace_by_a_folder(fleet: LeaseFolder) -> None:
    path = fleet.newest()
    path.unlink()
    path.mkdir()


def add_a_newer(fleet: LeaseFolder) -> None:
    (fleet.place() / str(fleet.generations()[-1] + 5)).write_bytes(b"by hand")


DELETIONS = [delete_record, delete_all_that_is_shown, delete_place, delete_everything]
REPLACEMENTS = [
    *(empty_the_record, replace_by_another, replace_by_a_link, replace_by_a_pipe, replace_by_a_folder),
    add_a_newer,
]
Work = Callable[[LeaseFolder], None]


async def test_tokens_rise_over_release_and_expiry(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    tokens = []
    for _ in range(3):
        lease = await granted(first)
        tokens.append(lease.token)
        await first.release(NAME, lease.token)
        tokens.append((await granted(second)).token)
        await refused(first)
        fleet.clock.now += TTL

    assert tokens == [*range(tokens[0], tokens[0] + 6)]


@pytest.mark.parametrize("work", DELETIONS, ids=lambda work: work.__name__)
async def test_tokens_rise_over_what_an_operator_deletes(fleet: LeaseFolder, work: Work) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    token = (await granted(first)).token

    for _ in range(3):
        work(fleet)
        lease = await granted(second)
        assert lease.token > token
        token = lease.token
        await second.release(NAME, token)


@pytest.mark.parametrize("work", [*DELETIONS, *REPLACEMENTS], ids=lambda work: work.__name__)
async def test_a_holder_whose_record_is_gone_hears_it_at_its_next_renewal(
    fleet: LeaseFolder, work: Work
) -> None:
    first = await fleet.start("worker-1")
    lease = await granted(first)
    assert (await first.renew([lease])).kept == [lease]

    work(fleet)

    assert await first.renew([lease]) == Renewal(kept=[], lost=[lease])


async def test_a_holder_does_not_know_while_all_of_the_folder_is_missing(fleet: LeaseFolder) -> None:
    """It may be a mount that is away for a moment; its time runs out in any case."""
    first = await fleet.start("worker-1")
    lease = await granted(first)

    delete_the_root(fleet)

    with pytest.raises(FileNotFoundError):
        await first.renew([lease])
    with pytest.raises(FileNotFoundError):
        await first.release(NAME, lease.token)


@pytest.mark.parametrize("work", DELETIONS, ids=lambda work: work.__name__)
async def test_what_was_deleted_needs_no_release(fleet: LeaseFolder, work: Work) -> None:
    first = await fleet.start()
    lease = await granted(first)

    work(fleet)

    await first.release(NAME, lease.token)


@pytest.mark.parametrize("work", REPLACEMENTS, ids=lambda work: work.__name__)
async def test_what_took_the_place_of_a_record_is_no_free_lease_for_anybody(
    fleet: LeaseFolder, work: Work
) -> None:
    """The trial "A leader that lost its lease is never told": garbage is neither a crash nor free for two."""
    first, second, third = [await fleet.start(f"worker-{number}") for number in (1, 2, 3)]
    lease = await granted(first)
    work(fleet)
    there = fleet.generations()[-1]

    for backend in (first, second, third):
        assert (await refused(backend)).retry_after_seconds == TTL
    fleet.clock.now += TTL - 1
    for backend in (first, second, third):
        await refused(backend)
    fleet.clock.now += 1
    taken = await granted(second)

    assert taken.token == there + 1 > lease.token
    await refused(first)
    await refused(third)


@pytest.mark.parametrize("what", GARBAGE, ids=lambda what: repr(what)[:30])
async def test_garbage_counts_as_held_for_a_ttl_of_the_contender_and_then_a_newer_one_is_made(
    fleet: LeaseFolder, what: Any
) -> None:
    first = await fleet.start("worker-1", ttl_seconds=2 * TTL)
    lease = await granted(first)
    fleet.newest().write_bytes(garbage(fleet, what))
    second = await fleet.start("worker-2")

    assert await first.renew([lease]) == Renewal(kept=[], lost=[lease])
    refusal = await refused(second)
    assert (refusal.holder, refusal.retry_after_seconds) == (None, TTL)
    row = (await rows_of(second))[NAME]
    assert (row.holder, row.token) == (None, lease.token)
    fleet.clock.now += TTL

    assert (await granted(second)).token == lease.token + 1


async def test_garbage_that_changes_is_held_anew(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)
    for text in ("a", "b", "c"):
        fleet.newest().write_text(text)
        assert (await refused(second)).retry_after_seconds == TTL
        fleet.clock.now += 0.9 * TTL


async def test_garbage_over_a_record_that_was_seen_before_has_the_ttl_of_that_record(
    fleet: LeaseFolder,
) -> None:
    """Its holder hears of it at its next renewal, which may be as late as its ttl allows."""
    first, second = await fleet.start("worker-1", ttl_seconds=5 * TTL), await fleet.start("worker-2")
    await granted(first)
    await refused(second)

    fleet.newest().write_bytes(b"garbage")

    assert (await refused(second)).retry_after_seconds == 5 * TTL


async def test_a_number_stays_used_when_its_record_is_deleted(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    token = (await granted(first)).token
    fleet.newest().unlink()

    assert (await granted(first)).token == token + 1


async def test_numbers_start_at_the_milliseconds_of_the_file_server(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    token = (await granted(first)).token

    assert json.loads((fleet.place() / "base").read_bytes()) == {"base": token - 1}
    assert abs(fleet.newest().stat().st_mtime * 1000 - token) < 60_000


async def test_a_damaged_base_is_told_and_free_for_nobody(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    fleet.place().mkdir()
    for data in (b"", b"garbage", b'{"base": 1e3}', b'{"base": -4}', b'{"base": true}', b"[" * 8000):
        (fleet.place() / "base").write_bytes(data)
        with pytest.raises(OSError, match="the base of its numbers is damaged: delete its folder") as told:
            await first.acquire(NAME)
        assert told.value.filename == str(fleet.place())


async def test_numbers_that_are_used_up_are_told(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    fleet.place().mkdir()
    (fleet.place() / "999999999999999999").write_bytes(b"by hand")
    await refused(first)
    fleet.clock.now += TTL

    with pytest.raises(OSError, match="its numbers are used up: delete its folder") as told:
        await first.acquire(NAME)
    assert told.value.filename == str(fleet.place())


async def test_a_winner_cleans_up_what_is_older_and_leaves_the_rest(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    token = (await granted(first)).token
    place = fleet.place()
    abandoned, recent = place / f".{'a' * 32}.tmp", place / f".{'b' * 32}.tmp"
    for path in (abandoned, recent, place / "README.txt", place / str(token - 1), place / "0017"):
        path.write_text("x")
    make_older(abandoned, 3601)
    await first.release(NAME, token)

    await granted(second)

    kept = {"base", recent.name, "README.txt", "0017", str(token + 1), f".{token + 1}"}
    assert {path.name for path in place.iterdir()} == kept


async def test_a_lost_race_leaves_nothing_behind(fleet: LeaseFolder) -> None:
    backends = [await fleet.start(f"worker-{number}") for number in range(8)]
    lease = await granted(backends[0])
    await backends[0].release(NAME, lease.token)
    for backend in backends:
        await backend.acquire(NAME)

    names: set[Path] = set(fleet.place().iterdir())

    assert {path.name for path in names} == {"base", str(lease.token + 1), f".{lease.token + 1}"}
