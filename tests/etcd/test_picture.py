"""What is known of the cards: readings and events in any order."""

from typing import Any

from drakkar.fleet.testkit import make_card
from drakkar_etcd._cards import encode_card
from drakkar_etcd._picture import Entry, Picture
from drakkar_etcd._wire import Folder, encoded

FOLDER = Folder("/fleet/cards/")


def kv(worker: str, mod: int) -> dict[str, Any]:
    value = encoded(encode_card(make_card(worker, x=mod)))
    return {"key": FOLDER.key(worker), "value": value, "mod_revision": str(mod), "lease": "7"}


def put(worker: str, mod: int) -> dict[str, Any]:
    return {"kv": kv(worker, mod)}


def deleted(worker: str, mod: int) -> dict[str, Any]:
    return {"type": "DELETE", "kv": {"key": FOLDER.key(worker), "mod_revision": str(mod)}}


def picture(*kvs: dict[str, Any], revision: int) -> Picture:
    made = Picture(FOLDER)
    made.replace(kvs, revision, now=100.0)
    return made


def shown(made: Picture) -> dict[str, int]:
    return {entry.card()["worker"]: entry.mod for entry in made.entries()}


def only(made: Picture) -> Entry:
    (entry,) = made.entries()
    return entry


def test_an_event_that_had_just_happened_tells_the_age() -> None:
    made = picture(revision=5)
    made.hear([put("worker-1", 6)], now=107.0, live_after=5)

    assert shown(made) == {"worker-1": 6}
    assert only(made).age_seconds(110.0) == 3.0
    assert made.revision == 6


def test_an_event_from_before_the_watch_does_not_tell_the_age() -> None:
    made = picture(revision=5)
    made.hear([put("worker-1", 6)], now=107.0, live_after=6)

    assert only(made).age_seconds(110.0) is None
    assert made.unheard() == made.entries()


def test_a_reading_keeps_the_age_of_what_has_not_changed() -> None:
    made = picture(revision=5)
    made.hear([put("worker-1", 6), put("worker-2", 7)], now=107.0, live_after=5)
    made.replace([kv("worker-1", 6), kv("worker-2", 9)], 9, now=120.0)

    ages = {entry.card()["worker"]: entry.age_seconds(120.0) for entry in made.entries()}
    assert ages == {"worker-1": 13.0, "worker-2": None}


def test_a_late_event_of_what_was_read_already_tells_its_age_and_nothing_else() -> None:
    made = picture(kv("worker-1", 6), revision=9)
    made.hear([put("worker-1", 4), put("worker-1", 6), put("worker-2", 7)], now=107.0, live_after=3)
    made.hear([deleted("worker-1", 5), deleted("worker-1", 8)], now=108.0, live_after=3)

    assert shown(made) == {"worker-1": 6}
    assert only(made).heard_at == 107.0
    assert made.revision == 9


def test_a_deletion_takes_the_card_away() -> None:
    made = picture(kv("worker-1", 6), kv("worker-2", 7), revision=9)
    made.hear([deleted("worker-1", 10)], now=107.0, live_after=3)

    assert shown(made) == {"worker-2": 7}


def test_a_card_of_unknown_age_is_old_when_it_was_seen_for_long_enough() -> None:
    entry = only(picture(kv("worker-1", 6), revision=9))

    assert not entry.is_older_than(10, now=109.0)
    assert entry.is_older_than(10, now=111.0)


def test_a_card_is_the_callers_own() -> None:
    entry = only(picture(kv("worker-1", 6), revision=9))
    entry.card()["x"] = "changed"

    assert entry.card()["x"] == 6
