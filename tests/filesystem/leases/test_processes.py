"""Real processes on one folder: killed, stopped, with wrong clocks, forked."""

import asyncio
import signal
from pathlib import Path

import pytest
from drakkar_filesystem._holders import read_boot_id
from support.folders import child
from support.forks import in_a_fork, use_leases
from support.lease_folders import NAME, LeaseFolder, boottime, granted, refused, wanting
from support.lease_folders import TTL as FLEET_TTL
from support.mounts import passthrough
from support.waiting import until

TTL = 2.0


async def test_a_holder_killed_on_this_host_is_followed_within_two_seconds(tmp_path: Path) -> None:
    """Long before its ttl, which is a minute."""
    async with wanting(tmp_path, "worker-1", 60) as first:
        token, _ = await first.next("won")
        async with wanting(tmp_path, "worker-2", 60) as second:
            killed = boottime()
            first.signal(signal.SIGKILL)

            taken, at = await second.next("won")
            assert taken == token + 1
            assert at - killed < 2


async def test_a_holder_killed_on_another_host_is_followed_after_its_ttl(tmp_path: Path) -> None:
    async with wanting(tmp_path, "worker-1", TTL, boot_id="another-host") as first:
        token, _ = await first.next("won")
        async with wanting(tmp_path, "worker-2", 9.0) as second:
            for _ in range(3):
                await first.next("renewed")
            _, renewed = await first.next("renewed")

            killed = boottime()
            first.signal(signal.SIGKILL)

            taken, at = await second.next("won")
            assert taken == token + 1
            assert at - renewed > TTL * 0.9
            assert at - killed < TTL + 2


async def test_a_stopped_holder_is_followed_after_its_ttl_and_hears_it_when_it_wakes(tmp_path: Path) -> None:
    """A process that stands still holds its lock, and proves nothing by it."""
    async with wanting(tmp_path, "worker-1", TTL) as first:
        token, _ = await first.next("won")
        async with wanting(tmp_path, "worker-2", TTL) as second:
            first.signal(signal.SIGSTOP)

            taken, _ = await second.next("won", limit_seconds=TTL + 3)
            first.signal(signal.SIGCONT)

            assert taken == token + 1
            assert (await first.next("lost"))[0] == token


