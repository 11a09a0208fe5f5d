"""The folders of leases: no two names meet, whatever is in them."""

import re

import pytest
from drakkar_filesystem._lease_record import name_of, place_of
from hypothesis import given
from hypothesis import strategies as st
from support.lease_folders import LeaseFolder, granted, rows_of

NAMES = st.text(st.characters(), min_size=1, max_size=200)  # lone surrogates as well
ALIKE = ["gc", "GC", "g/c", "g\\c", "..", ".", ".holders", "base", "gc ", "gc.", "=67=63", "=="]
ALIKE += ["\xe9", "e\u0301"]


@given(NAMES)
def test_a_place_is_a_name_that_every_file_system_takes(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9_=-]{1,200}", place_of(name))


@given(NAMES, NAMES)
def test_two_names_never_have_one_place(one: str, two: str) -> None:
    assert (place_of(one) == place_of(two)) == (one == two)


@given(st.text(st.characters(), min_size=1, max_size=66))
def test_a_name_can_be_told_from_its_place(name: str) -> None:
    assert name_of(place_of(name)) == (name if not place_of(name).startswith("==") else None)


@given(st.text())
def test_what_is_no_place_has_no_name(text: str) -> None:
    name = name_of(text)
    assert name is None or place_of(name) == text


async def test_names_that_look_alike_are_leases_of_their_own(fleet: LeaseFolder) -> None:
    first = await fleet.start("worker-1")
    names = [*ALIKE, "x" * 200, "x" * 199 + "y", "\U0001f600" * 200, "\ud800", "\0", "a\nb"]

    leases = [await granted(first, name) for name in names]

    assert (await first.renew(leases)).kept == leases
    assert sorted((await rows_of(first)).keys()) == sorted(names)


@pytest.mark.parametrize("worker", ["w" * 200, "\U0001f600" * 200, "\ud800\n/"])
async def test_a_worker_may_have_any_name(fleet: LeaseFolder, worker: str) -> None:
    first = await fleet.start(worker, "1")

    lease = await granted(first, "\U0001f600" * 200)

    assert (await first.renew([lease])).kept == [lease]
    assert (await rows_of(first))["\U0001f600" * 200].holder == f"{worker}/1"
