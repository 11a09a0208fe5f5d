"""The test kit: a sound provider passes every check, and for every check a broken one is shown to fail."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
from drakkar.fleet import testkit
from drakkar.fleet.card import check_card
from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext, RegistryProvider
from drakkar.fleet.testkit import ages, harness, processes
from support import broken_registries as broken
from support.memory_registry import MemoryRegistry, Store

PRUNE_AFTER_SECONDS = 600.0


BROKEN: dict[str, list[type[MemoryRegistry]]] = {
    "check_card_comes_back": [
        broken.ForgetsUnknownFields,
        broken.CountsInFloats,
        broken.TakesEmptyArraysForObjects,
    ],
    "check_any_worker_name": [broken.NamesKeysAfterWorkers],
    "check_publish_replaces": [broken.Merges, broken.OverwritesInPlace],
    "check_one_card_per_worker": [broken.KeepsOneCardPerInstance],
    "check_vanished_card_is_published_whole": [broken.UpdatesFields],
    "check_largest_card_is_stored": [broken.HasLessRoom],
    "check_too_large_card_is_refused": [
        broken.CountsCharacters,
        broken.WritesPythonsJson,
        broken.ChecksAfterWriting,
    ],
    "check_what_is_not_json_is_refused": [
        broken.WritesPythonsJson,
        broken.WritesAnything,
        broken.ChecksAfterWriting,
    ],
    "check_listing_is_the_callers_own": [
        broken.HandsOutItsCache,
        broken.CopiesTheFirstLevel,
        broken.HandsOutItsList,
    ],
    "check_publish_keeps_no_reference": [broken.KeepsTheCard, broken.KeepsTheFirstLevelsCopy],
    "check_withdraw_removes_the_card": [broken.NeverWithdraws, broken.StaysWithdrawn],
    "check_withdraw_leaves_another_instance": [broken.WithdrawsAnyInstance],
    "check_withdraw_leaves_other_workers": [broken.WithdrawsByPrefix],
    "check_withdraw_of_nothing_is_no_error": [broken.MissesWhatItNeverHad],
    "check_withdraw_twice_is_no_error": [broken.MissesWhatItHad],
    "check_ages_are_none_or_non_negative": [broken.SeesTheFuture, broken.SaysNotANumber],
    "check_new_reader_does_not_guess": [broken.CountsFromItsOwnStart],
    "check_age_is_small_after_publish": [broken.NeverKnowsAges, broken.ComparesTwoClocks],
    "check_age_grows": [broken.StandsStill, broken.AgesBetweenPublishesOnly],
    "check_publish_makes_young_again": [broken.CountsFromTheFirstPublish, broken.SkipsAnUnchangedCard],
    "check_old_card_leaves_the_listing": [broken.NeverPrunes, broken.PrunesEveryOtherTime],
    "check_old_card_is_deleted": [broken.HidesOldCards],
    "check_younger_card_stays": [broken.PrunesByTheFirstPublish, broken.PrunesTooSoon],
    "check_pruned_worker_returns": [broken.BuriesThePruned],
    "check_processes_see_each_other": [broken.SeesOnlyItself, broken.LeavesItselfOut],
    "check_listing_before_publish": [broken.RemembersTheFirstFailure],
    "check_many_cards": [broken.ListsOnePage, broken.ListsPagesTwice],
    "check_concurrent_publishes": [broken.WritesOneDocument],
    "check_publish_is_atomic": [broken.DeletesFirst, broken.WritesInTwoParts],
    "check_cancelled_publish": [
        broken.KeepsItsLock,
        broken.WritesLater,
        broken.IgnoresCancelling,
        broken.DeletesFirst,
    ],
    "check_cancelled_list": [broken.LeavesTheAnswerBehind],
    "check_stop_without_start": [broken.NeedsAStart],
}
ReadingCheck = Callable[[RegistryProvider, RegistryContext], Awaitable[None]]
READING_CHECKS: list[ReadingCheck] = [testkit.check_list_shape, testkit.check_age_is_none_or_non_negative]
CHECKS = {check.__name__: check for check in testkit.PUBLISHING_CHECKS}


def test_every_check_is_shown_to_fail() -> None:
    assert list(BROKEN) == list(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
async def test_a_sound_provider_passes(name: str) -> None:
    store = Store()
    await CHECKS[name](lambda: MemoryRegistry(store), store.advance, PRUNE_AFTER_SECONDS)


async def test_all_checks_may_share_one_store() -> None:
    store = Store()
    for check in testkit.PUBLISHING_CHECKS:
        await check(lambda: MemoryRegistry(store), store.advance, PRUNE_AFTER_SECONDS)


@pytest.mark.parametrize(
    ("name", "cls"), [(name, cls) for name, classes in BROKEN.items() for cls in classes]
)
async def test_a_broken_provider_fails(
    name: str, cls: type[MemoryRegistry], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (harness, ages):
        monkeypatch.setattr(module, "TOLERANCE_SECONDS", 0.2)
    monkeypatch.setattr(harness, "CHECK_LIMIT_SECONDS", 3.0)
    monkeypatch.setattr(processes, "_END_SECONDS", 0.1)
    store = Store()
    with pytest.raises(AssertionError, match="expected") as caught:
        await CHECKS[name](lambda: cls(store), store.advance, PRUNE_AFTER_SECONDS)
    assert len(str(caught.value).splitlines()) == 1


# What goes for every check.


async def test_advance_may_be_a_coroutine_function() -> None:
    store = Store()

    async def advance(seconds: float) -> None:
        await asyncio.sleep(0)
        store.advance(seconds)

    await CHECKS["check_age_grows"](lambda: MemoryRegistry(store), advance, PRUNE_AFTER_SECONDS)


async def test_an_advance_that_does_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "TOLERANCE_SECONDS", 0.2)
    store = Store()
    with pytest.raises(AssertionError, match="expected an age of 30 s"):
        await CHECKS["check_age_grows"](lambda: MemoryRegistry(store), lambda seconds: None, 600)


class Counted(broken.NeverWithdraws):
    """Notes what is started and stopped, and fails some checks and not others."""

    calls: ClassVar[list[tuple[str, int]]] = []

    async def start(self, ctx: RegistryContext) -> None:
        self.calls.append(("start", id(self)))
        await super().start(ctx)

    async def stop(self) -> None:
        self.calls.append(("stop", id(self)))


@pytest.mark.parametrize("name", [name for name in CHECKS if name != "check_stop_without_start"])
async def test_every_provider_is_started_and_stopped_once(name: str) -> None:
    Counted.calls.clear()
    store = Store()
    made: list[Counted] = []

    def make_provider() -> Counted:
        made.append(Counted(store))
        return made[-1]

    with contextlib.suppress(AssertionError):
        await CHECKS[name](make_provider, store.advance, PRUNE_AFTER_SECONDS)
    assert made
    assert sorted(Counted.calls) == sorted((call, id(one)) for one in made for call in ("start", "stop"))


class FailsToStart(MemoryRegistry):
    stopped = False

    async def start(self, ctx: RegistryContext) -> None:
        raise OSError("no such folder")

    async def stop(self) -> None:
        self.stopped = True


async def test_a_provider_that_fails_to_start_is_stopped_and_the_error_shown() -> None:
    provider = FailsToStart(Store())
    with pytest.raises(OSError, match="no such folder"):
        await CHECKS["check_card_comes_back"](lambda: provider, lambda seconds: None, 600)
    assert provider.stopped


@pytest.mark.parametrize("check", READING_CHECKS)
async def test_a_check_of_reading_stops_a_provider_that_fails_to_start(check: ReadingCheck) -> None:
    provider = FailsToStart(Store())
    with pytest.raises(OSError, match="no such folder"):
        await check(provider, testkit.make_context("worker-1"))
    assert provider.stopped


class HangsInList(MemoryRegistry):
    async def list(self) -> PeerCardList:
        await asyncio.get_running_loop().create_future()
        return []


class HangsInStop(MemoryRegistry):
    async def stop(self) -> None:
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("hanging", [HangsInList, HangsInStop])
async def test_to_hang_is_to_fail(hanging: type[MemoryRegistry], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "CHECK_LIMIT_SECONDS", 0.1)
    monkeypatch.setattr(harness, "STOP_LIMIT_SECONDS", 0.1)
    with pytest.raises(AssertionError, match=r"within 0\.1 s"):
        await CHECKS["check_card_comes_back"](lambda: hanging(Store()), lambda seconds: None, 600)


async def test_a_check_that_is_cancelled_ends() -> None:
    task = asyncio.create_task(
        CHECKS["check_card_comes_back"](lambda: HangsInList(Store()), lambda seconds: None, 600)
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class TimesOut(MemoryRegistry):
    async def publish(self, card: dict[str, Any]) -> None:
        raise TimeoutError("no answer within 3 s")


async def test_a_time_limit_of_the_provider_is_not_taken_for_the_kits() -> None:
    with pytest.raises(AssertionError, match="no answer within 3 s"):
        await CHECKS["check_card_comes_back"](lambda: TimesOut(Store()), lambda seconds: None, 600)


def test_every_check_states_its_promise() -> None:
    for check in (*CHECKS.values(), *READING_CHECKS):
        assert check.__doc__


# The checks of reading.


class Lists(MemoryRegistry):
    """A provider that lists whatever it is given."""

    def __init__(self, *listings: Any) -> None:
        super().__init__(Store())
        self.listings = list(listings)

    async def list(self) -> Any:
        return self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]


def aged(age_seconds: Any) -> PeerCard:
    return PeerCard(testkit.make_card("worker-1"), age_seconds)


@pytest.mark.parametrize(
    ("listings", "message"),
    [
        ([None], "expected a list, got NoneType"),
        ([(aged(1.0),)], "expected a list, got tuple"),
        ([iter([aged(1.0)])], "expected a list, got list_iterator"),
        ([[testkit.make_card("worker-1")]], "expected PeerCards, the listing has dict"),
        ([[PeerCard(b"{}", 1.0)]], "expected cards to be dicts, got bytes"),  # type: ignore[arg-type] # on purpose
        ([[PeerCard({"x": {1}}, 1.0)]], "expected a card of JSON values"),
        ([[PeerCard({"x": float("nan")}, 1.0)]], "expected a card of JSON values"),
        ([[aged(1.0)]], "expected a second listing to be like the first"),
        ([[aged(1.0)], []], "expected a second listing to be like the first"),
        ([[], [aged(1.0)]], "expected a second listing to be like the first"),
        ([[], None], "expected a list, got NoneType"),
    ],
)
async def test_a_listing_of_another_shape_fails(listings: list[Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        await testkit.check_list_shape(Lists(*listings), testkit.make_context("worker-1"))


@pytest.mark.parametrize("age", [-0.001, float("nan"), float("inf"), float("-inf"), True, "1", [], -5])
async def test_an_age_that_is_none_fails(age: Any) -> None:
    with pytest.raises(AssertionError, match="expected the age of worker-1 to be None or a number"):
        await testkit.check_age_is_none_or_non_negative(Lists([aged(age)]), testkit.make_context("worker-1"))


@pytest.mark.parametrize("age", [None, 0, 0.0, 12.5, 10**9])
async def test_an_age_or_none_passes(age: Any) -> None:
    await testkit.check_age_is_none_or_non_negative(Lists([aged(age)]), testkit.make_context("worker-1"))


@pytest.mark.parametrize("check", READING_CHECKS)
async def test_a_sound_provider_passes_the_checks_of_reading(check: ReadingCheck) -> None:
    store = Store()
    for worker in ("worker-1", "worker-2"):
        await MemoryRegistry(store).publish(testkit.make_card(worker))
    await check(MemoryRegistry(store), testkit.make_context("worker-1"))


# What it makes.


def test_a_context_has_what_a_provider_asks_for() -> None:
    ctx = testkit.make_context("worker-1", instance="00000000000000ff", options={"x": 1})
    assert (ctx.worker, ctx.instance, ctx.options) == ("worker-1", "00000000000000ff", {"x": 1})
    ctx.logger.warning("fleet_card_invalid", file="worker-2.json")


def test_a_context_and_a_card_of_one_worker_have_one_instance() -> None:
    assert testkit.make_context("worker-1").instance == testkit.make_card("worker-1")["instance"]


def test_a_card_holds_and_takes_other_fields() -> None:
    card = testkit.make_card("worker-1", state="draining", x_unknown=[1])
    check_card(card)
    assert (card["worker"], card["state"], card["x_unknown"]) == ("worker-1", "draining", [1])


def test_the_kit_needs_no_test_framework() -> None:
    script = "import sys, drakkar.fleet.testkit; print('pytest' in sys.modules, 'hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_kit_checks_under_an_optimising_interpreter() -> None:
    script = (
        "import asyncio\n"
        "from drakkar.fleet import testkit\n"
        "from drakkar.fleet.none import NoRegistry\n"
        "for check in testkit.PUBLISHING_CHECKS[:2]:\n"
        "    try:\n"
        "        asyncio.run(check(NoRegistry, lambda seconds: None, 600))\n"
        "    except AssertionError as error:\n"
        "        print('failed')\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["failed", "failed"]
