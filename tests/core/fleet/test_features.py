"""The features of a card, cut to what a card may hold."""

from typing import Any

import pytest
from drakkar.fleet.card import MAX_CARD_BYTES, CardError, encode_card
from drakkar.fleet.features import fit_features
from drakkar.fleet.testkit import make_card
from hypothesis import given
from hypothesis import strategies as st

SMALL: dict[str, Any] = {
    "leader_for": ["gc"],
    "workers": ["gc", "notify"],
    "fanouts": {"gc": {"shards": 4, "held": 1, "ready": True}},
}


def names(count: int, chars: int = 20) -> list[str]:
    return [f"{number:0{chars}}" for number in range(count)]


def entries(count: int) -> dict[str, Any]:
    return {name: {"shards": 1024, "held": 1024, "ready": False} for name in names(count)}


def test_features_that_fit_are_all_shown() -> None:
    card = fit_features(make_card("worker-1"), SMALL)

    assert card["features"] == SMALL
    assert card["worker"] == "worker-1"


def test_the_card_that_was_given_is_left_as_it_is() -> None:
    card = make_card("worker-1", features={"cache": 1})
    fit_features(card, SMALL)

    assert card["features"] == {"cache": 1}


def test_features_of_others_stay() -> None:
    card = fit_features(
        make_card("worker-1", features={"cache": {"ms": 1}}), {**SMALL, "workers": names(1000)}
    )

    assert card["features"]["cache"] == {"ms": 1}
    assert len(encode_card(card)) <= MAX_CARD_BYTES


def test_what_people_can_look_up_goes_first_and_no_more_than_needed() -> None:
    card = fit_features(make_card("worker-1"), {**SMALL, "workers": names(1000)})
    features = card["features"]

    assert features["shortened"] is True
    assert features["leader_for"] == SMALL["leader_for"]
    assert features["fanouts"] == SMALL["fanouts"]
    assert features["workers"] == names(1000)[: len(features["workers"])]
    assert MAX_CARD_BYTES - 25 < len(encode_card(card)) <= MAX_CARD_BYTES


def test_what_peers_act_on_goes_last() -> None:
    features = fit_features(
        make_card("worker-1"), {"workers": names(300), "leader_for": names(300), "fanouts": entries(30)}
    )["features"]

    assert features["workers"] == []
    assert 0 < len(features["leader_for"]) < 300
    assert len(features["fanouts"]) == 30


def test_even_the_fan_outs_are_cut_before_a_card_is_refused() -> None:
    card = fit_features(make_card("worker-1"), {**SMALL, "fanouts": entries(1000)})

    assert 0 < len(card["features"]["fanouts"]) < 1000
    assert card["features"]["leader_for"] == []
    encode_card(card)


def test_a_card_that_is_too_large_without_them_is_left_to_its_publisher() -> None:
    card = fit_features(make_card("worker-1", x="x" * MAX_CARD_BYTES), SMALL)

    assert card["features"]["fanouts"] == {}
    with pytest.raises(CardError, match="bytes"):
        encode_card(card)


def marks(key: str) -> dict[str, Any]:
    return {scope: {"key": key, "ms": 1_800_000_000_000} for scope in ("cluster", "global")}


def test_the_keys_of_the_cache_go_before_anything_else_is_cut() -> None:
    features = {**SMALL, "cache": marks("\x01" * 128)}
    long_name = make_card("worker-1", x="x" * 2400)

    assert fit_features(make_card("worker-1"), features)["features"]["cache"] == marks("\x01" * 128)
    shown = fit_features(long_name, features)["features"]
    assert shown == {**SMALL, "cache": marks("")}


def test_the_marks_of_the_cache_stay_when_the_rest_is_cut() -> None:
    shown = fit_features(make_card("worker-1"), {"workers": names(300), "cache": marks("名" * 128)})[
        "features"
    ]

    assert shown["cache"] == marks("")
    assert 0 < len(shown["workers"]) < 300


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(
    st.lists(TEXT, max_size=60),
    st.lists(TEXT, max_size=60),
    st.dictionaries(TEXT, st.just({"shards": 1024, "held": 1024, "ready": True}), max_size=60),
    st.integers(0, 3000),
)
def test_it_always_fits(workers: list[str], leaders: list[str], fan_outs: dict[str, Any], other: int) -> None:
    card = make_card("worker-1", features={"cache": "x" * other})
    shown = fit_features(card, {"workers": workers, "leader_for": leaders, "fanouts": fan_outs})

    encode_card(shown)
