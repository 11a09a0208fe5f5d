"""Names and cards as they are stored."""

import json
import string
from typing import Any

import pytest
from drakkar.fleet.card import CardError, decode_card, encode_card
from drakkar.fleet.testkit import make_card
from drakkar_consul import _cards as cards
from drakkar_consul._keys import encoded
from drakkar_consul._names import name_of, place_of
from drakkar_consul._records import Record, decode, encode
from hypothesis import given
from hypothesis import strategies as st

SAFE = set(string.ascii_letters + string.digits + "_-=")


@given(st.text(min_size=1, max_size=130))
def test_a_name_comes_back_from_its_place_which_is_one_plain_part_of_a_key(name: str) -> None:
    place = place_of(name)

    assert set(place) <= SAFE
    assert name_of(place) == (None if place.startswith("==") else name)


@pytest.mark.parametrize("name", ["a", "..", ".", "/", "a//b", "\n", "\x00", "é", "search.1", "=2e", "A"])
def test_no_two_names_meet(name: str) -> None:
    others = {place_of(other) for other in ["a", "..", ".", "/", "a/b", "\t", "", "e", "search-1", "A"]}

    assert (place_of(name) in others) == (name in ["a", "..", ".", "/", "A"])


def test_long_names_are_hashed_and_do_not_meet() -> None:
    long = ["漢" * 200, "漢" * 199 + "字", "x" * 401]

    assert len({place_of(name) for name in long}) == 3
    assert all(len(place_of(name)) < 100 for name in long)


@pytest.mark.parametrize("place", ["", "=", "=2", "=zz", "=61", "a/b", "a.b", "=c3"])
def test_what_is_no_place_has_no_name(place: str) -> None:
    assert name_of(place) is None


ODD: dict[str, Any] = {"x": [None, True, 1.5, 2**60, "é", "\u2028", {"": [[]]}], "y": {"b": 1, "a": 2}}


def test_cards_have_the_bytes_that_others_give_them() -> None:
    card = make_card("worker-1", **ODD)

    assert cards.encode_card(card) == encode_card(card)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"null", b"[]", b"3", b'{"x":NaN}', b'{"x":1e999}', b'{"x":"\\ud800"}', b"\xef\xbb\xbf{}"),
        *(
            b"[" * 4000,
            b'{"x":' * 40 + b"1" + b"}" * 40,
            b'{"worker":"place","x":"' + b"[" * 50 + b'"}',
            b"{" + b" " * 5000,
        ),
        *(b'{"worker":"place","x":1,"x":2}', b'{"worker":"\xff"}', b"1" * 4000, b'{"worker":"place"}'),
    ],
)
def test_bytes_are_a_card_when_they_are_one_for_others(data: bytes) -> None:
    found = cards.CardEntry("place", encoded(data))
    try:
        card, reason = decode_card(data), ""
    except CardError as error:
        card, reason = {}, error.reason

    assert found.reason == reason
    assert [found.card() for _ in range(3)] == [card, card, card]


def test_a_card_is_its_readers_own_each_time() -> None:
    found = cards.CardEntry("worker-1", encoded(b'{"worker":"worker-1","features":{}}'))

    for _ in range(4):
        card = found.card()
        assert card == {"worker": "worker-1", "features": {}}
        card["features"]["mine"] = 1


def test_a_card_under_the_key_of_another_worker_is_none() -> None:
    assert (
        cards.CardEntry("worker-2", encoded(cards.encode_card(make_card("worker-1")))).reason == "wrong_name"
    )


def test_a_record_tells_holder_and_name_of_its_own_lease_alone() -> None:
    record = Record("worker-1/0123", "gc-leader/é")

    assert decode(place_of("gc-leader/é"), encode(record)) == record
    assert decode("gc-leader", encode(record)) is None


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"\xff{", b"null", b"[]", b"3", b"[" * 8000, b"{}", b'{"holder":1,"name":"a"}'),
        *(b'{"holder":"x","name":1}', b'{"holder":"x","name":null}', json.dumps("x" * 9000).encode()),
    ],
)
def test_garbage_is_no_record(value: bytes) -> None:
    assert decode("a", value) is None
