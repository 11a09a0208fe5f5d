"""The file: what is in it when, in which order it is read, and what happens to one that cannot be used."""

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from drakkar.cache.changes import encode_page
from drakkar.cache.exchange import NotStoredError
from drakkar.cache.files import file_of
from drakkar.cache.page import PageReader
from drakkar.cache.rows import MAX_STAMP_MS, Cursor, Row
from drakkar.cache.store import Standing, Store
from support.caches import NOW_MS, a_row, flush, open_cache
from support.clock import FakeClock
from support.log import RecordingLogger
from support.waiting import until

MANY = 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "cache.db", "worker-1")
    yield made
    made.close()


def own(key: str, ms: int = NOW_MS, **fields: object) -> Row:
    return a_row(key, ms, origin_worker_id="worker-1")._replace(**fields)  # type: ignore[arg-type]  # as asked


def write(store: Store, *rows: Row, pulled: tuple[Row, ...] = ()) -> None:
    store.write({row.key: row for row in rows}, pulled, NOW_MS)


def served(store: Store, after: Cursor | None = None, limit: int = 1000, now_ms: int = NOW_MS) -> list[str]:
    return [row.key for row in store.changes(("cluster", "global"), after, limit, MANY, now_ms)[0]]


# -- the order of what is served


def test_serves_what_this_worker_wrote_in_the_order_of_its_changes(store: Store) -> None:
    write(store, own("b", NOW_MS + 1), own("a", NOW_MS + 2, scope="global"), own("c", NOW_MS + 3))
    write(store, own("local", NOW_MS + 4, scope="local"), pulled=(a_row("pulled", NOW_MS + 9),))
    assert served(store) == ["b", "a", "c"]
    assert served(store, (NOW_MS + 1, "b")) == ["a", "c"]
    assert served(store, (NOW_MS + 3, "c")) == []


def test_orders_rows_of_one_time_by_key(store: Store) -> None:
    keys = ["a", "b", "ä", "z", "名", "\U0001f600", "a|b", "A"]
    write(store, *(own(key, scope="global" if key > "b" else "cluster") for key in keys))
    assert served(store) == sorted(keys)
    assert served(store, (NOW_MS, "b")) == [key for key in sorted(keys) if key > "b"]


