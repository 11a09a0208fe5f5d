"""Who led what in the last hour."""

from drakkar.fleet.service import Peer
from drakkar.fleet.testkit import make_card
from drakkar.server.timeline import MAX_SPANS, SHOWN_SECONDS, Timeline, leaders


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
    timeline.observe(20, {})
    assert shown(timeline, 30) == [("gc", "worker-1", 10, 20)]


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
