"""What all streams share: the store is asked by all of them together, and only while somebody looks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import pytest
from drakkar.fleet.identity import WorkerIdentity, WorkerState
from drakkar.fleet.service import Peer, RegistryHealth
from drakkar.fleet.testkit import make_card
from drakkar.leases.backend import LeaseInfo
from drakkar.server.fleet_api import ServedIdentity
from drakkar.server.leases_api import LeaseListing
from drakkar.server.snapshots import LEASES_SECONDS, LOOK_SECONDS, Snapshots
from drakkar.server.timeline import Timeline
from drakkar.supervisor.history import History, HistoryEvent
from drakkar.supervisor.surroundings import LaneReport
from support.clock import FakeClock, settle


class View:
    """A worker and its leases; satisfies `FleetView` and `LeasesView`."""

    lease_provider = "memory"
    state: WorkerState = "running"

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        identity = WorkerIdentity("worker-1", "", "http://127.0.0.1/", "1", datetime(2026, 1, 1, tzinfo=UTC))
        self.served = ServedIdentity(identity, "127.0.0.1", 80, "none", "memory", "")
        self.timeline = Timeline()
        self.known: list[Peer] = []
        self.asked = 0
        self.history_of = History()
        self.answer: Callable[[], Sequence[LeaseInfo]] = tuple

    def now_ts(self) -> float:
        return self.clock.wall().timestamp()

    def peers(self) -> Sequence[Peer]:
        return self.known

    def listing(self) -> object:
        return None

    def leader_for(self) -> Sequence[str]:
        return ()

    def registry_health(self) -> RegistryHealth | None:
        return None

    def lease_problem(self) -> str | None:
        return None

    async def list_leases(self) -> Sequence[LeaseInfo]:
        self.asked += 1
        return self.answer()

    def lane_reports(self) -> Mapping[str, Sequence[LaneReport]]:
        return {}

    def history(self) -> Sequence[HistoryEvent]:
        return self.history_of.events()

    def step_down(self, lease: str, cool_down_seconds: float) -> bool:
        return False


@pytest.fixture
def view() -> View:
    return View(FakeClock())


@pytest.fixture
def snapshots(view: View) -> Snapshots:
    return Snapshots(view, view, LeaseListing(view, view.clock), view.clock)


async def look_for(snapshots: Snapshots, clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds / LOOK_SECONDS)):
        await snapshots.look()
        await settle()
        clock.jump(LOOK_SECONDS)


def part(snapshots: Snapshots, name: str) -> bytes:
    [found] = [m for _, m in snapshots.newer_than(0) if m.startswith(f"event: {name}\n".encode())]
    return found


async def test_reads_the_leases_for_all_streams_together(view: View, snapshots: Snapshots) -> None:
    async with snapshots.watched(), snapshots.watched(), snapshots.watched():
        for _ in range(20):
            await asyncio.gather(snapshots.look(), snapshots.look(), snapshots.look())
            await settle()
            view.clock.jump(LOOK_SECONDS)
    assert view.asked == round(20 * LOOK_SECONDS / LEASES_SECONDS) + 1


async def test_reads_nothing_while_nobody_looks(view: View, snapshots: Snapshots) -> None:
    await look_for(snapshots, view.clock, 4 * LEASES_SECONDS)
    assert view.asked == 0


async def test_a_store_that_hangs_holds_up_nothing_and_is_let_go_with_the_last_reader(view: View) -> None:
    class Hanging(View):
        async def list_leases(self) -> Sequence[LeaseInfo]:
            self.asked += 1
            await asyncio.Event().wait()
            raise AssertionError

    hanging = Hanging(view.clock)
    snapshots = Snapshots(hanging, hanging, LeaseListing(hanging, view.clock), view.clock)
    async with snapshots.watched():
        await look_for(snapshots, view.clock, 3 * LEASES_SECONDS)
        hanging.known = [Peer(make_card("worker-2"), 1.0, "online")]
        await look_for(snapshots, view.clock, LOOK_SECONDS)
        assert b"worker-2" in part(snapshots, "workers")
        assert hanging.asked == 1
    assert len(asyncio.all_tasks()) == 1


async def test_an_old_list_of_leases_is_not_shown_to_the_next_reader(
    view: View, snapshots: Snapshots
) -> None:
    async with snapshots.watched():
        await look_for(snapshots, view.clock, LEASES_SECONDS)
        assert b'"leases":[]' in part(snapshots, "leases")
    assert not [message for _, message in snapshots.newer_than(0) if b"event: leases" in message]


async def test_who_comes_back_is_told_when_the_leases_were_read_again(
    view: View, snapshots: Snapshots
) -> None:
    """Even if they are as before: until then they are old to that reader."""
    view.answer = lambda: [LeaseInfo("gc-leader", "worker-1/a", 1, None, None)]

    def number() -> int:
        return max(number for number, message in snapshots.newer_than(0) if b"event: leases" in message)

    async with snapshots.watched():
        await look_for(snapshots, view.clock, LEASES_SECONDS)
        first = number()
        await look_for(snapshots, view.clock, 2 * LEASES_SECONDS)
        assert number() == first
        async with snapshots.watched():
            await look_for(snapshots, view.clock, 2 * LEASES_SECONDS)
            assert number() > first


async def test_leases_that_cannot_be_read_are_not_shown_as_none(view: View, snapshots: Snapshots) -> None:
    """Trial "Store unreachable is reported as no peers"."""

    def fail() -> Sequence[LeaseInfo]:
        raise OSError("no route")

    view.answer = lambda: [LeaseInfo("gc-leader", "worker-1/a", 2**60, 1.0, 20.0)]
    async with snapshots.watched():
        await look_for(snapshots, view.clock, LEASES_SECONDS)
        view.answer = fail
        await look_for(snapshots, view.clock, 2 * LEASES_SECONDS)
        told = part(snapshots, "leases")
    assert b"gc-leader" in told
    assert b"no route" in told
    assert f'"token":"{2**60}"'.encode() in told


async def test_a_worker_that_goes_silent_is_noticed_without_a_refresh(
    view: View, snapshots: Snapshots
) -> None:
    view.known = [Peer(make_card("worker-2"), 1.0, "online")]
    async with snapshots.watched():
        await look_for(snapshots, view.clock, LOOK_SECONDS)
        assert b'"online":false' not in part(snapshots, "workers")
        view.known = [Peer(view.known[0].card, 100.0, "offline")]
        await look_for(snapshots, view.clock, LOOK_SECONDS)
        assert b'"online":false' in part(snapshots, "workers")


async def test_a_heartbeat_of_everybody_does_not_send_every_row_again(
    view: View, snapshots: Snapshots
) -> None:
    view.known = [Peer(make_card(f"worker-{n}"), 9.0, "online") for n in range(2, 400)]
    async with snapshots.watched():
        await look_for(snapshots, view.clock, LOOK_SECONDS)
        rows, seen = part(snapshots, "workers"), part(snapshots, "seen")
        view.known = [Peer(peer.card, 0.0, "online") for peer in view.known]
        await look_for(snapshots, view.clock, LOOK_SECONDS)
    assert part(snapshots, "workers") == rows
    assert part(snapshots, "seen") != seen
    assert 10 * len(seen) < len(rows)


async def test_who_waited_for_a_listing_that_failed_does_not_ask_once_more(view: View) -> None:
    listing = LeaseListing(view, view.clock)

    async def silent() -> Sequence[LeaseInfo]:
        view.asked += 1
        await view.clock.sleep(5)
        raise TimeoutError

    view.list_leases = silent  # type: ignore[method-assign]  # the store falls silent
    readers = [asyncio.create_task(listing.answer()) for _ in range(10)]
    await view.clock.advance(5)
    answers = await asyncio.gather(*readers)

    assert view.asked == 1
    assert {answer["error"] for answer in answers} == {"TimeoutError"}
