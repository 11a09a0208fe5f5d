"""What a listing must pass before it becomes the snapshot, for listings that nobody would think of.

Trial "One bad card takes down the list", as far as it concerns the worker: good neighbours always come back.
"""

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from drakkar.fleet.card import MAX_CARD_BYTES, CardError, check_card, encode_card
from drakkar.fleet.identity import WorkerIdentity
from drakkar.fleet.intake import Intake, ListedCard
from drakkar.fleet.provider import PeerCard
from drakkar.fleet.testkit import make_card
from drakkar.telemetry.metrics import RegistryMetrics
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from support.log import RecordingLogger

Card = dict[str, Any]

OFFLINE_AFTER = 30.0
OWN = WorkerIdentity(
    "worker-1", "search", "http://10.0.3.17:8080/", "0.1.0", datetime(2026, 10, 13, tzinfo=UTC)
)


class Bench:
    def __init__(self) -> None:
        self.log = RecordingLogger()
        self.registry = CollectorRegistry()
        self.intake = Intake(OWN, OFFLINE_AFTER, self.log, RegistryMetrics(self.registry))

    async def accept(self, *listing: PeerCard) -> tuple[ListedCard, ...]:
        return await self.intake.accept(listing)

    def metric(self, name: str) -> float:
        value = self.registry.get_sample_value(name)
        assert value is not None
        return value


def accepted(*listing: PeerCard) -> dict[str, float | None]:
    """The ages of those that a new worker takes from this listing, by name."""
    peers = asyncio.run(Bench().accept(*listing))
    return {peer.card["worker"]: peer.age_seconds for peer in peers}


# -- strategies

names = st.sampled_from(["worker-1", "worker-2", "worker-3", "größe", "", "\x00"]) | st.text(max_size=8)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
not_json = (
    st.binary(max_size=4)
    | st.builds(object)
    | st.sets(st.integers(), max_size=2)
    | st.dictionaries(st.integers(), st.integers(), min_size=1, max_size=2)
    | st.characters(categories=["Cs"])
    | st.just(10**5000)
    | st.complex_numbers()
)
values = json_like | not_json
fields = st.sampled_from(
    ["schema", "worker", "cluster", "url", "instance", "state", "version", "features", "heartbeat_at", "more"]
)


