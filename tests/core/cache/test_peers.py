"""Who is asked, for what, and who is left alone for how long."""

from typing import Any

import pytest
from drakkar.cache.peers import (
    FORGET_CYCLES,
    MAX_MARK_KEY_CHARS,
    PeerState,
    Target,
    changes_url,
    choose,
    mark_of,
)
from drakkar.cache.rows import Cursor
from drakkar.fleet.liveness import Liveness
from support.caches import a_peer

BOTH = ("cluster", "global")


def asked(
    *cards: dict[str, Any],
    states: dict[str, PeerState] | None = None,
    liveness: Liveness = "online",
    cycle: int = 1,
) -> list[Target]:
    peers = [(a_peer("http://10.0.0.2:8080/").card | card, liveness) for card in cards]
    return choose(peers, {} if states is None else states, "search", cycle)


def state(cursor: Cursor | None = None, **fields: Any) -> dict[str, PeerState]:
    return {"worker-2": PeerState(**{"cursor": cursor, "scopes": ("global",), "instance": "a", **fields})}


def marks(**of: Cursor) -> dict[str, Any]:
    return {"instance": "a", "features": {"cache": {scope: mark_of(cursor) for scope, cursor in of.items()}}}


def test_the_own_cluster_is_asked_for_both_scopes_and_others_for_the_global_one() -> None:
    found = asked({"worker": "a", "cluster": "search"}, {"worker": "b", "cluster": "other"}, {"worker": "c"})
    assert [target.state.scopes for target in found] == [BOTH, ("global",), ("global",)]


def test_workers_without_a_cluster_are_one() -> None:
    [target] = choose([(a_peer("http://h/").card, "online")], {}, "", 1)
    assert target.state.scopes == BOTH


@pytest.mark.parametrize(("liveness", "count"), [("online", 1), ("unknown", 1), ("offline", 0)])
def test_who_is_offline_is_not_asked(liveness: Liveness, count: int) -> None:
    assert len(asked({}, liveness=liveness)) == count


@pytest.mark.parametrize(
    ("worker_state", "count"), [("starting", 0), ("running", 1), ("draining", 1), ("?", 1), (None, 1)]
)
def test_who_is_starting_is_not_asked(worker_state: str | None, count: int) -> None:
    assert len(asked({"state": worker_state})) == count


@pytest.mark.parametrize(
    ("url", "asks"),
    [
        ("http://10.0.0.2:8080/", "http://10.0.0.2:8080/api/v1/peer/cache/changes"),
        ("http://10.0.0.2:8080", "http://10.0.0.2:8080/api/v1/peer/cache/changes"),
        ("https://h/base/", "https://h/base/api/v1/peer/cache/changes"),
        ("http://[::1]:8080/", "http://[::1]:8080/api/v1/peer/cache/changes"),
        ("http://h/?q=1#x", "http://h/api/v1/peer/cache/changes"),
        ("HTTP://h/", "http://h/api/v1/peer/cache/changes"),
        *(
            (url, None)
            for url in ("", "h", "ftp://h/", "file:///etc/passwd", "javascript:alert(1)", "http://")
        ),
        *(
            (url, None)
            for url in ("http:///x", "http://user:pw@h/", "http://h:port/", "http://[::1/", "//h/")
        ),
    ],
)
def test_only_what_is_an_address_is_asked(url: str, asks: str | None) -> None:
    assert changes_url(url) == asks
    assert [target.url for target in asked({"url": url})] == ([asks] if asks else [])


@pytest.mark.parametrize(
    ("card", "cursor", "count"),
    [
        ({}, (5, "b"), 1),  # no features: a static peer
        ({"features": {}}, None, 0),
        ({"features": {"cache": {}}}, None, 0),
        ({"features": {"cache": None}}, None, 0),
        ({"features": {"cache": [1]}}, None, 0),
        (marks(cluster=(9, "a")), None, 0),  # of another cluster: that scope is not for us
        (marks(**{"global": (1, "a")}), None, 1),
        (marks(**{"global": (5, "a")}), (5, "b"), 0),
        (marks(**{"global": (5, "b")}), (5, "b"), 0),
        (marks(**{"global": (5, "c")}), (5, "b"), 1),
        (marks(**{"global": (6, "")}), (5, "b"), 1),
        (marks(**{"global": (4, "z")}), (5, "b"), 0),
        ({"instance": "a", "features": {"cache": {"global": {"ms": "6", "key": "a"}}}}, (5, "b"), 0),
        ({"instance": "a", "features": {"cache": {"global": {"ms": True, "key": "a"}}}}, None, 0),
        ({"instance": "a", "features": {"cache": {"global": {"ms": 6}}}}, None, 0),
        ({"instance": "a", "features": {"cache": {"global": 6}}}, None, 0),
        ({"instance": "a", "features": {"cache": {"global": {"ms": 10**400, "key": ""}}}}, (5, "b"), 1),
    ],
)
def test_who_shows_marks_is_asked_only_for_news(
    card: dict[str, Any], cursor: Cursor | None, count: int
) -> None:
    assert len(asked({"instance": "a"} | card, states=state(cursor))) == count


def test_a_mark_with_a_long_key_is_cut_and_does_not_look_new_for_ever() -> None:
    cursor = (5, "名" * 500)
    assert len(mark_of(cursor)["key"]) == MAX_MARK_KEY_CHARS
    assert asked(marks(**{"global": cursor}), states=state(cursor)) == []


def test_one_that_fails_is_left_alone_for_longer_each_time() -> None:
    failing = PeerState()
    assert [failing.failed() for _ in range(7)] == [1, 2, 4, 8, 16, 16, 16]
    failing.succeeded()
    assert failing.failed() == 1


def test_one_that_failed_sits_out_its_cycles() -> None:
    states: dict[str, PeerState] = {}
    asked_in = []
    for cycle in range(1, 40):
        if found := asked({}, states=states, cycle=cycle):
            asked_in.append(cycle)
            found[0].state.failed()
    assert asked_in == [1, 3, 6, 11, 20, 37]


def test_who_was_not_asked_for_longest_comes_first() -> None:
    states = {name: PeerState(last_asked=last) for name, last in {"a": 3, "b": 1, "c": 2}.items()}
    cards = ({"worker": name} for name in "abcd")
    assert [target.name for target in asked(*cards, states=states, cycle=4)] == ["d", "b", "c", "a"]


def test_one_that_started_again_is_looked_at_anew() -> None:
    states = state((5, "b"))
    [target] = asked(marks(**{"global": (4, "a")}) | {"instance": "b"}, states=states)
    assert target.state.to_verify
    assert target.state.cursor == (5, "b")


def test_one_that_moved_to_another_cluster_is_read_from_the_beginning() -> None:
    [target] = asked(marks(cluster=(1, "a")) | {"cluster": "search"}, states=state((5, "b")))
    assert (target.state.scopes, target.state.cursor) == (BOTH, None)


def test_one_that_cannot_tell_that_it_started_again_is_read_anew_now_and_then() -> None:
    states = state((5, "b"), instance=None)
    cursors = []
    for cycle in range(FORGET_CYCLES + 1):
        [target] = asked({}, states=states, cycle=cycle)
        cursors.append(target.state.cursor)
        target.state.cursor = (5, "b")
    assert cursors == [(5, "b")] * FORGET_CYCLES + [None]
