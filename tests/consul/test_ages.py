"""How old cards are, by what was seen of them."""

import pytest
from drakkar_consul._ages import UNSURE_SECONDS, Ages

KEY = "fleet/cards/worker-1"
STILL_SECONDS = 900.0


@pytest.fixture
def ages() -> Ages:
    """That has seen one card, at 100, last changed at index 10."""
    ages = Ages(STILL_SECONDS)
    ages.observe(10, {KEY: 10}, now=100, unsure_seconds=float("inf"))
    return ages


def test_a_card_that_never_changed_is_of_unknown_age(ages: Ages) -> None:
    assert ages.age(KEY, now=100) is None
    assert ages.age(KEY, now=100 + STILL_SECONDS) is None


def test_a_card_that_stood_still_for_long_is_that_old_at_least(ages: Ages) -> None:
    assert ages.age(KEY, now=101 + STILL_SECONDS) == STILL_SECONDS + 1


def test_a_card_that_changed_is_as_old_as_the_last_look_before_it(ages: Ages) -> None:
    ages.observe(11, {KEY: 11}, now=200, unsure_seconds=0.5)

    assert ages.age(KEY, now=200) == 0.5
    assert ages.age(KEY, now=230) == 30.5


def test_a_card_that_is_new_since_the_last_look_is_known(ages: Ages) -> None:
    ages.observe(12, {KEY: 10, "new": 12}, now=200, unsure_seconds=0.5)

    assert ages.age("new", now=200) == 0.5


def test_a_card_that_was_there_and_could_not_be_seen_is_unknown(ages: Ages) -> None:
    ages.observe(12, {}, now=200, unsure_seconds=0.5)
    ages.observe(12, {KEY: 10}, now=201, unsure_seconds=0.5)

    assert ages.age(KEY, now=201) is None


def test_a_change_that_nobody_saw_for_long_is_of_unknown_age(ages: Ages) -> None:
    ages.observe(11, {KEY: 11}, now=200, unsure_seconds=UNSURE_SECONDS + 1)

    assert ages.age(KEY, now=200) is None


def test_cards_that_are_too_many_to_be_read_often_may_be_less_sure(ages: Ages) -> None:
    many = {f"{KEY}{number}": 20 for number in range(5000)}
    ages.observe(20, many, now=200, unsure_seconds=50)

    assert ages.age(f"{KEY}7", now=200) == 50


def test_an_index_that_went_down_makes_what_is_different_unknown(ages: Ages) -> None:
    ages.observe(11, {KEY: 11, "other": 9}, now=200, unsure_seconds=0.5)
    ages.observe(9, {KEY: 8, "other": 9}, now=300, unsure_seconds=0.5)

    assert ages.age(KEY, now=300) is None
    ages.observe(10, {KEY: 10, "other": 9}, now=310, unsure_seconds=0.5)
    assert ages.age(KEY, now=310) == 0.5


def test_a_deletion_that_the_servers_forgot_changes_no_age(ages: Ages) -> None:
    ages.observe(11, {KEY: 11}, now=200, unsure_seconds=0.5)
    ages.observe(15, {KEY: 11}, now=210, unsure_seconds=0.5)  # another card was deleted
    ages.observe(11, {KEY: 11}, now=900, unsure_seconds=0.5)

    assert ages.age(KEY, now=900) == 700.5


def test_its_own_publish_is_as_old_as_the_request(ages: Ages) -> None:
    ages.published(KEY, 11, sent_at=200, now=203)
    ages.observe(11, {KEY: 11}, now=204, unsure_seconds=100)

    assert ages.age(KEY, now=204) == 4


def test_what_is_old_for_sure_counts_from_when_it_was_first_seen(ages: Ages) -> None:
    ages.observe(11, {KEY: 11}, now=200, unsure_seconds=90)

    assert ages.older_than(29, now=230) == {KEY}
    assert ages.older_than(30, now=230) == set()


def test_what_came_before_its_own_publish_is_known_by_that(ages: Ages) -> None:
    ages.published("own", 20, sent_at=200, now=201)
    ages.observe(20, {KEY: 10, "new": 15, "own": 20}, now=500, unsure_seconds=300)

    assert "new" in ages.older_than(298, now=500)
    assert "new" not in ages.older_than(299, now=500)
    assert ages.age("new", now=500) == 300


def test_what_came_after_its_own_publish_is_younger_than_that() -> None:
    ages = Ages(STILL_SECONDS)
    ages.published("own", 20, sent_at=200, now=201)
    ages.observe(25, {"new": 25, "own": 20}, now=205, unsure_seconds=float("inf"))

    assert ages.age("new", now=205) == 5


def test_its_own_publishes_say_nothing_of_a_state_that_came_back(ages: Ages) -> None:
    ages.published("own", 20, sent_at=200, now=201)
    ages.observe(20, {KEY: 10, "own": 20}, now=202, unsure_seconds=1)
    ages.observe(9, {KEY: 8}, now=300, unsure_seconds=1)
    ages.observe(30, {KEY: 30}, now=301, unsure_seconds=1)

    assert ages.age(KEY, now=301) == 1
    assert ages.older_than(0, now=301) == set()