def test_pages_meet_without_gap_or_repetition(store: Store) -> None:
    write(store, *(own(f"k{number}", NOW_MS + number // 3) for number in range(100)))
    found: list[str] = []
    after, more = None, True
    while more:
        rows, more = store.changes(("cluster",), after, 7, MANY, NOW_MS)
        found += [row.key for row in rows]
        after = (rows[-1].updated_at_ms, rows[-1].key)
    assert len(found) == len(set(found)) == 100


def test_says_that_there_is_more_only_when_there_is(store: Store) -> None:
    write(store, *(own(f"k{number}", NOW_MS + number) for number in range(10)))
    assert store.changes(("cluster",), None, 9, MANY, NOW_MS)[1]
    assert not store.changes(("cluster",), None, 10, MANY, NOW_MS)[1]


def test_a_page_of_large_rows_is_short_but_never_empty(store: Store) -> None:
    write(store, *(own(f"k{number}", NOW_MS + number, size_bytes=1000) for number in range(10)))
    assert [len(store.changes(("cluster",), None, 9, size, NOW_MS)[0]) for size in (0, 2500, MANY)] == [
        1,
        2,
        9,
    ]
    assert store.changes(("cluster",), None, 9, 2500, NOW_MS)[1]


def test_serves_nothing_that_has_expired(store: Store) -> None:
    write(store, own("a", expires_at_ms=NOW_MS + 10), own("b", expires_at_ms=NOW_MS + 11))
    assert served(store, now_ms=NOW_MS + 9) == ["a", "b"]
    assert served(store, now_ms=NOW_MS + 10) == ["b"]


def test_a_page_costs_the_same_however_many_rows_there_are(store: Store) -> None:
    """Its plan reads the index from the cursor on, and neither sorts nor scans."""
    for scope in ("cluster", "global"):
        for query, values in (
            (store._changes[scope], (NOW_MS, "a", NOW_MS, 500)),
            (store._newest_of[scope], (NOW_MS,)),
        ):
            plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {query}", values)]
            assert len(plan) == 1
            assert plan[0].startswith("SEARCH rows USING INDEX rows_served (scope=?")
            assert ("(updated_at_ms,key)>(?,?)" in plan[0]) == (len(values) == 4)


def test_a_page_of_a_large_file_takes_as_many_steps_as_one_of_a_small_file(store: Store) -> None:
    def steps(after: Cursor) -> int:
        count = 0

        def one() -> None:
            nonlocal count
            count += 1

        store._db.set_progress_handler(one, 10)
        served(store, after, 100)
        store._db.set_progress_handler(None, 0)
        return count

    write(store, *(own(f"k{number}", NOW_MS + number) for number in range(1000)))
    few = steps((NOW_MS + 500, ""))
    write(store, *(own(f"m{number}", NOW_MS + 1000 + number) for number in range(50_000)))
    assert steps((NOW_MS + 30_000, "")) <= few * 1.1


def test_a_worker_name_is_no_sql(tmp_path: Path) -> None:
    name = 'it\'s {a} "worker"; DROP TABLE rows --'
    store = Store(tmp_path / "cache.db", name)
    write(store, a_row("a", origin_worker_id=name))
    assert served(store) == ["a"]
    store.close()


# -- stamps


def test_what_is_written_later_has_a_greater_stamp(store: Store) -> None:
    write(store, own("a", NOW_MS + 1000))
    write(store, own("b", NOW_MS), own("c", NOW_MS + 1))  # the clock was set back
    assert served(store) == ["a", "b", "c"]
    assert served(store, (NOW_MS + 1000, "a")) == ["b", "c"]


def test_what_replaces_a_row_of_a_peer_has_a_greater_stamp(store: Store) -> None:
    write(store, pulled=(a_row("a", NOW_MS + 5000),))
    write(store, own("a", NOW_MS, value='"ours"'))
    row = store.read("a")
    assert row is not None
    assert (row.value, row.updated_at_ms) == ('"ours"', NOW_MS + 5001)
    write(store, own("b", NOW_MS + 1))
    assert served(store) == ["a", "b"], "what came after it must not be hidden from who has read it"


def test_stamps_go_on_after_a_restart_also_when_the_newest_row_has_gone(tmp_path: Path) -> None:
    for number in range(3):
        store = Store(tmp_path / "cache.db", "worker-1")
        write(store, own(f"k{number}", NOW_MS + 1000 if number == 0 else NOW_MS))
        assert store.issued_ms == NOW_MS + 1000 + number
        store.write({f"k{number}": None}, (), NOW_MS)
        store.close()


def test_stamps_do_not_leave_what_peers_accept(store: Store) -> None:
    write(store, pulled=(a_row("a", MAX_STAMP_MS),))
    for key in ("a", "b", "c"):
        write(store, own(key))
    rows, _ = store.changes(("cluster",), None, 1000, MANY, NOW_MS)
    assert [row.key for row in rows] == ["a", "b", "c"]
    reader = PageReader(None)
    reader.feed(encode_page(rows, more=False))
    assert not reader.end()
    assert store.issued_ms == MAX_STAMP_MS


def test_a_key_keeps_when_it_was_created(store: Store) -> None:
    write(store, own("a", NOW_MS))
    write(store, own("a", NOW_MS + 10))
    row = store.read("a")
    assert row is not None
    assert (row.created_at_ms, row.updated_at_ms) == (NOW_MS, NOW_MS + 10)


def test_a_row_of_a_peer_replaces_an_older_one_alone(store: Store) -> None:
    write(store, own("older", NOW_MS), own("newer", NOW_MS + 20), own("same", NOW_MS + 10))
    ours = {key: store.read(key) for key in ("newer", "same")}
    theirs = [a_row(key, NOW_MS + 10) for key in ("older", "newer", "same")]
    write(store, pulled=(*theirs, a_row("new", NOW_MS + 10)))
    assert store.read("older") == theirs[0]
    assert {key: store.read(key) for key in ours} == ours, "worker-1 is before worker-2"
    assert store.read("new") == a_row("new", NOW_MS + 10)


def test_marks_are_the_newest_rows_that_can_be_read(store: Store) -> None:
    assert store.standing(NOW_MS).newest == {}
    write(store, own("a", NOW_MS + 1), own("b", NOW_MS + 2, expires_at_ms=NOW_MS + 50))
    write(store, own("c", NOW_MS + 3, scope="global"), own("d", NOW_MS + 4, scope="local"))
    assert store.standing(NOW_MS).newest == {"cluster": (NOW_MS + 2, "b"), "global": (NOW_MS + 3, "c")}
    assert store.standing(NOW_MS + 50).newest == {"cluster": (NOW_MS + 1, "a"), "global": (NOW_MS + 3, "c")}


def test_a_write_that_fails_changes_nothing(store: Store) -> None:
    write(store, own("a"))
    before = store.standing(NOW_MS)
    with pytest.raises(sqlite3.Error):
        write(
            store,
            own("b", NOW_MS + 1),
            pulled=(a_row("c")._replace(scope=None),),  # type: ignore[arg-type]  # on purpose
        )
    assert (store.read("b"), store.read("c"), store.standing(NOW_MS)) == (None, None, before)
    write(store, own("b", NOW_MS + 1))
    assert served(store) == ["a", "b"]


# -- cleaning


async def test_expired_rows_leave_the_disk(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_cache(tmp_path, clock=clock, cleanup_interval_seconds=60) as service:
        for number in range(5000):
            service.cache.set(f"k{number}", 1, ttl=30, scope="cluster")
        service.cache.set("stays", 1, ttl=1000, scope="cluster")
        await flush(service)
        store = service._store
        assert store is not None
        await clock.advance(61)

        left = 1
        while left != 0:
            [(left,)] = await service.thread.run(
                lambda: store._db.execute("SELECT count(*) FROM rows WHERE key != 'stays'").fetchall()
            )
        await until(lambda: service.features()["cache"]["cluster"]["key"] == "stays")
        assert await service.cache.get("stays") == 1


# -- files that cannot be used


def damage(path: Path) -> None:
    path.write_bytes(b"\x00garbage" * 1000)


def halve(path: Path) -> None:
    """Rows are in it; its second half is not."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def replace_by_a_foreign_one(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE somebody_elses (a)")
    db.close()


def date_forward(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def drop_a_column(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE rows DROP COLUMN size_bytes")
    db.close()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (damage, "damaged"),
        (replace_by_a_foreign_one, "schema"),
        (date_forward, "schema"),
        (drop_a_column, "schema"),
    ],
)
async def test_a_file_that_cannot_be_used_is_set_aside_and_replaced(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    path = file_of(tmp_path, "worker-1")
    async with open_cache(tmp_path) as service:
        service.cache.set("a", 1)
    spoil(path)
    spoiled = path.read_bytes()
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        assert await service.cache.get("a") is None
        service.cache.set("b", 2)
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("b") == 2
    [line] = log.named("cache_file_replaced")
    aside = path.with_name(f"{path.name}.set-aside")
    assert (line["file"], line["reason"], line["set_aside"]) == (str(path), reason, str(aside))
    assert aside.read_bytes() == spoiled


async def test_half_a_file_costs_no_more_than_what_was_in_it(tmp_path: Path) -> None:
    path = file_of(tmp_path, "worker-1")
    async with open_cache(tmp_path) as service:
        for number in range(3000):
            service.cache.set(f"k{number}", "x" * 100, scope="cluster")
    halve(path)
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        for number in range(3000):
            await service.cache.get(f"k{number}")
            service.cache.set(f"k{number}", "new", scope="cluster")
        await flush(service)
        assert await service.cache.get("k7") == "new"
    assert len(log.named("cache_file_replaced")) == 1
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("k2999") == "new"


async def test_a_file_that_is_damaged_meanwhile_is_replaced_and_stamps_go_on(tmp_path: Path) -> None:
    path = file_of(tmp_path, "worker-1")
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        service.cache.set("a", 1, scope="cluster")
        await flush(service)
        before = service.cache.issued_ms
        store = service._store
        assert store is not None

        def spoil() -> None:
            store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            store._db.execute("PRAGMA shrink_memory")
            damage(path)

        await service.thread.run(spoil)
        service.cache.set("b", 2, scope="cluster")
        await flush(service)
        assert await service.cache.get("b") == 2
        assert service.cache.issued_ms > before
        assert service.cache.changed == {}
    assert len(log.named("cache_file_replaced")) == 1


async def test_damage_from_any_page_on_is_set_aside_and_nothing_else_is_lost(tmp_path: Path) -> None:
    async with open_cache(tmp_path / "whole") as service:
        for number in range(2000):
            service.cache.set(f"k{number}", "x" * 300, ttl=1000 + number, scope="cluster")
    whole = file_of(tmp_path / "whole", "worker-1").read_bytes()
    replaced = 0
    for page in [*range(1, 40), *range(40, len(whole) // 4096, 40)]:
        folder, log = tmp_path / str(page), RecordingLogger()
        folder.mkdir()
        path = file_of(folder, "worker-1")
        path.write_bytes(whole[: page * 4096] + b"\xa5" * (len(whole) - page * 4096))
        async with open_cache(folder, log=log) as service:
            assert service.serves, page
            service.cache.set("a", 1)
            await flush(service)
            assert await service.cache.get("a") == 1
        assert {event for _, event, _ in log.lines} <= {"cache_file_replaced"}
        replaced += len(log.named("cache_file_replaced"))
    assert replaced > 10


@pytest.mark.parametrize("code", ["READONLY", "IOERR", "CANTOPEN", "PERM", "FULL"])
async def test_a_file_that_only_cannot_be_opened_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", 1)

    def fail(*_: object) -> None:
        error = sqlite3.OperationalError(f"it is {code}")
        error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}")
        raise error

    log = RecordingLogger()
    with monkeypatch.context() as patched:
        patched.setattr("drakkar.cache.files.Store", fail)
        async with open_cache(tmp_path, log=log) as service:
            assert not service.serves
    assert f"it is {code}" in log.named("cache_file_failed")[0]["error"]
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") == 1


async def test_a_damaged_file_that_cannot_be_set_aside_is_told_as_damaged(tmp_path: Path) -> None:
    path = file_of(tmp_path, "worker-1")
    damage(path)
    path.with_name(f"{path.name}.set-aside").mkdir()
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        assert not service.serves
    [line] = log.named("cache_file_failed")
    assert "not a database" in line["error"]
    assert "set aside" in line["error"]


def unlink(path: Path) -> None:
    path.unlink()


def move_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def put_another_in_its_place(path: Path) -> None:
    Store(path.with_name("other"), "worker-1").close()
    path.with_name("other").replace(path)


@pytest.mark.parametrize("remove", [unlink, move_the_folder, put_another_in_its_place])
async def test_a_file_that_goes_while_it_is_used_is_begun_anew_and_stamps_go_on(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    folder, log = tmp_path / "storage", RecordingLogger()
    path = file_of(folder, "worker-1")
    async with open_cache(folder, log=log) as service:
        service.cache.set("a", 1, scope="cluster")
        await flush(service)
        before = service.cache.issued_ms
        remove(path)
        for key in ("b", "c"):
            service.cache.set(key, 2, scope="cluster")
            await flush(service)
        assert service.cache.issued_ms == before + 2
    [line] = log.named("cache_file_replaced")
    assert (line["file"], line["reason"], line["using"]) == (str(path), "gone", str(path))
    async with open_cache(folder) as service:
        assert [await service.cache.get(key) for key in "abc"] == [None, 2, 2]


async def test_a_file_that_is_gone_and_cannot_be_made_anew_is_tried_again(tmp_path: Path) -> None:
    folder, log = tmp_path / "storage", RecordingLogger()
    async with open_cache(folder, log=log) as service:
        service.cache.set("a", 1)
        await flush(service)
        folder.rename(tmp_path / "elsewhere")
        folder.write_text("no folder")
        service.cache.set("b", 2)
        with pytest.raises(NotStoredError):
            await flush(service)
        folder.unlink()
        await flush(service)
    assert [event for _, event, _ in log.lines] == [
        "cache_file_unusable",
        "cache_file_replaced",
        "cache_file_recovered",
    ]
    async with open_cache(folder) as service:
        assert await service.cache.get("b") == 2


def files_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def test_only_the_last_bad_file_is_kept(tmp_path: Path) -> None:
    path = file_of(tmp_path, "worker-1")
    for _ in range(3):
        damage(path)
        async with open_cache(tmp_path) as service:
            service.cache.set("a", 1)
    assert files_in(tmp_path) == [path.name, f"{path.name}.set-aside"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process has the file to itself."""
    script = (
        f"import sqlite3, sys; db = sqlite3.connect({str(path)!r}, isolation_level=None);"
        "db.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        yield
        holder.communicate("")


async def test_a_file_that_another_process_has_is_left_to_it(tmp_path: Path) -> None:
    path = file_of(tmp_path, "worker-1")
    async with open_cache(tmp_path) as service:
        service.cache.set("a", "first")
    log = RecordingLogger()
    with locked(path):
        async with open_cache(tmp_path, log=log) as service:
            assert await service.cache.get("a") is None
            service.cache.set("b", "second")
    [line] = log.named("cache_file_replaced")
    assert (line["file"], line["reason"], line["set_aside"]) == (str(path), "locked", "")
    assert line["using"] == f"{path}.2"
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") == "first"


async def test_a_file_that_stands_in_has_nothing_of_the_time_before(tmp_path: Path) -> None:
    """What was in it may have been set anew, or deleted, in the file that was used since."""
    path = file_of(tmp_path, "worker-1")
    async with open_cache(tmp_path) as service:
        service.cache.set("a", 1)
    with locked(path):
        async with open_cache(tmp_path) as service:
            service.cache.set("b", "old", scope="cluster")
            await flush(service)
            issued_ms = service.cache.issued_ms
        async with open_cache(tmp_path) as service:
            assert await service.cache.get("b") is None
            service.cache.set("b", "new", scope="cluster")
            await flush(service)
            assert service.cache.issued_ms > issued_ms


async def test_two_workers_of_one_name_do_not_write_into_one_file(tmp_path: Path) -> None:
    log = RecordingLogger()
    async with open_cache(tmp_path) as one, open_cache(tmp_path, log=log) as other:
        one.cache.set("a", "one")
        other.cache.set("a", "other")
        await flush(one)
        await flush(other)
        assert (await one.cache.get("a"), await other.cache.get("a")) == ("one", "other")
    assert log.named("cache_file_replaced")[0]["reason"] == "locked"


async def test_where_no_file_can_be_the_cache_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    log = RecordingLogger()
    async with open_cache(tmp_path / "file", log=log) as service:
        service.cache.set("a", 1, scope="cluster")
        assert await service.cache.get("a") == 1
        assert not service.serves
    [line] = log.named("cache_file_failed")
    assert line["file"].startswith(str(tmp_path / "file"))


async def test_what_cannot_be_written_now_is_written_later(tmp_path: Path) -> None:
    clock, log = FakeClock(), RecordingLogger()
    async with open_cache(tmp_path, clock=clock, log=log, flush_interval_seconds=3) as service:
        store = service._store
        assert store is not None
        await service.thread.run(lambda: store._db.execute("PRAGMA query_only = ON"))
        service.cache.set("a", 1)
        for _ in range(5):
            await clock.advance(3)
            await until(lambda: not service._writing.locked())
        await until(lambda: log.named("cache_file_unusable") != [])
        assert service.cache.peek("a") == 1
        assert [*service.cache.changed] == ["a"]
        await service.thread.run(lambda: store._db.execute("PRAGMA query_only = OFF"))
        await flush(service)
        assert service.cache.changed == {}
    [line] = log.named("cache_file_unusable")
    assert (line["op"], line["file"]) == ("write", str(file_of(tmp_path, "worker-1")))
    assert len(log.named("cache_file_recovered")) == 1
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") == 1


class StrangeError(Exception):
    """Of no kind that a database is known to raise."""


async def test_whatever_a_write_raises_is_told_and_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Standing:
        raise StrangeError("injected")

    clock, log = FakeClock(), RecordingLogger()
    async with open_cache(tmp_path, clock=clock, log=log, flush_interval_seconds=3) as service:
        with monkeypatch.context() as patched:
            patched.setattr(Store, "write", fail)
            service.cache.set("a", 1)
            await clock.advance(3)
            await until(lambda: log.named("cache_file_unusable") != [])
        await until(lambda: not service._writing.locked())
        await clock.advance(3)
        await until(lambda: service.cache.changed == {})
        monkeypatch.setattr(Store, "write", fail)
        service.cache.set("b", 1)
    assert "injected" in log.named("cache_file_unusable")[0]["error"]
    assert [line["rows"] for line in log.named("cache_changes_lost")] == [1]
    Store(file_of(tmp_path, "worker-1"), "worker-1").close()  # it is not locked any more


async def test_whatever_a_cleanup_or_a_read_raises_is_told_and_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StrangeError("injected")

    clock, log = FakeClock(), RecordingLogger()
    async with open_cache(tmp_path, clock=clock, log=log, cleanup_interval_seconds=60) as service:
        with monkeypatch.context() as patched:
            patched.setattr(Store, "expire", fail)
            patched.setattr(Store, "read", fail)
            await clock.advance(60)
            await until(lambda: log.named("cache_file_unusable") != [])
            assert await service.cache.get("a") is None
        assert [line["op"] for line in log.named("cache_file_unusable")] == ["write", "read"]
        assert not any(task.done() for task in service._tasks)


@pytest.mark.parametrize("key", ["\ud800", 10**30, (1, 2)], ids=repr)
async def test_what_can_never_be_written_keeps_nothing_else_from_the_disk(tmp_path: Path, key: Any) -> None:
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        service.cache.set("a", 1)
        service.cache.changed[key] = None
        service.cache.set("b", 2)
        service.cache.changed["c"] = own("c")._replace(value=key)
        await flush(service)
        assert service.cache.changed == {}
        service.cache.set("d", 4)
    assert [line["rows"] for line in log.named("cache_changes_lost")] == [2]
    async with open_cache(tmp_path) as service:
        assert [await service.cache.get(key) for key in "abcd"] == [1, 2, None, 4]


async def test_what_is_lost_at_the_stop_is_told(tmp_path: Path) -> None:
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        store = service._store
        assert store is not None
        await service.thread.run(lambda: store._db.execute("PRAGMA query_only = ON"))
        service.cache.set("a", 1)
    assert [line["rows"] for line in log.named("cache_changes_lost")] == [1]


async def test_a_disk_that_hangs_holds_up_no_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drakkar.cache.service.STOP_SECONDS", 0.2)
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        hanging = asyncio.ensure_future(service.thread.run(lambda: time.sleep(10)))
        await asyncio.sleep(0)  # the thread has it
        service.cache.set("a", 1)
        began = time.monotonic()
    assert time.monotonic() - began < 8
    assert log.named("cache_changes_lost")
    await hanging


# -- names


def test_each_worker_name_has_a_file_of_its_own(tmp_path: Path) -> None:
    names = ["a.b", "a_b", "a b", "A.b", "a/b", "../a", "名" * 200, "名" * 199, "x" * 200, "", "."]
    files = {file_of(tmp_path, name) for name in names}
    assert len(files) == len(names)
    for file in files:
        assert file.parent == tmp_path
        assert len(f"{file.name}.set-aside-wal".encode()) < 255


async def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    async with open_cache(folder) as service:
        service.cache.set("a", 1)
        await flush(service)
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
        assert folder.stat().st_mode & 0o777 == 0o700
