"""The registry service over a scripted provider and a clock that stands still."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from drakkar.errors import ConfigError
from drakkar.fleet.identity import WorkerIdentity
from drakkar.fleet.provider import PeerCard, PeerCardList, ProviderConfigError, RegistryContext
from drakkar.fleet.service import RegistryService, RegistryTiming
from drakkar.fleet.testkit import make_card
from drakkar.telemetry.metrics import RegistryMetrics
from drakkar.telemetry.outages import LOG_EVERY_SECONDS
from prometheus_client import CollectorRegistry
from support.clock import FakeClock, settle
from support.log import RecordingLogger
from support.waiting import until

Card = dict[str, Any]


class ScriptedProvider:
    """Does what a test tells it: `on[op]` runs instead of the usual answer."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.published: list[Card] = []
        self.cards: PeerCardList = []
        self.on: dict[str, Callable[[], Any]] = {}

    async def _do(self, op: str) -> None:
        self.calls.append(op)
        if op in self.on:
            result = self.on[op]()
            if asyncio.iscoroutine(result):
                await result

    async def start(self, ctx: RegistryContext) -> None:
        await self._do("start")

    async def publish(self, card: Card) -> None:
        self.published.append(card)
        await self._do("publish")

    async def list(self) -> PeerCardList:
        await self._do("list")
        return [*self.cards]

    async def withdraw(self, worker: str, instance: str) -> None:
        await self._do("withdraw")

    async def stop(self) -> None:
        await self._do("stop")

    def states(self) -> Sequence[str]:
        return [card["state"] for card in self.published]


class Bench:
    """A service with all that it stands on."""

    def __init__(self, timing: RegistryTiming | None = None) -> None:
        self.provider = ScriptedProvider()
        self.clock = FakeClock()
        self.log = RecordingLogger()
        self.metrics = CollectorRegistry()
        self.identity = WorkerIdentity(
            worker="worker-1",
            cluster="search",
            url="http://10.0.3.17:8080/",
            version="0.1.0",
            started_at=datetime(2026, 10, 13, 9, 12, 1, 123456, tzinfo=UTC),
            instance="9c41e0b27fd34a1e",
        )
        self.service = RegistryService(
            "scripted",
            self.provider,
            RegistryContext("worker-1", self.identity.instance, "search", self.log),
            self.identity,
            timing or RegistryTiming(timeout_seconds=30),
            clock=self.clock,
            logger=self.log,
            metrics=RegistryMetrics(self.metrics),
        )

    def metric(self, name: str, **labels: str) -> float:
        value = self.metrics.get_sample_value(name, labels)
        assert value is not None, f"there is no series {name}{labels}"
        return value

    def online(self) -> dict[str, str]:
        return {peer.card["worker"]: peer.liveness for peer in self.service.peers()}


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    await bench.service.start()
    bench.service.set_state("running")
    await settle()
    try:
        yield bench
    finally:
        await bench.service.stop()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running(Bench()) as bench:
        yield bench


HASTY = RegistryTiming(timeout_seconds=0.05)
"""For a provider that hangs. This is real time, so whatever must be in time has a longer limit."""


@pytest.fixture
async def hasty() -> AsyncIterator[Bench]:
    async with running(Bench(HASTY)) as bench:
        yield bench


