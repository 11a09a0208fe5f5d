"""The ledger refuses who is late, in one step, whoever else writes."""

import json
import multiprocessing
from pathlib import Path

import pytest
from drakkar.errors import LeaseLost
from objectstore.errors import StaleWrite
from objectstore.ledger import Entry, Ledger
from support.object_worlds import HeldLease, ObjectWorld, write_for_a_while

LEASE = "gc-leader-0"
processes = multiprocessing.get_context("forkserver")


@pytest.fixture(name="world")
def a_world(tmp_path: Path) -> ObjectWorld:
    return ObjectWorld(tmp_path)


def tokens(world: ObjectWorld) -> list[int]:
    return [entry.token for entry in Ledger(world.tree()).entries(LEASE)]


def make_file(world: ObjectWorld, name: str) -> Path:
    path = world.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_a_write_removes_what_it_names_and_adds_up(world: ObjectWorld) -> None:
    path = make_file(world, "buckets/photos/0/one")
    mine = world.term(HeldLease(LEASE, 5))
    mine.write([f"{path.relative_to(world.root)}", "buckets/photos/0/never-there"], 2)
    mine.write((), 3)
    assert not path.exists()
    assert [(entry.number, entry.total) for entry in Ledger(world.tree()).entries(LEASE)] == [
        (1, 0),
        (2, 2),
        (3, 5),
    ]
    assert Ledger(world.tree()).total("gc-leader-") == 5


def test_a_leader_that_was_replaced_is_refused(world: ObjectWorld) -> None:
    old = world.term(HeldLease(LEASE, 5))
    world.term(HeldLease(LEASE, 6))
    path = make_file(world, "buckets/photos/0/one")
    with pytest.raises(StaleWrite, match="token 6 has written, so 5 may not"):
        old.write(["buckets/photos/0/one"], 1)
    assert path.exists()
    [line] = world.log.named("objectstore_write_refused")
    assert (line["token"], line["newest_token"]) == (5, 6)
    assert line["refused"] >= 1
    assert tokens(world) == [5, 6]


def test_a_leader_that_is_replaced_between_its_look_and_its_write_is_refused(world: ObjectWorld) -> None:
    """Frozen after it had looked at the newest entry, at its lease, and had made its own ready."""
    lease = HeldLease(LEASE, 5)
    old = world.term(lease)

    def replace() -> None:
        lease.on_check = lambda: None
        world.term(HeldLease(LEASE, 6))

    lease.on_check = replace
    with pytest.raises(StaleWrite):
        old.write((), 1)
    assert tokens(world) == [5, 6]


def test_a_run_with_an_old_token_cannot_even_begin(world: ObjectWorld) -> None:
    world.term(HeldLease(LEASE, 6))
    with pytest.raises(StaleWrite):
        world.term(HeldLease(LEASE, 5))


def test_what_a_lost_leader_had_decided_is_carried_out_by_the_next(world: ObjectWorld) -> None:
    paths = [make_file(world, f"buckets/photos/0/{n}") for n in range(3)]
    lease = HeldLease(LEASE, 5)
    old = world.term(lease)
    seen = 0

    def lose() -> None:
        nonlocal seen
        seen += 1
        if seen == 3:  # the entry is written, and the first file removed
            raise LeaseLost("lost")

    lease.on_check = lose
    with pytest.raises(LeaseLost):
        old.write([f"buckets/photos/0/{n}" for n in range(3)], 3)
    assert [path.exists() for path in paths] == [False, True, True]
    new = world.term(HeldLease(LEASE, 6))
    assert [path.exists() for path in paths] == [False, False, False]
    assert new.write((), 1).total == 4


def test_leases_do_not_fence_each_other(world: ObjectWorld) -> None:
    world.term(HeldLease("gc-leader-1", 9))
    assert world.term(HeldLease(LEASE, 5)).write((), 1).token == 5
    assert Ledger(world.tree()).leases() == [LEASE, "gc-leader-1"]


def test_the_document_is_that_of_the_newest_entry_that_has_one(world: ObjectWorld) -> None:
    first = world.term(HeldLease(LEASE, 5))
    assert first.document is None
    first.write(document={"objects": 1})
    first.write((), 1)
    assert world.term(HeldLease(LEASE, 6)).document == {"objects": 1}


@pytest.mark.parametrize("name", ["/etc/passwd", "buckets/../../x", "uploads/x", "ledger/x", ""])
def test_nothing_outside_of_the_store_is_removed(world: ObjectWorld, name: str) -> None:
    with pytest.raises(ValueError, match="is no name of this store"):
        Ledger(world.tree()).carry_out(Entry(LEASE, 1, 1, 0.0, [name]), lambda: None)


def test_tokens_never_go_back_whoever_writes_at_once(world: ObjectWorld, long: bool) -> None:
    """Processes that all believe to lead, each with a token of its own."""
    writers = [
        processes.Process(target=write_for_a_while, args=(world.root, LEASE, token, 20.0 if long else 3.0))
        for token in range(1, 6)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 5
    entries = list(Ledger(world.tree()).entries(LEASE))
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.total for entry in entries] == [
        sum(each.count for each in entries[: n + 1]) for n in range(len(entries))
    ]
    assert tokens(world) == sorted(tokens(world))
    assert len(entries) > 20
    told = [json.loads(path.read_text()) for path in sorted(world.root.glob("told-*"))]
    assert sorted(each for numbers in told for each in numbers) == [
        entry.number for entry in entries if entry.count
    ]