@st.composite
def cards(draw: st.DrawFn) -> Any:
    """A good card, a good card with some fields changed or gone, or no card at all."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(values)
    card: Any = make_card(draw(names.filter(bool)), instance=draw(st.sampled_from(["a" * 16, "b" * 16])))
    for field in draw(st.lists(fields, max_size=3)) if kind > 4 else ():
        if draw(st.booleans()):
            card[field] = draw(st.one_of(values, names, st.just(1), st.just(True), st.just(1.0)))
        else:
            card.pop(field, None)
    return card


ages = st.none() | st.floats() | st.integers() | st.booleans() | st.text(max_size=3) | st.floats(0, 100)
listings = st.lists(st.builds(PeerCard, cards(), ages), max_size=8)
thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# -- properties


@thorough
@given(listings, st.integers(0, 8), st.integers(0, 8))
def test_good_neighbours_are_always_listed(listing: list[PeerCard], first: int, second: int) -> None:
    listing = [*listing]
    good = [PeerCard(make_card("a good neighbour"), 1.0), PeerCard(make_card("another good neighbour"), None)]
    listing.insert(first, good[0])
    listing.insert(second, good[1])
    taken = accepted(*listing)
    assert taken["a good neighbour"] == 1.0
    assert taken["another good neighbour"] is None


@thorough
@given(listings)
def test_takes_only_what_can_be_stored_again_and_has_the_fields_of_a_card(listing: list[PeerCard]) -> None:
    for peer in asyncio.run(Bench().accept(*listing)):
        assert len(encode_card(peer.card)) <= MAX_CARD_BYTES
        check_card(peer.card)
        assert peer.age_seconds is None or math.isfinite(peer.age_seconds)


@thorough
@given(listings)
def test_refuses_only_what_is_no_card(listing: list[PeerCard]) -> None:
    def is_card(card: Any) -> bool:
        try:
            encode_card(card)
            check_card(card)
        except CardError:
            return False
        return True

    good = {listed.card["worker"] for listed in listing if is_card(listed.card)}
    assert set(accepted(*listing)) == good - {OWN.worker}


@thorough
@given(listings)
def test_lists_each_worker_once_by_name_and_itself_never(listing: list[PeerCard]) -> None:
    taken = [peer.card["worker"] for peer in asyncio.run(Bench().accept(*listing))]
    assert taken == sorted(set(taken))
    assert OWN.worker not in taken


@thorough
@given(st.lists(listings, min_size=2, max_size=4))
def test_what_it_remembers_changes_no_outcome(history: list[list[PeerCard]]) -> None:
    async def last_of(bench: Bench) -> list[tuple[str, float | None]]:
        peers: tuple[ListedCard, ...] = ()
        for listing in history:
            peers = await bench.accept(*listing)
        return [(repr(peer.card), peer.age_seconds) for peer in peers]

    async def alone(bench: Bench) -> list[tuple[str, float | None]]:
        return [(repr(peer.card), peer.age_seconds) for peer in await bench.accept(*history[-1])]

    assert asyncio.run(last_of(Bench())) == asyncio.run(alone(Bench()))


@thorough
@given(st.lists(listings, min_size=2, max_size=4))
def test_tells_of_a_bad_card_once_a_worker(history: list[list[PeerCard]]) -> None:
    async def lines() -> list[tuple[str, object]]:
        bench = Bench()
        for listing in history:
            await bench.accept(*listing)
        told = ("fleet_card_invalid", "fleet_card_schema_unsupported")
        return [(event, fields["worker"]) for _, event, fields in bench.log.lines if event in told]

    told = asyncio.run(lines())
    assert len(told) == len(set(told))


# -- what the properties found or do not reach


async def test_a_card_that_turns_bad_in_type_alone_is_noticed() -> None:
    bench = Bench()
    card = make_card("worker-2")
    assert len(await bench.accept(PeerCard(card, 1.0))) == 1
    assert await bench.accept(PeerCard({**card, "schema": True}, 1.0)) == ()  # which is equal to 1


async def test_a_card_whose_comparison_raises_costs_its_own_row() -> None:
    class Array(list[int]):
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value is ambiguous")

        __hash__ = None

    bench = Bench()
    good = PeerCard(make_card("worker-3"), 1.0)
    for _ in range(2):
        peers = await bench.accept(PeerCard({**make_card("worker-2"), "more": Array()}, 1.0), good)
        assert "worker-3" in [peer.card["worker"] for peer in peers]


@pytest.mark.parametrize("depth", [33, 10_000, 100_000])
async def test_a_deeply_nested_card_costs_its_own_row(depth: int) -> None:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    bench = Bench()
    deep = PeerCard({**make_card("worker-2"), "more": inner}, 1.0)
    good = PeerCard(make_card("worker-3"), 1.0)
    for _ in range(2):
        assert [peer.card["worker"] for peer in await bench.accept(deep, good)] == ["worker-3"]
    assert [line["worker"] for line in bench.log.named("fleet_card_invalid")] == ["worker-2"]
    while inner:
        inner = inner.pop()  # else its end would take the interpreter's stack along


async def test_counts_what_it_left_out_of_the_last_listing() -> None:
    bench = Bench()
    bad = [PeerCard({**make_card(f"worker-{n}"), "url": ""}, 1.0) for n in range(2, 5)]
    await bench.accept(*bad, PeerCard(make_card("worker-9"), 1.0))
    assert bench.metric("drakkar_fleet_invalid_cards") == 3
    await bench.accept(PeerCard(make_card("worker-9"), 1.0))
    assert bench.metric("drakkar_fleet_invalid_cards") == 0


async def test_lets_others_run_while_it_checks_thousands() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await Bench().accept(*(PeerCard(make_card(f"worker-{n}"), 1.0) for n in range(2, 2002)))
    counting.cancel()
    assert turns >= 20


async def test_a_log_line_holds_a_bounded_part_of_a_strangers_text() -> None:
    bench = Bench()
    await bench.accept(PeerCard({**make_card("x" * 3000), "url": 3}, 1.0))
    [line] = bench.log.named("fleet_card_invalid")
    assert all(len(str(value)) <= 200 for value in line.values())


# -- its own name


async def test_its_own_card_is_no_duplicate() -> None:
    bench = Bench()
    assert await bench.accept(PeerCard(make_card("worker-1", instance=OWN.instance), 1.0)) == ()
    assert bench.log.lines == []


@pytest.mark.parametrize("instance", ["0123456789abcdef", None])
async def test_another_live_instance_of_its_name_is_told_once(instance: str | None) -> None:
    bench = Bench()
    card = make_card("worker-1", url="http://10.0.0.9/")
    if instance is None:
        del card["instance"]  # the field is optional: another implementation may leave it out
    else:
        card["instance"] = instance
    for _ in range(3):
        assert await bench.accept(PeerCard(card, OFFLINE_AFTER)) == ()
    [line] = bench.log.named("fleet_duplicate_worker_name")
    assert (line["other_instance"], line["other_url"]) == (instance or "", "http://10.0.0.9/")
    assert bench.metric("drakkar_fleet_duplicate_worker_name_total") == 1


async def test_a_bad_card_of_its_own_name_is_told_as_a_bad_card() -> None:
    bench = Bench()
    await bench.accept(PeerCard(make_card("worker-1", url=""), 1.0))
    assert [event for _, event, _ in bench.log.lines] == ["fleet_card_invalid"]


async def test_what_it_remembers_of_other_instances_is_bounded() -> None:
    bench = Bench()
    for n in range(3000):
        await bench.accept(PeerCard(make_card("worker-1", instance=f"{n:016x}"), 1.0))
    assert len(bench.log.named("fleet_duplicate_worker_name")) == 1024
