"""A folder that hangs, for real: it costs a lease by its own deadline, and never makes two."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
from drakkar.clock import SystemClock
from drakkar.errors import LeaseLost
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.keeper import LeaseKeeper
from drakkar.telemetry.metrics import LeaseMetrics
from drakkar_filesystem._client import Proceed
from drakkar_filesystem.registry import elapsed_seconds
from prometheus_client import CollectorRegistry
from support.lease_folders import NAME, LeaseFolder, granted, refused
from support.mounts import Operation, passthrough

TTL = 4.0


def keeper_of(fleet: LeaseFolder, worker: str, **options: str) -> LeaseKeeper:
    timing = LeaseTiming(ttl_seconds=TTL, renew_seconds=0.5, retry_seconds=0.5)
    return LeaseKeeper(
        fleet.make(elapsed_seconds, **options),
        fleet.context(worker, f"{worker}-1", TTL, timing.call_seconds),
        timing,
        clock=SystemClock(),
        logger=fleet.log,
        metrics=LeaseMetrics(CollectorRegistry()),
    )


async def test_a_folder_that_hangs_costs_the_lease_before_anybody_else_has_it(tmp_path: Path) -> None:
    """The trial "The renewal call outlives the lease", on files."""
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        theirs, ours = LeaseFolder(mount.path), LeaseFolder(mount.source)
        first = keeper_of(theirs, "worker-1", boot_id="another-host")
        second = keeper_of(ours, "worker-2")
        first.start()
        second.start()
        try:
            handle = await first.acquire(NAME)
            standby = asyncio.create_task(second.acquire(NAME))
            await asyncio.sleep(1.5 * TTL)
            assert not standby.done()
            handle.check()

            mount.hang()
            began = time.monotonic()
            await handle.wait_lost()
            lost = elapsed_seconds()

            assert time.monotonic() - began < TTL + 1
            with pytest.raises(LeaseLost):
                handle.check()
            follower = await standby
            assert elapsed_seconds() > lost
            assert follower.token == handle.token + 1
            mount.work()
            again = asyncio.create_task(first.acquire(NAME))
            await asyncio.sleep(TTL / 2)
            assert not again.done()
            follower.check()
            again.cancel()
            await second.release(follower)
        finally:
            await first.stop()
            await second.stop()


STEPS: list[tuple[Operation, str]] = [
    ("readdir", "gc"),
    ("open", "gc/1"),
    ("create", ".tmp"),
    ("write", ".tmp"),
    ("link", "gc/1"),
    ("link", "gc/.1"),
    ("rename", ".tmp"),  # how FUSE deletes an opened file
    ("fsync", "gc"),
    ("unlink", "gc/1"),
]


@pytest.mark.parametrize(("operation", "name"), STEPS)
async def test_an_acquire_that_was_given_up_does_not_become_a_grant_that_nobody_knows(
    tmp_path: Path, operation: Operation, name: str
) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        theirs, ours = LeaseFolder(mount.path), LeaseFolder(mount.source)
        second = await ours.start("worker-2")
        before = await granted(second)
        await second.release(NAME, before.token)
        first = await theirs.start("worker-1", timeout_seconds=0.5, boot_id="another-host")

        mount.hang_at(operation, name)
        with pytest.raises(TimeoutError, match="did not answer within"):
            await first.acquire(NAME)
        mount.work()
        async with asyncio.timeout(20):  # the job has ended when the thread takes another one
            while True:
                try:
                    await first.renew([before])
                    await first._call(first._renewing, lambda proceed: None)
                    break
                except TimeoutError:
                    continue

        assert (await granted(second)).token > before.token
        await first.stop()
        await theirs.stop()
        await ours.stop()


async def test_a_listing_that_hangs_delays_no_renewal(fleet: LeaseFolder) -> None:
    first = await fleet.start()
    lease = await granted(first)
    hung = threading.Event()
    listing = asyncio.create_task(first._call(first._looking, lambda _: hung.wait(60)))
    await asyncio.sleep(0.05)

    assert (await first.renew([lease])).kept == [lease]
    assert not listing.done()

    hung.set()
    await listing


async def test_many_acquires_do_not_stand_in_line_before_a_renewal(fleet: LeaseFolder) -> None:
    first = await fleet.start()
    lease = await granted(first)
    order: list[str] = []
    started, let_go = threading.Event(), threading.Event()

    def slow(_: Proceed) -> None:
        started.set()
        let_go.wait(60)

    busy = asyncio.create_task(first._call(first._renewing, slow))
    await asyncio.sleep(0.05)
    assert started.is_set()

    async def note(what: str, call: object) -> None:
        await call  # type: ignore[misc]
        order.append(what)

    acquires = [asyncio.create_task(note("acquire", first.acquire(f"gc-{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    renewal = asyncio.create_task(note("renew", first.renew([lease])))
    await asyncio.sleep(0.05)
    let_go.set()
    await asyncio.gather(busy, renewal, *acquires)

    assert order.index("renew") <= 1


async def test_stopping_does_not_wait_for_a_folder_that_hangs(tmp_path: Path) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        fleet = LeaseFolder(mount.path)
        first = await fleet.start(timeout_seconds=0.5)
        await granted(first)
        waiting = asyncio.create_task(first.wait([NAME], 60))
        await asyncio.sleep(0.1)
        mount.hang()
        began = time.monotonic()

        await first.stop()
        with pytest.raises((TimeoutError, RuntimeError, asyncio.CancelledError)):
            await waiting

        assert time.monotonic() - began < 5


async def test_a_wait_on_a_folder_that_hangs_ends(tmp_path: Path) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount") as mount:
        theirs, ours = LeaseFolder(mount.path), LeaseFolder(mount.source)
        first, second = await ours.start("worker-1"), await theirs.start("worker-2", timeout_seconds=0.5)
        await granted(first)
        await refused(second)
        mount.hang()

        with pytest.raises(TimeoutError, match="did not answer within"):
            await second.wait([NAME], 0.1)

        mount.work()
        await first.release(NAME)
        async with asyncio.timeout(20):
            while await second.wait([NAME], 1) != {NAME}:
                pass
        await theirs.stop()
        await ours.stop()