def fails(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


async def hangs() -> None:
    await asyncio.Event().wait()


# -- publishing


async def test_publishes_starting_then_running_without_waiting_for_a_heartbeat(bench: Bench) -> None:
    assert bench.provider.states() == ["starting", "running"]


async def test_publishes_the_whole_card(bench: Bench) -> None:
    assert bench.provider.published[-1] == {
        "backend": "python",
        "cluster": "search",
        "features": {},
        "heartbeat_at": "2026-10-13T09:40:11.000210Z",
        "instance": "9c41e0b27fd34a1e",
        "schema": 1,
        "started_at": "2026-10-13T09:12:01.123456Z",
        "state": "running",
        "url": "http://10.0.3.17:8080/",
        "version": "0.1.0",
        "worker": "worker-1",
    }


async def test_publishes_the_current_state_again_every_heartbeat(bench: Bench) -> None:
    await bench.clock.advance(9.9)
    assert bench.provider.states() == ["starting", "running"]
    await bench.clock.advance(30.1)
    assert bench.provider.states() == ["starting", "running", *["running"] * 4]
    assert bench.provider.published[-1]["heartbeat_at"] == "2026-10-13T09:40:51.000210Z"


async def test_publishes_every_state_in_order_although_they_change_while_the_store_is_slow() -> None:
    bench = Bench(RegistryTiming(timeout_seconds=5))
    gate = asyncio.Event()
    bench.provider.on["publish"] = gate.wait
    await bench.service.start()
    bench.service.set_state("running")
    bench.service.set_state("draining")
    await settle()
    assert bench.provider.states() == ["starting"]
    gate.set()
    await bench.service.stop()
    assert bench.provider.states() == ["starting", "running", "draining"]


async def test_shows_only_the_newest_state_when_the_store_comes_back(hasty: Bench) -> None:
    hasty.provider.on["publish"] = hangs
    await hasty.clock.advance(10)
    hasty.service.set_state("draining")
    await until(lambda: hasty.metric("drakkar_fleet_registry_errors_total", op="publish") == 2)
    assert hasty.provider.states() == ["starting", "running", "running", "draining"]


# -- listing


async def test_leaves_its_own_card_out_and_sorts_the_others(bench: Bench) -> None:
    bench.provider.cards = [PeerCard(make_card(f"worker-{n}"), 1.0) for n in (3, 2)]
    bench.provider.cards.append(PeerCard(make_card("worker-1", instance="9c41e0b27fd34a1e"), 1.0))
    await bench.clock.advance(15)
    assert bench.online() == {"worker-2": "online", "worker-3": "online"}
    assert list(bench.online()) == ["worker-2", "worker-3"]


async def test_tells_online_offline_and_unknown_by_the_age_of_the_card(bench: Bench) -> None:
    bench.provider.cards = [
        PeerCard(make_card("worker-2"), 30.0),
        PeerCard(make_card("worker-3"), 30.1),
        PeerCard(make_card("worker-4"), None),
    ]
    await bench.clock.advance(15)
    assert bench.online() == {"worker-2": "online", "worker-3": "offline", "worker-4": "unknown"}
    for state in ("online", "offline", "unknown"):
        assert bench.metric("drakkar_fleet_peers", state=state) == 1


async def test_moves_ages_forward_by_its_own_elapsed_time_while_refreshes_fail(bench: Bench) -> None:
    bench.provider.cards = [PeerCard(make_card("worker-2"), 3.0)]
    await bench.clock.advance(15)
    bench.provider.on["list"] = fails(OSError("the store is gone"))
    await bench.clock.advance(27)
    assert bench.service.peers()[0].age_seconds == pytest.approx(30.0)
    assert bench.online() == {"worker-2": "online"}
    await bench.clock.advance(1)
    assert bench.online() == {"worker-2": "offline"}
    assert bench.metric("drakkar_fleet_peers", state="offline") == 1


async def test_ignores_the_wall_clock(bench: Bench) -> None:
    bench.provider.cards = [PeerCard(make_card("worker-2", heartbeat_at="1999-01-01T00:00:00.000000Z"), 3.0)]
    await bench.clock.advance(15)
    bench.clock.step_wall(-3600)
    await bench.clock.advance(2)
    assert bench.service.peers()[0].age_seconds == pytest.approx(5.0)


async def test_a_listing_that_took_long_does_not_make_its_cards_younger() -> None:
    bench = Bench(RegistryTiming(timeout_seconds=5))
    async with running(bench):
        bench.provider.cards = [PeerCard(make_card("worker-2"), 0.0)]
        gate = asyncio.Event()
        bench.provider.on["list"] = gate.wait
        await bench.clock.advance(15)
        await bench.clock.advance(4)
        gate.set()
        await settle()
        assert bench.service.peers()[0].age_seconds == pytest.approx(4.0)
        assert bench.service.snapshot_age_seconds() == 0


async def test_grows_the_snapshot_age_until_a_refresh_succeeds(bench: Bench) -> None:
    bench.provider.on["list"] = fails(OSError("the store is gone"))
    await bench.clock.advance(50)
    assert bench.metric("drakkar_fleet_registry_snapshot_age_seconds") == pytest.approx(50)
    del bench.provider.on["list"]
    await bench.clock.advance(10)
    assert bench.metric("drakkar_fleet_registry_snapshot_age_seconds") == pytest.approx(0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 2}, "schema"),
        ({"url": ""}, "empty_field"),
        ({"cluster": None}, "wrong_type"),
        ({"features": []}, "wrong_type"),
        ({"state": float("nan")}, "not_json"),
        ({"version": "\ud800"}, "not_json"),
        ({"version": "x" * 5000}, "too_large"),
        ({"unknown": object()}, "not_json"),
        ({"unknown": {1: 2}}, "not_json"),
    ],
)
async def test_leaves_a_bad_card_out_names_it_once_and_lists_its_neighbours(
    bench: Bench, change: Card, reason: str
) -> None:
    bench.provider.cards = [
        PeerCard(make_card("worker-2"), 1.0),
        PeerCard({**make_card("worker-3"), **change}, 1.0),
        PeerCard(make_card("worker-4"), 1.0),
    ]
    await bench.clock.advance(60)
    assert list(bench.online()) == ["worker-2", "worker-4"]
    event = "fleet_card_schema_unsupported" if reason == "schema" else "fleet_card_invalid"
    lines = bench.log.named(event)
    assert [(line["worker"], line["reason"]) for line in lines] == [("worker-3", reason)]
    assert bench.log.level_of(event) == "warning"
    assert bench.metric("drakkar_fleet_invalid_cards") == 1


