"""What happens between two steps of a claim or a renewal: the cases that are known by name."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from drakkar_filesystem import _claims, _grants
from drakkar_filesystem._claims import claim, next_number
from drakkar_filesystem._files import remove
from drakkar_filesystem._generations import Sight, look, looked_at, make_place
from drakkar_filesystem._lease_record import Record, encode
from support.lease_folders import NAME, LeaseFolder, granted, refused

KEYS = iter(f"{number:032x}" for number in range(10**6))


@pytest.fixture
def leases(tmp_path: Path) -> Iterator[int]:
    folder = os.open(tmp_path, os.O_RDONLY)
    make_place(folder, "gc")
    yield folder
    os.close(folder)


def record(key: str) -> bytes:
    return encode(Record("gc", "worker-1/1", key, 10.0, "1"), 0)


def try_claim(leases: int, meanwhile: Callable[[], object] = lambda: None) -> int | None:
    """Claim the next generation of `gc`; `meanwhile` is done right before the link. The number, if it won."""
    key = next(KEYS)

    def linking() -> None:
        meanwhile()

    with looked_at(leases, "gc") as (folder, sight):
        number = next_number(folder, sight, key)
        won = claim(leases, "gc", folder, sight, number, key, record(key), linking)
        return number if won else None


def names(path: Path) -> set[str]:
    return {entry.name for entry in (path / "gc").iterdir()}


def test_a_number_that_was_used_and_cleaned_up_meanwhile_is_not_won(leases: int, tmp_path: Path) -> None:
    first = try_claim(leases)
    assert first is not None

    late = try_claim(leases, lambda: [try_claim(leases) for _ in range(3)])

    assert late is None
    assert names(tmp_path) == {"base", str(first + 3), f".{first + 3}"}
    assert look(leases, "gc").number == first + 3


def test_a_number_that_another_took_meanwhile_is_not_won(leases: int, tmp_path: Path) -> None:
    first = try_claim(leases)
    assert first is not None

    assert try_claim(leases, lambda: try_claim(leases)) is None
    assert names(tmp_path) == {"base", str(first + 1), f".{first + 1}"}


def test_a_higher_number_does_not_win_against_one_that_was_not_seen(leases: int, tmp_path: Path) -> None:
    """Two bases, one after the other, while somebody deletes what he sees."""
    won = []

    def meanwhile() -> None:
        (tmp_path / "gc" / "base").write_text('{"base": 1000}')
        won.append(try_claim(leases))

    assert try_claim(leases, meanwhile) is None

    assert won == [1001]
    assert names(tmp_path) == {"base", "1001", ".1001"}


def test_a_folder_that_was_made_anew_meanwhile_is_another_one(leases: int, tmp_path: Path) -> None:
    assert try_claim(leases) is not None

    def meanwhile() -> None:
        rmtree(tmp_path / "gc")
        make_place(leases, "gc")

    with pytest.raises(FileNotFoundError):
        try_claim(leases, meanwhile)
    assert names(tmp_path) == set()


def test_a_folder_that_was_moved_away_meanwhile_is_another_one(leases: int, tmp_path: Path) -> None:
    assert try_claim(leases) is not None

    def meanwhile() -> None:
        (tmp_path / "gc").rename(tmp_path / "away")
        make_place(leases, "gc")

    assert try_claim(leases, meanwhile) is None
    assert names(tmp_path) == set()


def test_a_number_whose_record_was_deleted_meanwhile_is_not_given_again(leases: int, tmp_path: Path) -> None:
    first = try_claim(leases)
    assert first is not None

    def meanwhile() -> None:
        number = try_claim(leases)
        (tmp_path / "gc" / str(number)).unlink()

    assert try_claim(leases, meanwhile) is None

    assert try_claim(leases) == first + 2


def test_a_number_without_its_record_is_never_to_be_seen_while_a_claim_is_taken_back(
    leases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would count as free."""
    seen: list[Sight] = []

    def watched(folder: int, name: str) -> None:
        remove(folder, name)
        seen.append(look(leases, "gc"))

    def meanwhile() -> None:
        (tmp_path / "gc" / "5").write_text("by hand")

    monkeypatch.setattr(_claims, "remove", watched)

    assert try_claim(leases, meanwhile) is None

    assert seen[-1].number == 5
    assert all(sight.content is not None for sight in seen[1:])


def test_a_link_whose_first_answer_was_lost_has_won(leases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system asks again, and is told that the name is there: it is the one we gave."""
    link = os.link

    def twice(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool) -> None:
        for _ in range(2):
            link(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "link", twice)

    assert try_claim(leases) is not None


async def test_a_renewal_sees_who_was_faster_than_its_change_of_the_record(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await fleet.start()
    lease = await granted(first)
    write = _grants._write

    def overtaken(file: int, data: bytes, offset: int) -> None:
        write(file, data, offset)
        (fleet.place() / str(lease.token + 1)).write_text("another")

    monkeypatch.setattr(_grants, "_write", overtaken)

    assert (await first.renew([lease])).lost == [lease]


STEPS = ["link", "fsync", "listdir", "unlink"]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
async def test_an_error_in_the_middle_of_an_acquire_costs_no_more_than_another_try(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    """What came of it is known as ours the next time, or was never there."""
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    before = await granted(second)
    await second.release(NAME, before.token)
    function = getattr(os, step)
    count = 0

    def fails(*arguments: object, **keywords: object) -> object:
        nonlocal count
        count += 1
        result = function(*arguments, **keywords)
        if count == number:
            raise OSError(5, "Input/output error")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        try:
            await first.acquire(NAME)
        except OSError as error:
            assert error.errno == 5  # noqa: PT017  some errors do not matter

    lease = await granted(first)

    assert lease.token > before.token
    assert (await first.renew([lease])).kept == [lease]
    await refused(second)
    assert {f".{lease.token}", str(lease.token)} <= {path.name for path in fleet.place().iterdir()}
    fleet.newest().unlink()
    assert (await granted(second)).token > lease.token
