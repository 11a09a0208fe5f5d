"""The object store as programs use it."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objectstore.balance import TOLERANCE, choose
from objectstore.errors import ChunkMissing, NoSuchObject, Unreadable, UploadWithdrawn
from objectstore.manifest import Manifest
from objectstore.names import Copy, Version
from objectstore.store import Store
from objectstore.tree import SizedCopy
from support.object_worlds import CHUNK_BYTES, ObjectWorld


@pytest.fixture(name="world")
def a_world(tmp_path: Path) -> ObjectWorld:
    return ObjectWorld(tmp_path)


@pytest.fixture(name="store")
def a_store(world: ObjectWorld) -> Store:
    return world.store()


def copies(world: ObjectWorld) -> list[Copy]:
    return sorted(sized.copy for sized in world.tree().sized_copies())


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 10 * CHUNK_BYTES + 7])
async def test_what_was_put_is_what_comes_back(store: Store, size: int) -> None:
    data = bytes(n % 251 for n in range(size))
    manifest = await store.put("photos", "cat.jpg", data)
    assert manifest.size == size
    assert await store.get("photos", "cat.jpg") == data


@pytest.mark.parametrize("key", ["a/b", "../up", ".", "ä ö", "50%", "a@b@c.json", "\n", "x" * 180])
async def test_a_key_may_be_any_text(store: Store, key: str) -> None:
    await store.put("photos", key, key.encode())
    await store.put("photos", "another", b"")
    assert await store.get("photos", key) == key.encode()
    assert {manifest.key for manifest in await store.list("photos")} == {key, "another"}


@pytest.mark.parametrize("key", ["", "x" * 181, "\udc80"])
async def test_a_key_that_no_file_could_be_called_is_refused(store: Store, key: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be a key|surrogates not allowed"):
        await store.put("photos", key, b"")


@pytest.mark.parametrize("bucket", ["", "Photos", "a/b", "..", "-a", "a-", "x" * 64, "a.b"])
async def test_a_bucket_that_could_lead_elsewhere_is_refused(store: Store, bucket: str) -> None:
    with pytest.raises(ValueError, match="cannot be a bucket"):
        await store.put(bucket, "key", b"")
    with pytest.raises(ValueError, match="cannot be a bucket"):
        await store.get(bucket, "key")


async def test_an_object_that_is_put_again_is_replaced(world: ObjectWorld, store: Store) -> None:
    await store.put("photos", "cat.jpg", b"old")
    await store.put("photos", "cat.jpg", b"new")
    assert await store.get("photos", "cat.jpg") == b"new"
    assert len(world.tree().versions("photos")) == 1


async def test_equal_bytes_are_kept_once(world: ObjectWorld, store: Store) -> None:
    await store.put("photos", "one", b"x" * CHUNK_BYTES * 3)
    await store.put("audio", "two", b"x" * CHUNK_BYTES)
    assert len(copies(world)) == 1


async def test_what_was_deleted_is_gone(store: Store) -> None:
    await store.put("photos", "cat.jpg", b"data")
    assert await store.delete("photos", "cat.jpg") is True
    assert await store.delete("photos", "cat.jpg") is False
    with pytest.raises(NoSuchObject):
        await store.get("photos", "cat.jpg")
    assert await store.list("photos") == []


async def test_an_object_is_there_until_it_expires(world: ObjectWorld, store: Store) -> None:
    await store.put("photos", "cat.jpg", b"data", expires_in_seconds=10)
    world.wall += 9.9
    assert await store.get("photos", "cat.jpg") == b"data"
    world.wall += 0.1
    with pytest.raises(NoSuchObject):
        await store.get("photos", "cat.jpg")
    assert await store.list("photos") == []
    assert await store.delete("photos", "cat.jpg") is False


async def test_a_damaged_chunk_is_noticed(world: ObjectWorld, store: Store) -> None:
    await store.put("photos", "cat.jpg", b"data")
    [copy] = copies(world)
    (world.root / copy.name).write_bytes(b"date")
    with pytest.raises(ChunkMissing):
        await store.get("photos", "cat.jpg")


async def test_a_sound_copy_is_read_when_another_one_is_damaged(world: ObjectWorld, store: Store) -> None:
    await store.put("photos", "cat.jpg", b"data")
    [copy] = copies(world)
    (world.root / Copy(copy.chunk, 2, "0" * 16, 1).name).write_bytes(b"date")
    assert await store.get("photos", "cat.jpg") == b"data"


async def test_an_upload_that_is_withdrawn_is_tried_again(world: ObjectWorld) -> None:
    tree = world.tree()
    withdrawals = 0

    def withdraw() -> None:
        nonlocal withdrawals
        for path in tree.root.glob("uploads/*.json"):
            path.unlink()
            withdrawals += 1

    tree.pauses, tree.on_pause = set(range(60)), withdraw
    await world.store(tree).put("photos", "cat.jpg", b"data")
    assert withdrawals > 0
    assert await world.store().get("photos", "cat.jpg") == b"data"


async def test_an_upload_that_is_withdrawn_for_ever_is_given_up(world: ObjectWorld) -> None:
    tree = world.tree()

    def withdraw() -> None:
        for path in tree.root.glob("uploads/*.json"):
            path.unlink()

    tree.pauses, tree.on_pause = set(range(10_000)), withdraw
    with pytest.raises(UploadWithdrawn):
        await world.store(tree).put("photos", "cat.jpg", b"data")
    assert await world.store().list("photos") == []


async def test_a_cancelled_upload_leaves_nothing_on_its_way(world: ObjectWorld, store: Store) -> None:
    for ticks in range(40):
        putting = asyncio.create_task(store.put("photos", f"{ticks}", b"data" * 100))
        for _ in range(ticks):
            await asyncio.sleep(0.0005)
        putting.cancel()
        await asyncio.wait({putting})
        assert [*world.tree().unfinished()] == []


async def test_many_writers_of_one_key_agree_on_who_was_last(world: ObjectWorld, store: Store) -> None:
    contents = [f"{n}".encode() for n in range(20)]
    await asyncio.gather(*(store.put("photos", "cat.jpg", data) for data in contents))
    await world.rounds("lifecycle")
    found = {await world.store().get("photos", "cat.jpg") for _ in range(5)}
    assert len(found) == 1
    assert found <= {*contents}
    assert len(world.tree().versions("photos")) == 1


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{", b'{"chunks": 1}', b'{"chunks": []}', b"\xff"])
def test_what_is_no_manifest_is_called_so(data: bytes) -> None:
    with pytest.raises(Unreadable):
        Manifest.decode(data)


def test_a_store_with_an_unreadable_manifest_collects_nothing(world: ObjectWorld) -> None:
    async def play() -> None:
        store = world.store()
        await store.put("photos", "cat.jpg", b"data")
        [version] = world.tree().versions("photos")
        (world.root / version.name).write_bytes(b"garbage")
        for _ in range(3):
            with pytest.raises(Unreadable):
                await world.rounds("gc", 2)

    asyncio.run(play())
    assert len(copies(world)) == 1


@pytest.mark.parametrize("name", ["", "x.json", "x@1@y.json", "x@0000000001@.json", "x@0000000001@zz.json"])
def test_a_file_that_is_no_manifest_is_none(name: str) -> None:
    assert Version.parse("photos", name) is None


sizes = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 100)), max_size=60)


@given(sizes)
def test_moves_make_the_volumes_equal_and_come_to_an_end(chunks: list[tuple[int, int]]) -> None:
    present = [
        SizedCopy(Copy(f"{n:064x}-{n:016x}", 1, f"{n:016x}", volume), size)
        for n, (volume, size) in enumerate(chunks)
    ]
    for _ in range(60):
        moved = set(choose(present))
        if not moved:
            break
        before = difference(present)
        present = [
            SizedCopy(Copy(c.chunk, c.generation + 1, c.nonce, 1 - c.volume), sized.size)
            if c in moved
            else sized
            for sized in present
            for c in [sized.copy]
        ]
        assert difference(present) < before
    largest = max((sized.size for sized in present), default=0)
    assert difference(present) <= max(TOLERANCE * sum(sized.size for sized in present), largest)


def difference(present: list[SizedCopy]) -> int:
    return abs(sum(sized.size * (1 if sized.copy.volume else -1) for sized in present))
