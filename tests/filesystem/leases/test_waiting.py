"""Waiting: woken when a lease may be free, and never too late for a change that came before."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from drakkar_filesystem import _lookout, _notices, leases
from drakkar_filesystem._generations import Sight, look
from drakkar_filesystem.leases import FilesystemLeases
from support.lease_folders import NAME, TTL, LeaseFolder, granted, refused

QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


async def woken(waiting: Awaitable[frozenset[str]], limit_seconds: float = 20) -> frozenset[str]:
    async with asyncio.timeout(limit_seconds):
        return await waiting


@pytest.fixture
def no_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host where the kernel tells of nothing."""

    def unavailable(self: object) -> None:
        raise OSError(24, "inotify instances are used up")

    monkeypatch.setattr(_notices.Notices, "open", unavailable)


async def pair(fleet: LeaseFolder) -> tuple[FilesystemLeases, FilesystemLeases]:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    await granted(first)
    await refused(second)
    return first, second


async def test_a_release_wakes_a_waiter_at_once(fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "TOLD_POLL_SECONDS", 1e9)
    monkeypatch.setattr(leases, "POLL_SECONDS", 1e9)
    first, second = await pair(fleet)
    waiting = asyncio.create_task(second.wait([NAME], 1e9))
    await asyncio.sleep(0.2)
    assert not waiting.done()

    await first.release(NAME)

    assert await woken(waiting) == {NAME}


