"""What application code sees: set, get, peek, delete, in."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from drakkar.cache.cache import MAX_CHANGES
from drakkar.cache.exchange import NotStoredError
from drakkar.cache.files import file_of
from drakkar.cache.memory import Memory
from drakkar.cache.service import STOP_SECONDS
from support.caches import NOW_MS, a_row, flush, open_cache
from support.clock import FakeClock
from support.log import RecordingLogger

VALUES: list[Any] = [None, True, 0, 1.5, "", "größe", [], {}, {"a": [1, {"b": None}]}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("scope", ["memory", "local", "cluster", "global"])
async def test_a_value_comes_back(tmp_path: Path, value: Any, scope: Any) -> None:
    async with open_cache(tmp_path) as service:
        cache = service.cache
        cache.set("a", value, scope=scope)
        assert cache.peek("a") == value
        assert await cache.get("a") == value
        assert "a" in cache


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_value_comes_back_after_a_restart(tmp_path: Path, value: Any) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", value)
    async with open_cache(tmp_path) as service:
        assert "a" not in service.cache
        assert service.cache.peek("a") is None
        assert await service.cache.get("a") == value
        assert service.cache.peek("a") == value
        assert "a" in service.cache


async def test_what_was_never_set_is_none(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") is None
        assert service.cache.peek("a") is None
        assert "a" not in service.cache
        assert 7 not in service.cache


async def test_the_value_is_a_copy(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        value = {"a": [1, 2]}
        service.cache.set("a", value)
        value["a"].append(3)
        assert await service.cache.get("a") == {"a": [1, 2]}


async def test_a_tuple_comes_back_as_a_list_before_and_after_it_was_written(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", (1, (2,)))
        assert service.cache.peek("a") == [1, [2]]


async def test_a_new_value_replaces_the_old_one(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        for value in (1, 2):
            service.cache.set("a", value)
            assert service.cache.peek("a") == value
            await flush(service)
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") == 2


async def test_a_value_in_memory_alone_leaves_no_older_one_on_disk(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", "old", scope="cluster")
        await flush(service)
        service.cache.set("a", "new", scope="memory")
        assert await service.cache.get("a") == "new"
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") is None


@pytest.mark.parametrize("written", [False, True])
async def test_a_deleted_value_is_gone_for_good(tmp_path: Path, written: bool) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", 1)
        if written:
            await flush(service)
        service.cache.delete("a")
        service.cache.delete("never there")
        assert "a" not in service.cache
        assert await service.cache.get("a") is None
        await flush(service)
        assert await service.cache.get("a") is None
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") is None


@pytest.mark.parametrize("key", ["\ud800", "", "a\0", "x" * 2049, 10**30, (1, 2), ["u"], None], ids=repr)
async def test_there_is_nothing_under_what_can_be_no_key(tmp_path: Path, key: Any) -> None:
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        service.cache.set("a", 1)
        service.cache.delete(key)
        assert await service.cache.get(key) is None
        assert service.cache.peek(key) is None
        assert key not in service.cache
        await flush(service)
    async with open_cache(tmp_path, log=log) as service:
        assert await service.cache.get("a") == 1
    assert log.lines == []


async def test_a_value_that_is_set_again_after_its_deletion_stays(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", 1)
        await flush(service)
        service.cache.delete("a")
        service.cache.set("a", 2)
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": ""},
        {"value": object()},
        {"ttl": 0},
        {"ttl": -1},
        {"ttl": float("nan")},
        {"ttl": float("inf")},
        {"ttl": True},
        {"ttl": "5"},
        {"scope": "planet"},
        {"scope": None},
    ],
    ids=repr,
)
async def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", "old")
        with pytest.raises(ValueError, match=r"^a cache"):
            service.cache.set(**{"key": "a", "value": "new"} | wrong)
        assert await service.cache.get("a") == "old"


# -- expiry


async def test_an_expired_value_is_never_returned(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_cache(tmp_path, clock=clock, cleanup_interval_seconds=1e9) as service:
        cache = service.cache
        for scope in ("memory", "cluster"):
            cache.set(scope, 1, ttl=10, scope=scope)
        await flush(service)
        clock.step_wall(9.9)
        assert (cache.peek("memory"), await cache.get("cluster"), "cluster" in cache) == (1, 1, True)
        clock.step_wall(0.2)
        for key in ("memory", "cluster"):
            assert cache.peek(key) is None
            assert await cache.get(key) is None
            assert key not in cache


async def test_an_expired_value_is_not_read_from_disk(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_cache(tmp_path, clock=clock) as service:
        service.cache.set("a", 1, ttl=10)
    clock.step_wall(10)
    async with open_cache(tmp_path, clock=clock) as service:
        assert await service.cache.get("a") is None


async def test_a_value_set_anew_without_a_ttl_does_not_expire(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_cache(tmp_path, clock=clock) as service:
        service.cache.set("a", 1, ttl=10)
        await flush(service)
        service.cache.set("a", 2)
        await flush(service)
        clock.step_wall(1e6)
        assert await service.cache.get("a") == 2


async def test_the_longest_ttl_is_one_that_can_be_stored(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        for ttl in (1e300, 10**400):
            service.cache.set("a", 1, ttl=ttl)
            await flush(service)
            assert service.cache.peek("a") == 1


# -- memory


async def test_what_has_no_room_in_memory_is_read_from_disk(tmp_path: Path) -> None:
    async with open_cache(tmp_path, max_memory_entries=10) as service:
        cache = service.cache
        for number in range(100):
            cache.set(f"k{number}", number)
        assert len(cache._entries) == 10
        assert all(cache.peek(f"k{number}") == number for number in range(100)), "it is not on disk yet"
        await flush(service)
        assert [await cache.get(f"k{number}") for number in range(100)] == list(range(100))
        assert len(cache._entries) == 10


def test_what_was_used_stays_longer() -> None:
    memory = Memory(max_entries=3)
    for key in "abc":
        memory.put(a_row(key))
    memory.entries["a"].read()
    memory.put(a_row("d"))
    assert [*memory.entries] == ["c", "d", "a"]


def test_one_that_comes_in_passes_over_a_bounded_number_of_others() -> None:
    memory = Memory(max_entries=1000)
    for number in range(1000):
        memory.put(a_row(f"k{number}")).read()
    memory.put(a_row("new"))
    assert sum(not entry.used for entry in memory.entries.values()) == 17


def test_memory_is_bounded_by_size_as_well() -> None:
    memory = Memory(max_entries=1000, max_bytes=1000)
    for number in range(100):
        memory.put(a_row(f"{number:02}", size_bytes=98))
    assert len(memory.entries) == 10
    memory.put(a_row("large", size_bytes=2000))
    assert not memory.entries
    memory.put(a_row("small", size_bytes=998 - len("small")))
    assert [*memory.entries] == ["small"]


# -- what happens at the same time


async def test_many_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", {"b": 1})
    async with open_cache(tmp_path) as service:
        got = await asyncio.gather(*(service.cache.get("a") for _ in range(50)))
        assert got == [{"b": 1}] * 50


@pytest.mark.parametrize("change", ["set", "delete", "pulled"])
async def test_a_read_that_was_overtaken_leaves_nothing_old_behind(tmp_path: Path, change: str) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", "old", scope="cluster")
    async with open_cache(tmp_path) as service:
        reading = asyncio.ensure_future(service.cache.get("a"))
        await asyncio.sleep(0)  # it has asked the disk
        if change == "set":
            service.cache.set("a", "new")
        elif change == "delete":
            service.cache.delete("a")
        else:
            await service.keep([a_row("a", NOW_MS * 2, value='"new"')])
        await reading
        await flush(service)
        assert await service.cache.get("a") == (None if change == "delete" else "new")


async def test_a_read_that_is_cancelled_harms_nobody(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", 1)
    async with open_cache(tmp_path) as service:
        reads = [asyncio.ensure_future(service.cache.get("a")) for _ in range(4)]
        await asyncio.sleep(0)
        reads[0].cancel()
        assert await asyncio.gather(*reads[1:]) == [1, 1, 1]
        assert service.cache._loading == {}


async def test_what_is_set_while_it_is_written_is_written_next(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", 1)
        writing = asyncio.ensure_future(flush(service))
        await asyncio.sleep(0)
        service.cache.set("a", 2)
        await writing
        assert [*service.cache.changed] == ["a"]
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") == 2


async def test_a_stopped_cache_takes_nothing_more(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as service:
        service.cache.set("a", 1)
    with pytest.raises(RuntimeError):
        service.cache.set("b", 1)
    assert await service.cache.get("a") == service.cache.peek("a") == 1
    service.cache.delete("a")
    assert await service.cache.get("a") is None
    async with open_cache(tmp_path) as service:
        assert await service.cache.get("a") == 1


# -- without a disk


async def test_without_a_folder_it_is_kept_in_memory_and_says_so_once() -> None:
    log = RecordingLogger()
    async with open_cache(None, log=log) as service:
        service.cache.set("a", 1, scope="global")
        assert await service.cache.get("a") == 1
        assert service.cache.changed == {}
        assert not service.serves
        assert service.features() == {}
    assert [event for _, event, _ in log.lines] == ["cache_file_disabled_no_dir"]


async def test_what_cannot_be_written_for_long_is_bounded_and_told(tmp_path: Path) -> None:
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        store = service._store
        assert store is not None
        await service.thread.run(lambda: store._db.execute("PRAGMA query_only = ON"))
        service.cache._change("first", None)
        with pytest.raises(NotStoredError):
            await flush(service)
        for number in range(MAX_CHANGES + 9):
            service.cache._change(f"k{number}", None)
        assert len(service.cache.changed) == MAX_CHANGES
        assert "k8" not in service.cache.changed
        assert "k9" in service.cache.changed
        await service.thread.run(lambda: store._db.execute("PRAGMA query_only = OFF"))
        await flush(service)
    [line] = log.named("cache_changes_lost")
    assert (line["rows"], line["file"]) == (10, str(file_of(tmp_path, "worker-1")))


async def test_what_waits_for_a_disk_that_hangs_is_bounded(tmp_path: Path) -> None:
    clock, log, gate = FakeClock(), RecordingLogger(), threading.Event()
    async with open_cache(tmp_path, clock=clock, log=log) as service:
        hanging = asyncio.ensure_future(service.thread.run(gate.wait))
        service.cache._change("first", None)
        writing = asyncio.ensure_future(flush(service))
        await asyncio.sleep(0)
        assert service._writing.locked()
        clock.jump(STOP_SECONDS + 1)
        for number in range(MAX_CHANGES + 9):
            service.cache._change(f"k{number}", None)
        assert len(service.cache.changed) == MAX_CHANGES
        gate.set()
        await asyncio.gather(hanging, writing)
    assert [line["rows"] for line in log.named("cache_changes_lost")] == [10]


async def test_a_disk_that_works_gets_all_that_is_set_however_much_at_once(tmp_path: Path) -> None:
    log = RecordingLogger()
    async with open_cache(tmp_path, log=log) as service:
        for number in range(MAX_CHANGES + 10):
            service.cache.set(f"k{number}", number)
        await flush(service)
        assert [await service.cache.get(f"k{number}") for number in (0, 9, MAX_CHANGES)] == [
            0,
            9,
            MAX_CHANGES,
        ]
    assert log.lines == []
