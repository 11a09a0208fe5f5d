"""What a backend may answer, and what the keeper makes of it: sense, or nothing at all."""

import asyncio
from typing import Any

import pytest
from drakkar.calls import CallError
from drakkar.leases.answers import sound_answer, sound_renewal, sound_rows
from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal
from drakkar.leases.handle import LeaseState
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clock import settle
from support.lease_bench import DEADLINE, TTL, benches, ended
from support.log import RecordingLogger

CTX = LeaseContext("worker-1", "1", "", RecordingLogger(), ttl_seconds=30.0)
ME = "worker-1/1"

few = settings(max_examples=50)

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=4,
)
odd_leases = st.builds(Lease, st.just("gc-leader") | anything, st.just(ME) | anything, anything, anything)
odd_rows = st.builds(LeaseInfo, st.text() | anything, anything, anything, anything, anything)


def grant(**fields: Any) -> Lease:
    return Lease(**{"name": "gc-leader", "holder": ME, "token": 7, "ttl_seconds": 30.0, **fields})


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        "gc-leader",
        ("gc-leader", ME, 7, 30.0),
        Lease,
        grant(name="lifecycle-leader"),
        grant(name=["gc-leader"]),
        grant(holder="worker-2/1"),
        grant(holder=None),
        grant(token="7"),
        grant(token=7.0),
        grant(token=True),
        grant(token=None),
        grant(ttl_seconds=float("nan")),
        grant(ttl_seconds=float("inf")),
        grant(ttl_seconds=None),
        grant(ttl_seconds="30"),
        grant(ttl_seconds=True),
        grant(ttl_seconds=10**400),
        Held(ME, 3.0),
    ],
)
async def test_nobody_leads_on_nonsense(answer: Any) -> None:
    """Nor is it taken for a refusal, nor forgotten: what the store has granted is given back."""
    async with benches("worker-1") as [bench]:
        odd = answer

        def tell(name: str) -> Any:
            if isinstance(odd, Lease | Held) and odd.holder == ME:
                return type(odd)(**{**_fields(odd), "holder": bench.ctx.holder})
            return odd if odd is not None else "nothing"

        bench.backend.after["acquire"] = tell
        waiting = bench.acquiring()
        await bench.clock.advance(5)
        assert not waiting.done()
        assert bench.keeper.held() == []
        assert len(bench.backend.asked("acquire")) >= 3
        waiting.cancel()
        del bench.backend.after["acquire"]
        await bench.clock.advance(10)
        assert not bench.held()


def _fields(answer: Lease | Held) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__dataclass_fields__}


@pytest.mark.parametrize(
    ("hint", "seconds"),
    [
        (3.5, 3.5),
        (0, 0.0),
        (-1.0, 0.0),
        (float("nan"), None),
        (float("inf"), None),
        ("soon", None),
        (True, None),
        (None, None),
    ],
)
def test_a_hint_that_makes_no_sense_is_none(hint: Any, seconds: float | None) -> None:
    assert sound_answer(Held("worker-2/1", hint), "gc-leader", CTX) == Held("worker-2/1", seconds)


def test_a_refusal_by_nobody_in_particular_is_a_refusal() -> None:
    odd: Any = 5
    assert sound_answer(Held(odd), "gc-leader", CTX) == Held(None)


def test_a_grant_counts_for_no_longer_than_was_asked() -> None:
    assert sound_answer(grant(ttl_seconds=3600), "gc-leader", CTX) == grant(ttl_seconds=30.0)
    assert sound_answer(grant(ttl_seconds=5), "gc-leader", CTX) == grant(ttl_seconds=5)


def test_what_is_kept_and_lost_at_once_is_lost() -> None:
    assert sound_renewal(Renewal([grant()], [grant()]), CTX) == Renewal([], [grant()])


def test_a_lost_lease_needs_no_ttl() -> None:
    odd = grant(ttl_seconds=None)
    assert sound_renewal(Renewal([], [odd]), CTX).lost == [odd]


@pytest.mark.parametrize(
    "lease",
    [
        None,
        "gc-leader",
        grant(holder="worker-2/1"),
        grant(name=None),
        grant(name=[]),
        grant(token="7"),
        grant(ttl_seconds=float("nan")),
        grant(ttl_seconds=float("inf")),
    ],
)
def test_what_makes_no_sense_is_not_kept_and_spoils_nothing(lease: Any) -> None:
    sound = grant(name="lifecycle-leader")
    assert sound_renewal(Renewal([lease, sound], []), CTX) == Renewal([sound], [])


