"""`verify` is silent about a sound store and finds each thing that may be wrong with one."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from objectstore.cli import main
from objectstore.journal import Expected, Journal, Operation, read_journal
from objectstore.ledger import Entry, Ledger
from objectstore.names import Copy
from objectstore.tree import Tree
from objectstore.verify import Report, settle, verify
from support.object_worlds import ObjectWorld, run

DATA = b"some data"
LEASE = "gc-leader"


@pytest.fixture(name="world")
def a_world(tmp_path: Path) -> ObjectWorld:
    """A store with one object that a journal knows, kept in order by all workers."""
    world = ObjectWorld(tmp_path)
    journal = Journal(world.tree(), "writer-1")
    operation = Operation("put", "photos", "cat.jpg", False, hashlib.sha256(DATA).hexdigest())
    journal.write(operation)
    run(world.store().put("photos", "cat.jpg", DATA))
    journal.write(replace(operation, acknowledged=True))
    journal.close()
    world.tidy()
    return world


def the_copy(world: ObjectWorld) -> Copy:
    [sized] = world.tree().sized_copies()
    return sized.copy


def test_a_sound_store_has_no_problem(world: ObjectWorld) -> None:
    report = verify(world.tree())
    assert (report.broken, report.left) == ([], [])
    assert report.checked == {"objects": 1, "chunks named": 1, "operations": 2, "ledger entries": 7}


def lose_a_copy(world: ObjectWorld) -> None:
    (world.root / the_copy(world).name).unlink()


def spoil_a_copy(world: ObjectWorld) -> None:
    (world.root / the_copy(world).name).write_bytes(b"else")


def lose_an_object(world: ObjectWorld) -> None:
    run(world.store().delete("photos", "cat.jpg"))


def store_something_else(world: ObjectWorld) -> None:
    run(world.store().put("photos", "cat.jpg", b"else"))


def read_something_else(world: ObjectWorld) -> None:
    journal = Journal(world.tree(), "writer-2")
    journal.write(Operation("bad_read", "photos", "cat.jpg", True, detail="ChunkMissing"))
    journal.close()


def write_with_an_old_token(world: ObjectWorld) -> None:
    append(world, token=0)


def skip_a_number(world: ObjectWorld) -> None:
    append(world, skip=1)


def count_wrongly(world: ObjectWorld) -> None:
    append(world, count=5)


def remove_twice(world: ObjectWorld) -> None:
    for _ in range(2):
        append(world, removed=["volumes/0/a/x"])


def not_remove(world: ObjectWorld) -> None:
    (world.root / "volumes/0/a/x").touch()
    append(world, removed=["volumes/0/a/x"])
    append(world)


def append(world: ObjectWorld, *, token: int = 10**6, skip: int = 0, **fields: object) -> None:
    ledger = Ledger(world.tree())
    newest = ledger.newest(LEASE)
    assert newest is not None
    entry = Entry(LEASE, newest.number + 1 + skip, token, 0.0, total=newest.total)
    assert ledger.append(replace(entry, **fields))  # type: ignore[arg-type]  # fields of an entry


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (lose_a_copy, "of which there is no sound copy"),
        (spoil_a_copy, "of which there is no sound copy"),
        (lose_an_object, "photos/cat.jpg is None, and should be"),
        (store_something_else, "photos/cat.jpg is "),
        (read_something_else, "was read as ChunkMissing"),
        (write_with_an_old_token, "was written with token 0, after token"),
        (skip_a_number, "follows entry"),
        (count_wrongly, "but it is 5"),
        (remove_twice, "removes volumes/0/a/x, as an earlier one did"),
        (not_remove, "volumes/0/a/x was removed and is there"),
    ],
)
def test_what_must_never_be_is_found(
    world: ObjectWorld, break_it: Callable[[ObjectWorld], None], what: str
) -> None:
    break_it(world)
    broken = verify(world.tree()).broken
    assert len(broken) == 1
    assert what in broken[0]


def leave_a_chunk(world: ObjectWorld) -> None:
    run(world.store().put("photos", "dog.jpg", b"dog"))
    run(world.store().delete("photos", "dog.jpg"))


def leave_a_mark(world: ObjectWorld) -> None:
    world.tree().condemn("a" * 64 + "-" + "b" * 16)


def leave_a_copy(world: ObjectWorld) -> None:
    (world.root / replace(the_copy(world), nonce="0" * 16).name).write_bytes(DATA)


def leave_an_upload(world: ObjectWorld) -> None:
    (world.root / "uploads/x.part").touch()


def leave_a_pin(world: ObjectWorld) -> None:
    (world.root / replace(the_copy(world), nonce="f" * 16).pin).touch()


def leave_an_expired_object(world: ObjectWorld) -> None:
    run(world.store().put("photos", "dog.jpg", DATA, expires_in_seconds=1))
    world.wall += 2


def leave_an_old_version(world: ObjectWorld) -> None:
    [version] = world.tree().versions("photos")
    old = replace(version, number=version.number - 1)
    (world.root / old.name).write_bytes((world.root / version.name).read_bytes())


def leave_the_summary(world: ObjectWorld) -> None:
    run(world.store().put("photos", "dog.jpg", DATA))


@pytest.mark.parametrize(
    ("leave", "what"),
    [
        (leave_a_chunk, "nothing names volumes/"),
        (leave_a_mark, "is condemned"),
        (leave_a_copy, "is superseded"),
        (leave_an_upload, "uploads/x.part was not finished"),
        (leave_a_pin, "was not finished"),
        (leave_an_expired_object, "has expired"),
        (leave_an_old_version, "is replaced"),
        (leave_the_summary, "the summary is not up to date"),
    ],
)
def test_what_is_not_cleared_away_is_found_until_it_is(
    world: ObjectWorld, leave: Callable[[ObjectWorld], None], what: str
) -> None:
    leave(world)
    report = verify(world.tree())
    assert report.broken == []
    assert [line for line in report.left if what in line]
    world.tidy()
    assert settle(world.tree(), 0) == replace(report, left=[], checked=verify(world.tree()).checked)


def test_an_operation_without_an_answer_may_have_happened_or_not() -> None:
    expected = Expected()
    expected.then(Operation("put", "photos", "cat.jpg", True, "one"))
    expected.then(Operation("put", "photos", "cat.jpg", False, "two", expires_at=100))
    assert [expected.allows(found, 50) for found in ("one", "two", "three", None)] == [
        True,
        True,
        False,
        False,
    ]
    assert expected.allows(None, 100)  # the second may have replaced the first, and have expired
    expected.then(Operation("delete", "photos", "cat.jpg", True))
    assert [expected.allows(found, 50) for found in ("one", "two", None)] == [False, False, True]


def test_a_journal_ends_where_its_writer_was_killed(tmp_path: Path) -> None:
    operation = Operation("put", "photos", "cat.jpg", False, "one")
    path = tmp_path / "journal"
    path.write_bytes(json.dumps(asdict(operation)).encode() + b"\n" + b'{"op": "pu')
    assert read_journal(path) == [operation]


# -- the command


def objectstore(folder: Path, *arguments: str) -> int:
    return main(["--dir", str(folder), *arguments])


def test_the_command_puts_lists_gets_and_removes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(DATA)
    assert objectstore(tmp_path, "put", "photos", "cat.jpg", str(source), "--expires-in", "1000") == 0
    assert objectstore(tmp_path, "ls") == 0
    assert objectstore(tmp_path, "ls", "photos", "--json") == 0
    assert objectstore(tmp_path, "get", "photos", "cat.jpg", str(target)) == 0
    assert target.read_bytes() == DATA
    assert objectstore(tmp_path, "rm", "photos", "cat.jpg") == 0
    assert capfd.readouterr().out.count("cat.jpg") == 3


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf"])
def test_the_command_puts_nothing_that_has_expired_already(
    seconds: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        objectstore(tmp_path, "put", "photos", "cat.jpg", "--expires-in", seconds)

    assert left.value.code == 2
    assert "--expires-in: must be a number of seconds greater than 0" in capfd.readouterr().err


def test_the_command_says_what_is_not_there_and_what_cannot_be(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert objectstore(tmp_path, "get", "photos", "cat.jpg") == 1
    assert objectstore(tmp_path, "rm", "photos", "cat.jpg") == 1
    assert objectstore(tmp_path, "put", "Photos", "cat.jpg", __file__) == 2
    assert objectstore(tmp_path, "put", "photos", "cat.jpg", str(tmp_path / "missing")) == 1
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["objectstore"] * 4


def test_the_command_fills_a_store_and_finds_it_sound(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    filling = ("fill", "--seconds", "1", "--pause", "0", "--chunk-bytes", "512")
    assert objectstore(tmp_path, *filling) == 0
    report: Report = verify(Tree(tmp_path))
    assert report.broken == []
    assert report.checked["operations"] > 50
    assert objectstore(tmp_path, "verify") == 1  # nobody has cleared away
    assert capfd.readouterr().out.splitlines()[-1].endswith(" problems")


def test_the_command_says_that_all_is_well(world: ObjectWorld, capfd: pytest.CaptureFixture[str]) -> None:
    assert objectstore(world.root, "verify") == 0
    assert capfd.readouterr().out.endswith(": all is well\n")
