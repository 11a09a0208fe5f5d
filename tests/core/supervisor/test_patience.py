"""Whether giving away was of use, as arithmetic."""

import pytest
from drakkar.supervisor.patience import Patience

REFRESH = 15.0


def due_at(patience: Patience, now: float, *, kept: bool = True) -> float:
    """The first refresh from `now` on at which something may be given away."""
    while not patience.is_due(now, kept):
        now += REFRESH
        assert now < 1e6
    return now


def test_while_all_goes_well_something_may_be_given_away_at_every_refresh() -> None:
    patience = Patience(REFRESH)
    for now in (0, 15, 30, 45):
        assert patience.is_due(now, True)
        assert patience.most(7) == 7
        patience.gave(now)


def test_each_failure_doubles_the_pause_up_to_a_quarter_of_an_hour() -> None:
    patience, now, pauses = Patience(REFRESH), 0.0, []
    for _ in range(9):
        patience.gave(now)
        patience.took(now + 1)
        again = due_at(patience, now)
        pauses.append(again - now)
        now = again

    assert pauses == [45, 75, 135, 255, 495, 915, 915, 915, 915]


def test_after_a_failure_one_is_given_as_a_probe_and_no_more_before_it_was_kept() -> None:
    patience = Patience(REFRESH)
    patience.gave(0)
    patience.took(1)
    now = due_at(patience, 0)
    assert patience.most(7) == 1
    patience.gave(now)
    assert due_at(patience, now) - now == 60
    assert patience.most(7) == 7


def test_a_probe_that_made_nobody_richer_is_a_failure() -> None:
    patience = Patience(REFRESH)
    patience.gave(0)
    patience.took(1)
    now = due_at(patience, 0)
    patience.gave(now)

    assert not patience.is_due(now + 60, False)
    assert due_at(patience, now + 60) - (now + 60) == 60


def test_a_probe_that_came_back_is_a_failure_at_once() -> None:
    patience = Patience(REFRESH)
    patience.gave(0)
    patience.took(1)
    now = due_at(patience, 0)
    patience.gave(now)
    patience.took(now + 30)

    assert due_at(patience, now) - now == 90


def test_many_that_come_back_at_once_are_one_failure() -> None:
    patience = Patience(REFRESH)
    patience.gave(0)
    for _ in range(64):
        patience.took(1)

    assert due_at(patience, 0) == 45


def test_what_comes_back_after_it_may_have_been_healthy_is_no_failure() -> None:
    patience = Patience(REFRESH)
    patience.gave(0)
    patience.took(300)

    assert patience.is_due(300, True)


@pytest.mark.parametrize(("after", "pause"), [(200, 75), (400, 45)])
def test_failures_are_forgotten_when_it_has_gone_well_for_five_minutes(after: float, pause: float) -> None:
    patience = Patience(REFRESH)
    patience.gave(0)
    patience.took(1)
    now = due_at(patience, 0)
    patience.gave(now)
    now = due_at(patience, now + after)
    patience.gave(now)
    patience.took(now + 1)

    assert due_at(patience, now) - now == pause


def test_a_peer_that_was_never_given_anything_is_given_some_at_once() -> None:
    patience = Patience(REFRESH)
    patience.gave(0)
    patience.took(1)
    patience.forgive()

    assert patience.is_due(15, True)
    assert patience.most(7) == 7