@pytest.mark.usefixtures("no_notices")
async def test_a_release_wakes_a_waiter_soon_where_the_kernel_tells_nothing(fleet: LeaseFolder) -> None:
    first, second = await pair(fleet)
    waiting = asyncio.create_task(second.wait([NAME], 60))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    began = time.monotonic()

    await first.release(NAME)

    assert await woken(waiting) == {NAME}
    assert time.monotonic() - began < 20
    assert fleet.log.named("lease_notices_unavailable")


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that was asked to tell, and says nothing: all that happens, happens on another host."""

    async def listen(self: object, inotify: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(_notices.Notices, "_listen", listen)


@pytest.mark.usefixtures("deaf")
async def test_a_release_on_another_host_is_noticed_by_looking(fleet: LeaseFolder) -> None:
    """Of what is done there the kernel tells nothing, so its silence means nothing."""
    first = await fleet.start("worker-1", boot_id="another-host")
    second = await fleet.start("worker-2")
    await granted(first)
    await refused(second)
    waiting = asyncio.create_task(second.wait([NAME], 60))
    await asyncio.sleep(0.3)

    await first.release(NAME)

    assert await woken(waiting, 5) == {NAME}


@pytest.mark.usefixtures("deaf")
async def test_silence_about_a_holder_on_this_host_is_trusted_for_ten_seconds(fleet: LeaseFolder) -> None:
    first, second = [await fleet.start(f"worker-{number}", ttl_seconds=60) for number in (1, 2)]
    await granted(first)
    await refused(second)
    waiting = asyncio.create_task(second.wait([NAME], 60))
    await asyncio.sleep(0.3)

    await first.release(NAME)
    await asyncio.sleep(0.7)
    assert not waiting.done()
    fleet.clock.now += 10

    assert await woken(waiting, 5) == {NAME}


@pytest.mark.usefixtures("deaf")
async def test_what_was_refused_is_looked_at_once_whatever_the_kernel_says(fleet: LeaseFolder) -> None:
    first, second = await pair(fleet)
    assert await second.wait([NAME], 0) == frozenset()
    await refused(second)
    await first.release(NAME)

    assert await second.wait([NAME], 0) == {NAME}


@pytest.mark.parametrize("notices", [True, False])
async def test_no_release_is_lost_between_the_refusal_and_the_wait(
    fleet: LeaseFolder, notices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "TOLD_POLL_SECONDS", 1e9)
    monkeypatch.setattr(leases, "POLL_SECONDS", 1e9)
    if not notices:
        monkeypatch.setattr(_notices.Notices, "watch", lambda *_: False)
    first, second = await pair(fleet)
    assert await second.wait([NAME], 0) == frozenset()  # so it is watched already
    for _ in range(5):
        await refused(second)
        await first.release(NAME)

        assert await woken(second.wait([NAME], 1e9)) == {NAME}

        await granted(first)


async def test_a_lease_that_changed_hands_since_the_refusal_is_told(fleet: LeaseFolder) -> None:
    first, second = await pair(fleet)
    third = await fleet.start("worker-3")
    await first.release(NAME)
    await granted(third)

    assert await woken(second.wait([NAME], 60)) == {NAME}

    await refused(second)
    assert await second.wait([NAME], 0.3) == frozenset()


async def test_a_renewal_wakes_nobody(fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    await refused(second)
    waiting = asyncio.create_task(second.wait([NAME], 0.6))
    await asyncio.sleep(0.2)
    looked: list[str] = []

    def noted(leases: int, place: str) -> Sight:
        looked.append(place)
        return look(leases, place)

    monkeypatch.setattr(_lookout, "look", noted)

    for _ in range(20):
        await first.renew([lease])

    assert await waiting == frozenset()
    assert looked == []


async def test_a_record_that_stood_still_for_its_ttl_is_told(fleet: LeaseFolder) -> None:
    _, second = await pair(fleet)
    waiting = asyncio.create_task(second.wait([NAME], 60))
    await asyncio.sleep(0.3)
    assert not waiting.done()

    fleet.clock.now += TTL

    assert await woken(waiting) == {NAME}
    await granted(second)


async def test_waiting_sees_renewals_of_other_hosts_so_that_watching_begins_with_the_last(
    fleet: LeaseFolder,
) -> None:
    first = await fleet.start("worker-1", boot_id="another-host")
    second = await fleet.start("worker-2")
    lease = await granted(first)
    await refused(second)
    fleet.clock.now += 0.5 * TTL
    await first.renew([lease])
    await second.wait([NAME], 0)

    fleet.clock.now += 0.8 * TTL
    assert (await refused(second)).retry_after_seconds == pytest.approx(0.2 * TTL)


@pytest.mark.parametrize("what", ["record", "place"])
async def test_a_record_that_an_operator_deletes_is_told(fleet: LeaseFolder, what: str) -> None:
    _, second = await pair(fleet)
    waiting = asyncio.create_task(second.wait([NAME], 60))
    await asyncio.sleep(0.2)

    if what == "record":
        fleet.newest().unlink()
    else:
        for path in fleet.place().iterdir():
            path.unlink()
        fleet.place().rmdir()

    assert await woken(waiting) == {NAME}


async def test_it_goes_on_being_told_when_the_folder_was_made_anew(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await pair(fleet)
    await second.wait([NAME], 0)
    for path in fleet.place().iterdir():
        path.unlink()
    fleet.place().rmdir()
    await granted(first)
    await refused(second)
    monkeypatch.setattr(leases, "TOLD_POLL_SECONDS", 1e9)
    waiting = asyncio.create_task(second.wait([NAME], 60))
    await asyncio.sleep(0.5)

    await first.release(NAME)

    assert await woken(waiting, 5) == {NAME}


async def test_events_that_the_kernel_had_to_drop_make_it_look_at_everything(fleet: LeaseFolder) -> None:
    first, second = await pair(fleet)
    await second.wait([NAME], 0)
    assert NAME not in second._notices.dirty
    limit = int(QUEUE.read_text())  # noqa: ASYNC240  not on a disk
    path = fleet.place() / "x"
    path.touch()
    for number in range(limit // 2 + 100):  # the loop has no time to read them; two alike in a row are one
        path.chmod(0o600)
        path.rename(fleet.place() / ("x" if number % 2 else "y"))
        path = fleet.place() / ("x" if number % 2 else "y")

    await first.release(NAME)

    assert await woken(second.wait([NAME], 60)) == {NAME}


async def test_a_thousand_names_are_waited_for(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    names = [f"gc-leader-{number}" for number in range(300)]
    for name in names:
        await granted(first, name)
        await refused(second, name)
    waiting = asyncio.create_task(second.wait(names, 60))
    await asyncio.sleep(0.3)

    await first.release(names[123])

    assert await woken(waiting) == {names[123]}


async def test_names_that_nobody_waits_for_any_more_are_not_watched_for_ever(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    for number in range(60):
        await granted(first, f"gc-{number}")
        await refused(second, f"gc-{number}")
        await second.wait([f"gc-{number}"], 0)

    assert len(second._notices._watches) <= 20


async def test_watches_are_limited_and_the_rest_is_looked_at(
    fleet: LeaseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_notices, "MAX_WATCHES", 1)
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    for name in ("gc-1", "gc-2"):
        await granted(first, name)
        await refused(second, name)
    waiting = asyncio.create_task(second.wait(["gc-1", "gc-2"], 60))
    await asyncio.sleep(0.2)

    await first.release("gc-2")

    assert await woken(waiting) == {"gc-2"}


async def test_it_returns_nothing_after_the_time(fleet: LeaseFolder) -> None:
    _, second = await pair(fleet)

    assert await woken(second.wait([NAME], 0.05)) == frozenset()
    assert await woken(second.wait([], 0.05)) == frozenset()


async def test_a_name_without_a_record_is_free(fleet: LeaseFolder) -> None:
    first = await fleet.start()

    assert await woken(first.wait(["never-seen"], 60)) == {"never-seen"}


async def test_a_wait_that_was_cancelled_can_be_repeated(fleet: LeaseFolder) -> None:
    first, second = await pair(fleet)
    for _ in range(20):
        waiting = asyncio.create_task(second.wait([NAME], 60))
        await asyncio.sleep(0.005)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    await first.release(NAME)

    assert await woken(second.wait([NAME], 60)) == {NAME}


async def test_a_bad_name_does_not_keep_others_from_being_told(fleet: LeaseFolder) -> None:
    first, second = await pair(fleet)
    (fleet.leases / "bad").write_bytes(b"")
    waiting = asyncio.create_task(second.wait(["bad", NAME], 60))
    await asyncio.sleep(0.2)
    assert not waiting.done()

    await first.release(NAME)

    assert await woken(waiting) == {NAME}


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_it_leaves_no_descriptor_and_no_task_behind(fleet: LeaseFolder) -> None:
    before = descriptors()
    first, second = await pair(fleet)
    await second.wait([NAME], 0)
    await first.release(NAME)

    await first.stop()
    await second.stop()
    await second.stop()

    assert descriptors() == before
    assert [task for task in asyncio.all_tasks() if "lease" in task.get_name()] == []