LIBRARIES = [str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")]
FAKED = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1", "FAKETIME_NO_CACHE": "1"}


def wall_clock(offset: str = "", file: Path | None = None) -> tuple[str, ...]:
    """The command before a process whose wall clock is off, or does what a file says."""
    if not LIBRARIES:
        pytest.fail("no libfaketime; run ./scripts/install-servers")
    told = {"FAKETIME": offset} if file is None else {"FAKETIME_TIMESTAMP_FILE": str(file)}
    settings = {**FAKED, **told, "LD_PRELOAD": LIBRARIES[0]}
    return ("env", *(f"{key}={value}" for key, value in settings.items()))


@pytest.mark.timeout(500)
async def test_wall_clocks_that_differ_cause_no_theft_and_no_eternal_lease(
    tmp_path: Path, long: bool
) -> None:
    """The trial "Deciding staleness with two different clocks", a, b and c."""

    async def tried(folder: Path, theirs: str, ours: str) -> None:
        command = wall_clock(theirs)
        async with wanting(folder, "worker-1", TTL, prefix=command, boot_id="another-host") as first:
            token, _ = await first.next("won")
            async with wanting(folder, "worker-2", TTL, prefix=wall_clock(ours)) as second:
                apart = abs(first.clock_is_off_by() - second.clock_is_off_by())
                assert apart == pytest.approx(3600, abs=60)
                theft = asyncio.create_task(second.next("won", limit_seconds=400))
                await asyncio.wait({theft}, timeout=300 if long else 2 * TTL)
                assert not theft.done()

                killed = boottime()
                first.signal(signal.SIGKILL)

                taken, at = await theft
                assert taken == token + 1
                assert at - killed < TTL + 2

    pairs = [("+0", "+1h"), ("+1h", "+0"), ("-1h", "+0"), ("+0", "-1h")]
    async with asyncio.TaskGroup() as group:
        for theirs, ours in pairs:
            group.create_task(tried(tmp_path / f"{theirs}{ours}", theirs, ours))


async def test_a_wall_clock_that_is_stepped_back_changes_nothing(tmp_path: Path) -> None:
    """The same trial, d: ten minutes back in the middle of a lease."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    prefix = wall_clock(file=clock)
    async with wanting(tmp_path / "fleet", "worker-1", TTL, prefix=prefix, boot_id="another-host") as first:
        token, _ = await first.next("won")
        async with wanting(tmp_path / "fleet", "worker-2", TTL, prefix=prefix) as second:
            theft = asyncio.create_task(second.next("won"))
            await first.next("renewed")
            clock.write_text("-600")
            for _ in range(6):
                assert (await first.next("renewed"))[0] == token
            assert not theft.done()
            assert first.clock_is_off_by() == pytest.approx(-600, abs=60)

            first.signal(signal.SIGKILL)

            taken, _ = await theft
            assert taken == token + 1


@pytest.mark.parametrize("shift", [3600, -3600])
async def test_the_clock_of_the_file_server_decides_nothing(tmp_path: Path, shift: float) -> None:
    with passthrough(tmp_path / "source", tmp_path / "mount", shift_seconds=shift) as mount:
        async with wanting(mount.path, "worker-1", TTL, boot_id="another-host") as first:
            token, _ = await first.next("won")
            async with wanting(mount.path, "worker-2", TTL) as second:
                theft = asyncio.create_task(second.next("won"))
                for _ in range(6):
                    assert (await first.next("renewed"))[0] == token
                assert not theft.done()

                first.signal(signal.SIGKILL)

                taken, _ = await theft
                assert taken == token + 1


HOLDER = """
import asyncio, os, subprocess, sys
from drakkar.leases.testkit import make_context
from drakkar_filesystem.leases import FilesystemLeases

async def main(folder, ttl_seconds, how):
    backend = FilesystemLeases({"dir": folder})
    await backend.start(make_context("worker-1", ttl_seconds=float(ttl_seconds)))
    lease = await backend.acquire("gc")
    if how == "program":
        subprocess.Popen(["cat"], close_fds=False)
    elif os.fork() == 0:
        while data := os.read(0, 100):
            os.write(1, data)
        os._exit(0)
    print(lease.token, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("how", ["fork", "program"])
async def test_a_copy_that_outlives_its_parent_delays_the_proof_until_the_ttl_and_a_program_does_not(
    fleet: LeaseFolder, how: str
) -> None:
    """A copy has inherited the lock, a program has not. Nobody is taken for dead who is not."""
    second = await fleet.start("worker-2")
    async with child(HOLDER, fleet.path, FLEET_TTL, how) as first:
        token = int(await first.line())
        await refused(second)
        first._process.kill()
        await until(lambda: first._process.returncode is not None)

        if how == "fork":
            fleet.clock.now += FLEET_TTL - 1
            assert await second.wait([NAME], 1) == frozenset()
            assert (await refused(second)).retry_after_seconds == 1
            fleet.clock.now += 1
        assert await second.wait([NAME], 60) == {NAME}
        assert (await granted(second)).token == token + 1

        await first.answer("it lives")
        assert await first.line() == "it lives"
        first.leave()
        assert await first.line() == ""


async def test_a_forked_copy_leaves_lease_file_and_notices_alone(fleet: LeaseFolder) -> None:
    """The trial "Two candidates with the same identity": one process forked into two after it started."""
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")
    lease = await granted(first)
    await granted(second, "gc-2")
    await refused(first, "gc-2")
    assert await first.wait(["gc-2"], 0) == frozenset()

    in_a_fork(lambda: use_leases(first, lease))

    assert (fleet.leases / ".holders" / "worker-1-1").exists()
    await refused(second)
    assert (await first.renew([lease])).kept == [lease]
    assert await granted(first) == lease
    await second.release("gc-2")
    await until(lambda: "gc-2" in first._notices.dirty)  # as the kernel tells


async def test_stopping_a_forked_copy_that_holds_nothing_deletes_no_file(fleet: LeaseFolder) -> None:
    first, second = await fleet.start("worker-1"), await fleet.start("worker-2")

    in_a_fork(first.stop)

    assert (fleet.leases / ".holders" / "worker-1-1").exists()
    await granted(first)
    await refused(second)


def test_this_host_has_a_boot_id() -> None:
    assert read_boot_id()


async def test_a_standby_of_many_leases_follows_a_killed_holder_of_one(tmp_path: Path) -> None:
    fleet = LeaseFolder(tmp_path)
    names = [f"gc-{number}" for number in range(50)]
    async with wanting(tmp_path, "worker-9", 60) as other:
        await other.next("won")
        first, holder = [await fleet.start(worker, ttl_seconds=60) for worker in ("worker-1", "worker-2")]
        for name in names:
            await granted(holder, name)
            await refused(first, name)
        await refused(first)
        other.signal(signal.SIGKILL)
        async with asyncio.timeout(5):
            assert await first.wait([*names, NAME], 60) == {NAME}
        await granted(first)
    await fleet.stop()
