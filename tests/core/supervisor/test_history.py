"""What has happened, for people."""

from datetime import UTC, datetime

from drakkar.supervisor.history import REMEMBERED, History
from support.supervised import Job, Process, memory
from support.virtual_time import virtual_time

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_remembers_the_last_two_hundred() -> None:
    history = History()
    for _ in range(REMEMBERED + 50):
        history.add(AT, "gc", "acquired")
    assert [event.number for event in history.events()] == [*range(51, 251)]


def test_cuts_long_errors() -> None:
    history = History()
    history.add(AT, "gc", "crashed", error="x" * 1_000_000)
    [event] = history.events()
    assert event.error is not None
    assert len(event.error) == 1000


@virtual_time
async def test_tells_of_leader_changes_and_crashes_in_their_order() -> None:
    async def fail(_ctx: object) -> None:
        raise RuntimeError("the volume is gone")

    async with Process([Job(fail).worker("gc")], memory()) as process:
        first, second, third = process.supervisor.history()[:3]
    assert [first.event, {second.event, third.event}] == ["acquired", {"released", "crashed"}]
    assert {event.worker for event in (first, second, third)} == {"gc"}
    [crash] = [event for event in (second, third) if event.event == "crashed"]
    assert "the volume is gone" in str(crash.error)