@pytest.mark.parametrize("card", [None, [], 3, "text", {}, {"schema": 10**6000}])
async def test_survives_a_provider_that_lists_what_is_no_card(bench: Bench, card: Any) -> None:
    bench.provider.cards = [PeerCard(card, 1.0), PeerCard(make_card("worker-2"), 1.0)]
    await bench.clock.advance(15)
    assert list(bench.online()) == ["worker-2"]


@pytest.mark.parametrize("age", [float("nan"), float("inf"), 10**400, "3", True, object()])
async def test_takes_an_age_that_is_no_number_of_seconds_for_unknown(bench: Bench, age: Any) -> None:
    bench.provider.cards = [PeerCard(make_card("worker-2"), age)]
    await bench.clock.advance(15)
    assert bench.online() == {"worker-2": "unknown"}


async def test_takes_a_negative_age_for_zero(bench: Bench) -> None:
    bench.provider.cards = [PeerCard(make_card("worker-2"), -5.0)]
    await bench.clock.advance(15)
    assert bench.service.peers()[0].age_seconds == 0


async def test_keeps_fields_and_states_that_it_does_not_know(bench: Bench) -> None:
    bench.provider.cards = [PeerCard({**make_card("worker-2"), "state": "dancing", "more": [1]}, 1.0)]
    await bench.clock.advance(15)
    assert bench.service.peers()[0].card["more"] == [1]
    assert bench.service.peers()[0].card["state"] == "dancing"


async def test_of_two_cards_of_one_worker_the_younger_stays(bench: Bench) -> None:
    bench.provider.cards = [
        PeerCard(make_card("worker-2", url="http://10.0.0.1/"), 9.0),
        PeerCard(make_card("worker-2", url="http://10.0.0.2/"), 2.0),
        PeerCard(make_card("worker-2", url="http://10.0.0.3/"), None),
    ]
    await bench.clock.advance(15)
    assert [peer.card["url"] for peer in bench.service.peers()] == ["http://10.0.0.2/"]


async def test_notices_a_card_that_turns_bad_after_it_was_good(bench: Bench) -> None:
    bench.provider.cards = [PeerCard(make_card("worker-2"), 1.0)]
    await bench.clock.advance(15)
    bench.provider.cards = [PeerCard({**make_card("worker-2"), "url": 3}, 1.0)]
    await bench.clock.advance(15)
    assert bench.online() == {}


async def test_bounds_what_it_remembers_of_bad_cards(bench: Bench) -> None:
    bench.provider.cards = [PeerCard({**make_card(f"worker-{n}"), "url": ""}, 1.0) for n in range(3000)]
    await bench.clock.advance(15)
    await until(lambda: bench.metric("drakkar_fleet_invalid_cards") == 3000)
    assert len(bench.log.named("fleet_card_invalid")) == 1024


# -- duplicate names


async def test_warns_once_of_another_live_instance_of_its_name(bench: Bench) -> None:
    other = make_card("worker-1", instance="0123456789abcdef", url="http://10.0.3.99:8080/")
    bench.provider.cards = [PeerCard(other, 29.0)]
    await bench.clock.advance(45)
    [line] = bench.log.named("fleet_duplicate_worker_name")
    assert (line["other_instance"], line["other_url"]) == ("0123456789abcdef", "http://10.0.3.99:8080/")
    assert bench.log.level_of("fleet_duplicate_worker_name") == "warning"
    assert "another worker_name" in line["hint"]
    assert bench.metric("drakkar_fleet_duplicate_worker_name_total") == 1
    bench.provider.cards = [PeerCard({**other, "instance": "f" * 16}, 1.0)]
    await bench.clock.advance(15)
    assert bench.metric("drakkar_fleet_duplicate_worker_name_total") == 2


@pytest.mark.parametrize("age", [30.1, None])
async def test_does_not_warn_of_what_an_earlier_process_left_behind(bench: Bench, age: float | None) -> None:
    bench.provider.cards = [PeerCard(make_card("worker-1", instance="0123456789abcdef"), age)]
    await bench.clock.advance(15)
    assert bench.log.named("fleet_duplicate_worker_name") == []


