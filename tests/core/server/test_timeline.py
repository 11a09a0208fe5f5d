"""Who led what in the last hour."""

import pytest
from drakkar.fleet.service import Peer
from drakkar.fleet.testkit import make_card
from drakkar.server.timeline import MAX_NAMES_OF_CARD, MAX_SPANS, SHOWN_SECONDS, Timeline, leaders, seen_at


def shown(timeline: Timeline, now_ts: float) -> list[tuple[str, str, float, float | None]]:
    return [(span.name, span.worker, span.from_ts, span.to_ts) for span in timeline.spans(now_ts)]


def test_a_leader_that_changes_ends_one_span_and_begins_another() -> None:
    timeline = Timeline()
    timeline.observe(10, {"worker-1": ["gc"], "worker-2": []})
    timeline.observe(20, {"worker-1": ["gc"], "worker-2": ["notify"]})
    timeline.observe(30, {"worker-1": [], "worker-2": ["gc", "notify"]})
    assert shown(timeline, 40) == [
        ("gc", "worker-1", 10, 30),
        ("gc", "worker-2", 30, None),
        ("notify", "worker-2", 20, None),
    ]


def test_a_worker_that_is_gone_leads_no_more() -> None:
    timeline = Timeline()
    timeline.observe(10, {"worker-1": ["gc"]})
    timeline.observe(20, {"worker-1": ["gc"]}, {"worker-1": 17})
    timeline.observe(50, {}, {"worker-1": 17})
    assert shown(timeline, 60) == [("gc", "worker-1", 10, 17)]  # not when it was missed


def test_what_ended_an_hour_ago_is_not_shown_and_what_goes_on_is() -> None:
    timeline = Timeline()
    timeline.observe(10, {"worker-1": ["gc"], "worker-2": ["notify"]})
    timeline.observe(20, {"worker-2": ["notify"]})
    assert shown(timeline, 21 + SHOWN_SECONDS) == [("notify", "worker-2", 10, None)]


def test_its_version_changes_with_it_alone() -> None:
    timeline = Timeline()
    versions = []
    for at, names in enumerate((["gc"], ["gc"], [], [])):
        timeline.observe(at, {"worker-1": names})
        versions.append(timeline.version)
    assert versions == [1, 1, 2, 2]


def test_what_is_remembered_is_bounded() -> None:
    timeline = Timeline()
    for at in range(3):
        timeline.observe(at, {f"worker-{at}-{n}": ["gc"] for n in range(2 * MAX_SPANS)})
    assert len(timeline.spans(3)) == 2 * MAX_SPANS


def test_a_peer_that_is_offline_leads_nothing_whatever_its_card_says() -> None:
    card = make_card("worker-2", features={"leader_for": ["gc", 7]})
    assert leaders([Peer(card, 1.0, "online")]) == {"worker-2": ["gc"]}
    assert leaders([Peer(card, None, "unknown")]) == {"worker-2": ["gc"]}
    assert leaders([Peer(card, 99.0, "offline")]) == {}
    assert leaders([Peer(make_card("worker-3"), 1.0, "online")]) == {"worker-3": []}


ONE_LEASE = {"gc": True}


def test_a_card_that_stays_behind_is_no_second_leader() -> None:
    """The leader was killed, and its card is not offline yet when its successor leads."""
    timeline = Timeline()
    stale = {"worker-1": ["gc"], "worker-2": []}
    both = {"worker-1": ["gc"], "worker-2": ["gc"]}
    timeline.observe(10, stale, {"worker-1": 9}, ONE_LEASE)
    for at in (30, 31, 45):
        timeline.observe(at, both, {"worker-1": 9, "worker-2": at - 1}, ONE_LEASE)
    assert shown(timeline, 46) == [("gc", "worker-1", 10, 30), ("gc", "worker-2", 30, None)]
    timeline.observe(50, stale, {"worker-1": 9}, ONE_LEASE)
    assert shown(timeline, 51) == [("gc", "worker-1", 10, 30), ("gc", "worker-2", 30, 50)]


def test_of_two_cards_that_claim_one_lease_at_the_first_look_the_newer_one_leads() -> None:
    timeline = Timeline()
    both = {"worker-1": ["gc"], "worker-2": ["gc"]}
    timeline.observe(10, both, {"worker-1": 9, "worker-2": 2}, ONE_LEASE)
    assert shown(timeline, 11) == [("gc", "worker-1", 10, None)]


def test_two_that_both_go_on_saying_that_they_lead_are_both_shown() -> None:
    timeline = Timeline()
    both = {"worker-1": ["gc"], "worker-2": ["gc"]}
    timeline.observe(10, {"worker-1": ["gc"]}, {"worker-1": 9}, ONE_LEASE)
    timeline.observe(20, both, {"worker-1": 18, "worker-2": 19}, ONE_LEASE)
    timeline.observe(40, both, {"worker-1": 38, "worker-2": 39}, ONE_LEASE)
    assert [worker for _, worker, _, end in shown(timeline, 41) if end is None] == ["worker-2", "worker-1"]


def test_who_leads_again_is_shown_again() -> None:
    timeline = Timeline()
    timeline.observe(10, {"worker-1": ["gc"], "worker-2": []}, {}, ONE_LEASE)
    timeline.observe(20, {"worker-1": [], "worker-2": ["gc"]}, {}, ONE_LEASE)
    timeline.observe(30, {"worker-1": ["gc"], "worker-2": []}, {"worker-1": 28}, ONE_LEASE)
    assert shown(timeline, 40)[-1] == ("gc", "worker-1", 30, None)


@pytest.mark.parametrize("jobs", [{}, {"gc": False}])
def test_of_what_may_be_several_leases_all_are_shown(jobs: dict[str, bool]) -> None:
    timeline = Timeline()
    timeline.observe(10, {"worker-1": ["gc"]}, {"worker-1": 9}, jobs)
    timeline.observe(20, {"worker-1": ["gc"], "worker-2": ["gc"]}, {"worker-1": 9}, jobs)
    assert [end for *_, end in shown(timeline, 21)] == [None, None]


def test_a_card_of_many_names_takes_no_room_from_what_others_lead() -> None:
    timeline = Timeline()
    many = [*(f"aa-{n:03}" for n in range(MAX_SPANS)), "notify", "report"]
    timeline.observe(10, {"worker-2": many, "worker-3": ["notify"]}, jobs={"report": True})
    led = {(name, worker) for name, worker, *_ in shown(timeline, 11)}
    assert {("notify", "worker-2"), ("notify", "worker-3"), ("report", "worker-2")} <= led
    assert len(led) == MAX_NAMES_OF_CARD + 1


def test_when_a_peer_was_seen_is_told_in_the_time_here() -> None:
    card = make_card("worker-2")
    assert seen_at([Peer(card, 5.0, "online"), Peer(make_card("worker-3"), None, "unknown")], 100) == {
        "worker-2": 95.0
    }
