"""The arithmetic of leases, exact and in general."""

import math

import pytest
from drakkar.leases.deadline import (
    FIRST_DELAY_SECONDS,
    MARGIN,
    MAX_DELAY_SECONDS,
    LeaseTiming,
    deadline,
    failure_delay,
    free_at,
    retry_delay,
)
from hypothesis import given
from hypothesis import strategies as st

seconds = st.floats(0.01, 1e6)
chances = st.floats(0, 1)
timings = st.builds(LeaseTiming, seconds, seconds, seconds, seconds)


def test_the_margin_is_a_tenth_of_the_ttl() -> None:
    """Rule 1: the margin is a tenth of the ttl."""
    assert MARGIN == 0.1
    assert deadline(1000.0, 30.0) == 1027.0


def test_a_lease_may_be_given_back_a_ttl_after_its_last_renewal() -> None:
    """Rule 3: no earlier than its ttl after the last successful renewal."""
    assert free_at(1000.0, 30.0) == 1030.0


@given(sent_at=st.floats(0, 1e9), ttl=seconds)
def test_a_holder_stops_before_anybody_else_can_start(sent_at: float, ttl: float) -> None:
    """Rule 1: for a store that counts from when it was asked, however late that was."""
    assert deadline(sent_at, ttl) <= free_at(sent_at, ttl)
    assert deadline(sent_at, ttl) >= sent_at


@pytest.mark.parametrize(
    ("timing", "period", "call"),
    [
        (LeaseTiming(), 10.0, 3.0),
        (LeaseTiming(ttl_seconds=15), 5.0, 3.0),
        (LeaseTiming(ttl_seconds=6), 2.0, 1.5),
        (LeaseTiming(ttl_seconds=60, renew_seconds=10), 10.0, 3.0),
        (LeaseTiming(ttl_seconds=1), 1 / 3, 0.25),
        (LeaseTiming(ttl_seconds=30, renew_seconds=1, timeout_seconds=20), 1.0, 7.5),
    ],
)
def test_period_and_time_limit_follow_from_the_ttl(timing: LeaseTiming, period: float, call: float) -> None:
    """Rule 14: the period is the smaller of `renew_seconds` and a third of the ttl, the time limit of a call
    a quarter of it at most."""
    assert (timing.period_seconds, timing.call_seconds) == (period, call)


@given(timing=timings)
def test_two_calls_always_fit_between_a_renewal_and_the_deadline(timing: LeaseTiming) -> None:
    """Rule 14: period + 2 x time limit <= ttl - margin, whatever the settings."""
    used = timing.period_seconds + 2 * timing.call_seconds
    assert used <= timing.ttl_seconds * (1 - MARGIN)


@given(timing=timings, ttl=seconds)
def test_a_shorter_grant_quickens_everything(timing: LeaseTiming, ttl: float) -> None:
    """Rule 14: on the effective ttl, which may be less than was asked for and never counts as more."""
    within = timing.within(ttl)
    assert within.ttl_seconds == min(timing.ttl_seconds, ttl)
    assert within.period_seconds <= timing.period_seconds
    assert within.call_seconds <= timing.call_seconds
    assert (within.renew_seconds, within.retry_seconds) == (timing.renew_seconds, timing.retry_seconds)


def test_settings_that_hold_are_no_problem() -> None:
    assert LeaseTiming().problems(30.0) == []


def test_a_ttl_below_the_floor_of_the_backend_is_a_problem() -> None:
    """Rule 14: floors, told with the key and both numbers."""
    [problem] = LeaseTiming(ttl_seconds=10).problems(20.0)
    assert problem == (
        "supervisor.leases.ttl_seconds (10) is less than this lease backend can keep (20); raise it"
    )


def test_a_ttl_that_no_store_would_take_is_a_problem() -> None:
    """Rule 14: a store that refuses it would do so for ever, and nothing would lead."""
    [problem] = LeaseTiming(ttl_seconds=100_000).problems(2.0)
    assert problem == "supervisor.leases.ttl_seconds (100000) is more than a lease may last (86400); lower it"
    assert LeaseTiming(ttl_seconds=86_400).problems(2.0) == []


@pytest.mark.parametrize("name", ["ttl_seconds", "renew_seconds", "retry_seconds", "timeout_seconds"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_time_that_is_none_is_a_problem(name: str, value: float) -> None:
    """Rule 14: one message for each."""
    [problem] = LeaseTiming(**{name: value}).problems(0.0)
    assert problem == f"supervisor.leases.{name} ({value:g}) must be a number above 0"


def test_every_problem_is_told() -> None:
    assert len(LeaseTiming(0.0, 0.0, 0.0, 0.0).problems(5.0)) == 4


@pytest.mark.parametrize(
    ("retry_after", "chance", "delay"),
    [
        (None, 0.0, 5.0),
        (None, 1.0, 5.5),
        (12.0, 0.0, 12.0),
        (12.0, 0.5, 12.25),
        (0.0, 0.5, 0.25),
        (-3.0, 0.0, 0.0),
        (1e9, 1.0, 30.5),
    ],
)
def test_a_candidate_sleeps_as_long_as_the_store_says(
    retry_after: float | None, chance: float, delay: float
) -> None:
    """Rule 7: until `retry_after_seconds` plus jitter; None means `retry_seconds`."""
    assert retry_delay(retry_after, 5.0, chance, 30.0) == delay


@given(retry_after=st.none() | st.floats(-1e9, 1e9), retry=seconds, longest=seconds, chance=chances)
def test_a_candidate_never_sleeps_much_longer_than_a_lease_can_last(
    retry_after: float | None, retry: float, longest: float, chance: float
) -> None:
    """Rule 7: a wake-up can be lost, and what the store says be nonsense."""
    assert 0 <= retry_delay(retry_after, retry, chance, longest) <= longest + 0.1 * retry


@pytest.mark.parametrize(
    ("failures", "shortest"), [(1, 0.125), (2, 0.25), (3, 0.5), (7, 8.0), (8, 15.0), (9, 15.0), (10**9, 15.0)]
)
def test_delays_double_up_to_half_a_minute(failures: int, shortest: float) -> None:
    """Rule 7: a store that is down is retried with growing jittered delays."""
    assert failure_delay(failures, 0.0) == shortest
    assert failure_delay(failures, 1.0) == 2 * shortest


@given(failures=st.integers(1, 10**6), chance=chances)
def test_delays_grow_and_stay_within_bounds(failures: int, chance: float) -> None:
    """Rule 7: never none at all, never more than half a minute."""
    delay = failure_delay(failures, chance)
    assert 0.5 * FIRST_DELAY_SECONDS <= delay <= MAX_DELAY_SECONDS
    assert failure_delay(failures + 1, chance) >= delay