# -- failures


@pytest.mark.parametrize("op", ["publish", "list"])
@pytest.mark.parametrize(
    "error", [OSError("the store is gone"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
async def test_counts_whatever_a_provider_raises_and_goes_on(
    bench: Bench, op: str, error: BaseException
) -> None:
    bench.provider.on[op] = fails(error)
    await bench.clock.advance(60)
    failed = bench.metric("drakkar_fleet_registry_errors_total", op=op)
    assert failed == (6 if op == "publish" else 4)
    del bench.provider.on[op]
    bench.provider.cards = [PeerCard(make_card("worker-2"), 1.0)]
    await bench.clock.advance(15)
    assert bench.metric("drakkar_fleet_registry_errors_total", op=op) == failed
    assert list(bench.online()) == ["worker-2"]


async def test_logs_failures_of_an_operation_once_a_minute_with_how_many_the_line_stands_for(
    bench: Bench,
) -> None:
    bench.provider.on["publish"] = fails(OSError("no room"))
    await bench.clock.advance(10)
    [first] = bench.log.named("fleet_registry_publish_failed")
    assert first == {"error": "OSError: no room", "suppressed": 0}
    assert bench.log.level_of("fleet_registry_publish_failed") == "warning"
    await bench.clock.advance(LOG_EVERY_SECONDS - 1)
    assert len(bench.log.named("fleet_registry_publish_failed")) == 1
    await bench.clock.advance(1)
    assert [line["suppressed"] for line in bench.log.named("fleet_registry_publish_failed")] == [0, 5]


async def test_says_when_an_outage_is_over_and_how_long_it_was(bench: Bench) -> None:
    bench.provider.on["publish"] = fails(OSError("no room"))
    await bench.clock.advance(30)
    assert bench.service.health().failing == {"publish": pytest.approx(20)}
    del bench.provider.on["publish"]
    await bench.clock.advance(10)
    assert bench.log.named("fleet_registry_recovered") == [
        {"op": "publish", "after_seconds": 30.0, "failures": 3}
    ]
    assert bench.service.health().failing == {}


async def test_an_error_that_cannot_be_shown_is_only_an_error(bench: Bench) -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    bench.provider.on["publish"] = fails(UnprintableError())
    await bench.clock.advance(10)
    assert bench.log.named("fleet_registry_publish_failed")[0]["error"] == "UnprintableError"


async def test_a_call_that_hangs_is_ended_at_the_time_limit_and_the_other_loop_goes_on(hasty: Bench) -> None:
    hasty.provider.on["publish"] = hangs
    hasty.provider.cards = [PeerCard(make_card("worker-2"), 1.0)]
    await hasty.clock.advance(15)
    assert list(hasty.online()) == ["worker-2"]
    await until(lambda: hasty.metric("drakkar_fleet_registry_errors_total", op="publish") >= 1)
    assert "no answer within 0.05 s" in hasty.log.named("fleet_registry_publish_failed")[0]["error"]
    assert hasty.metric("drakkar_fleet_registry_duration_seconds_count", op="publish") == 3


async def test_a_call_that_ignores_its_cancellation_does_not_pile_up(hasty: Bench) -> None:
    release = asyncio.Event()

    async def ignores() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    hasty.provider.on["list"] = ignores
    calls = hasty.provider.calls.count("list")
    await hasty.clock.advance(15)
    await until(lambda: hasty.metric("drakkar_fleet_registry_errors_total", op="list") == 1)
    for failures in (2, 3, 4):
        await hasty.clock.advance(15)
        assert hasty.metric("drakkar_fleet_registry_errors_total", op="list") == failures
    assert hasty.provider.calls.count("list") == calls + 1
    del hasty.provider.on["list"]
    release.set()
    await hasty.clock.advance(15)
    assert hasty.provider.calls.count("list") == calls + 2


# -- start


async def test_a_provider_that_cannot_start_is_logged_and_replaced_by_nobody() -> None:
    bench = Bench()
    bench.provider.on["start"] = fails(OSError("no route"))
    async with running(bench):
        [line] = bench.log.named("fleet_registry_start_failed")
        assert line == {"provider": "scripted", "error": "OSError: no route"}
        assert bench.log.level_of("fleet_registry_start_failed") == "error"
        await bench.clock.advance(60)
        assert bench.provider.calls == ["start", "stop"]
        assert bench.service.peers() == ()
        assert bench.service.health().provider == "none"
        assert bench.metric("drakkar_fleet_registry_snapshot_age_seconds") == pytest.approx(60)
    assert bench.provider.calls == ["start", "stop"]


async def test_a_provider_that_hangs_in_start_is_given_up_at_the_time_limit() -> None:
    bench = Bench(HASTY)
    bench.provider.on["start"] = hangs
    async with running(bench):
        assert bench.log.named("fleet_registry_start_failed")[0]["error"] == "no answer within 0.05 s"


async def test_a_configuration_that_can_never_work_ends_the_start() -> None:
    bench = Bench()
    bench.provider.on["start"] = fails(ProviderConfigError("fleet.registry.x.y: no"))
    with pytest.raises(ConfigError, match=r"^fleet\.registry\.x\.y: no$"):
        await bench.service.start()
    await bench.service.stop()
    assert bench.provider.calls == ["start", "stop"]


async def test_says_which_provider_instance_and_url_it_runs_with(bench: Bench) -> None:
    assert bench.log.named("fleet_registry_started") == [
        {"provider": "scripted", "instance": "9c41e0b27fd34a1e", "url": "http://10.0.3.17:8080/"}
    ]
    assert bench.log.level_of("fleet_registry_started") == "info"


# -- stop


async def test_a_clean_stop_shows_draining_withdraws_and_stops_the_provider_in_this_order() -> None:
    bench = Bench()
    async with running(bench):
        bench.service.set_state("draining")
    assert bench.provider.states() == ["starting", "running", "draining"]
    assert [call for call in bench.provider.calls if call != "list"][-3:] == ["publish", "withdraw", "stop"]
    await bench.clock.advance(100)
    assert bench.provider.calls[-1] == "stop"


@pytest.mark.parametrize("hanging", ["publish", "list", "withdraw", "stop", "everything"])
async def test_a_stop_is_bounded_whatever_hangs(hanging: str) -> None:
    bench = Bench(HASTY)
    async with asyncio.timeout(30):
        async with running(bench):
            ops = ["publish", "list", "withdraw", "stop"] if hanging == "everything" else [hanging]
            bench.provider.on |= dict.fromkeys(ops, hangs)
            bench.service.set_state("draining")
    assert bench.provider.calls[-1] == "stop"
    if hanging in ("withdraw", "everything"):
        assert bench.log.named("fleet_registry_withdraw_failed")
        assert bench.metric("drakkar_fleet_registry_errors_total", op="withdraw") == 1
    if hanging in ("stop", "everything"):
        assert bench.log.level_of("fleet_registry_stop_failed") == "warning"


async def test_waits_less_for_a_store_that_is_known_to_fail() -> None:
    bench = Bench(RegistryTiming(timeout_seconds=3600))
    async with asyncio.timeout(60):
        async with running(bench):
            bench.provider.on["publish"] = fails(OSError("gone"))
            await bench.clock.advance(10)
            bench.provider.on |= dict.fromkeys(["publish", "withdraw", "stop"], hangs)
            bench.service.set_state("draining")
    assert bench.provider.calls[-1] == "stop"


async def test_a_loop_that_died_of_an_unexpected_error_is_named_at_the_stop_before_the_card_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    order: list[str] = []
    bench.provider.on["withdraw"] = lambda: order.extend(line[1] for line in bench.log.lines)
    async with running(bench):

        async def broken(seconds: float) -> None:
            raise RuntimeError("the clock broke")

        monkeypatch.setattr(bench.clock, "sleep", broken)
        await bench.clock.advance(10)
    [line] = bench.log.named("fleet_registry_loop_failed")
    assert "the clock broke" in line["error"]
    assert bench.log.level_of("fleet_registry_loop_failed") == "error"
    assert "fleet_registry_loop_failed" in order


# -- metrics


async def test_has_every_series_from_the_start() -> None:
    bench = Bench()
    for op in ("publish", "list", "withdraw"):
        assert bench.metric("drakkar_fleet_registry_errors_total", op=op) == 0
        assert bench.metric("drakkar_fleet_registry_duration_seconds_count", op=op) == 0
    for state in ("online", "offline", "unknown"):
        assert bench.metric("drakkar_fleet_peers", state=state) == 0
    assert bench.metric("drakkar_fleet_duplicate_worker_name_total") == 0


async def test_a_stop_does_not_wait_for_heartbeats_that_come_faster_than_the_store_takes_them() -> None:
    bench = Bench(RegistryTiming(timeout_seconds=1))
    await bench.service.start()
    await settle()
    bench.provider.on["publish"] = lambda: bench.clock.advance(15)
    bench.service.set_state("draining")

    await bench.service.stop()

    assert bench.provider.states() == ["starting", "draining"]
