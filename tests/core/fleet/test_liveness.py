"""Ages, who is online, and when a peer was last seen."""

import pytest
from drakkar.fleet.liveness import LIVENESS, age_now, last_seen, liveness
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.floats(min_value=0, max_value=1e9)


@pytest.mark.parametrize(
    ("age", "since", "now"),
    [
        (0.0, 0.0, 0.0),
        (12.5, 0.0, 12.5),
        (12.5, 2.5, 15.0),
        (0.0, 30.0, 30.0),
        (None, 0.0, None),
        (None, 9.0, None),
    ],
)
def test_an_age_grows_by_what_passed_since_the_listing(
    age: float | None, since: float, now: float | None
) -> None:
    assert age_now(age, since) == now


def test_an_age_below_zero_counts_as_zero() -> None:
    assert age_now(-5.0, 2.0) == 2.0


def test_time_that_seems_to_go_back_makes_nobody_younger() -> None:
    assert age_now(10.0, -3.0) == 10.0


@given(SECONDS, SECONDS, SECONDS)
def test_a_peer_never_looks_younger_as_time_goes_on(age: float, since: float, more: float) -> None:
    earlier, later = age_now(age, since), age_now(age, since + more)
    assert earlier is not None
    assert later is not None
    assert age <= earlier <= later


@pytest.mark.parametrize(
    ("age", "state"),
    [
        (0.0, "online"),
        (29.999, "online"),
        (30.0, "online"),
        (30.001, "offline"),
        (1e9, "offline"),
        (None, "unknown"),
    ],
)
def test_a_peer_is_online_up_to_the_limit_and_with_it(age: float | None, state: str) -> None:
    assert liveness(age, 30.0) == state


@given(st.none() | SECONDS, SECONDS)
def test_every_peer_is_counted_under_one_of_three_states(age: float | None, limit: float) -> None:
    assert liveness(age, limit) in LIVENESS


def test_the_three_states_are_those_of_the_metric() -> None:
    assert LIVENESS == ("online", "offline", "unknown")


def test_last_seen_is_the_readers_own_time_less_the_age() -> None:
    assert last_seen(1_760_348_411.0, 11.0) == 1_760_348_400.0


def test_last_seen_is_unknown_with_the_age() -> None:
    assert last_seen(1_760_348_411.0, None) is None