@few
@given(st.lists(odd_leases | anything), st.lists(odd_leases | anything))
def test_of_any_renewal_only_what_is_ours_is_left(kept: list[Any], lost: list[Any]) -> None:
    renewal = sound_renewal(Renewal(kept, lost), CTX)
    for lease in (*renewal.kept, *renewal.lost):
        assert (lease.holder, type(lease.name), type(lease.token)) == (ME, str, int)
    assert all(0 <= lease.ttl_seconds <= 30 for lease in renewal.kept)


@given(odd_leases | anything | st.builds(Held, anything, anything))
def test_any_answer_is_a_grant_a_refusal_or_an_error(answer: Any) -> None:
    try:
        sound = sound_answer(answer, "gc-leader", CTX)
    except CallError:
        return
    if isinstance(sound, Lease):
        assert (sound.name, sound.holder, type(sound.token)) == ("gc-leader", ME, int)
        assert 0 <= sound.ttl_seconds <= 30
    else:
        assert sound.holder != ME
        assert sound.retry_after_seconds is None or 0 <= sound.retry_after_seconds <= 1e9


@few
@given(st.lists(odd_rows | anything))
def test_of_any_listing_only_rows_with_a_name_are_left(rows: list[Any]) -> None:
    for row in sound_rows(rows):
        assert type(row.name) is str
        assert row.holder is None or type(row.holder) is str
        assert row.token is None or type(row.token) is int
        for seconds in (row.age_seconds, row.remaining_seconds):
            assert seconds is None or 0 <= seconds <= 1e9


@pytest.mark.parametrize(
    "answer",
    [
        "kept",
        True,
        Renewal(kept=None),  # type: ignore[arg-type]  # what is tried
        Renewal(kept=5),  # type: ignore[arg-type]  # what is tried
        Renewal(kept=["gc-leader"]),  # type: ignore[list-item]  # what is tried
        Renewal(lost=[None, 3]),  # type: ignore[list-item]  # what is tried
    ],
)
async def test_a_renewal_that_makes_no_sense_is_unknown(answer: Any) -> None:
    """Kept until the deadline, lost then, and the loop goes on."""
    async with benches("worker-1") as [bench]:
        handle = await bench.acquire()
        bench.backend.before["renew"] = lambda: answer
        await bench.clock.advance(DEADLINE - 0.01)
        assert not handle.lost
        await bench.clock.advance(0.01)
        assert handle.state is LeaseState.LOST
        await bench.keeper.release(handle)
        del bench.backend.before["renew"]
        again = await bench.acquire()
        await bench.clock.advance(3 * TTL)
        assert not again.lost
        assert bench.log.named("lease_loop_failed") == []


@pytest.mark.parametrize("answer", ["gc-leader", 5, [["gc-leader"]], [None], {"lifecycle-leader"}])
async def test_a_wake_up_that_makes_no_sense_wakes_nobody_and_burns_no_time(answer: Any) -> None:
    async with benches("worker-1", "worker-2") as [first, second]:
        handle = await first.acquire()
        second.backend.before["wait"] = lambda: answer
        waiting = second.acquiring()
        await first.clock.advance(4)
        assert len(second.backend.asked("acquire")) == 1
        assert len(second.backend.asked("wait")) < 10
        await first.keeper.release(handle)
        await ended(first.clock, waiting, within_seconds=TTL)


async def test_a_listing_that_makes_no_sense_is_an_error() -> None:
    async with benches("worker-1") as [bench]:
        bench.backend.before["list"] = lambda: 5
        with pytest.raises(CallError, match="TypeError"):
            await bench.keeper.list()


async def test_a_backend_whose_methods_are_no_coroutines_is_an_error() -> None:
    async with benches("worker-1") as [bench]:
        sync: Any = lambda name: Lease(name, bench.ctx.holder, 1, 30.0)  # noqa: E731
        bench.backend.acquire = sync  # type: ignore[method-assign]  # what is tried
        waiting = bench.acquiring()
        await settle()
        assert not waiting.done()
        assert bench.value("drakkar_lease_errors_total", op="acquire") == 1
        waiting.cancel()
        await asyncio.wait({waiting})
        del bench.backend.acquire
