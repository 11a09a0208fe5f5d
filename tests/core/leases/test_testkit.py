"""The test kit: sound backends pass every check, and for every check broken ones are shown to fail."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from drakkar.clock import SystemClock
from drakkar.leases import testkit
from drakkar.leases.backend import Held, Lease, LeaseBackend, LeaseContext, Renewal
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.leases.testkit import harness, processes
from support import broken_leases as broken
from support.clock import FakeClock
from support.session_leases import SessionLeases, SessionStore

TTL_SECONDS = 10.0

Kind = type[broken.Broken] | type[SessionLeases]

BROKEN: dict[str, list[Kind]] = {
    "check_one_holder_at_a_time": [broken.GrantsTwice, broken.TellsAnother, broken.RefusesForWeeks],
    "check_fifty_contenders_one_winner": [broken.GrantsTwice, broken.LooksBeforeItTakes],
    "check_contenders_for_an_expired_lease": [broken.LooksBeforeItTakesOver, broken.NeverExpires],
    "check_acquire_again": [broken.RefusesItsHolder, broken.GrantsAnew],
    "check_acquire_again_has_its_full_ttl": [broken.KeepsTheOldTtl, broken.TellsWhatIsLeft],
    "check_second_lease_has_its_full_ttl": [broken.GrantsOntoAnOldSession],
    "check_many_leases_of_one_process": [broken.LosesAllButTheNewest],
    "check_names_do_not_meet": [
        broken.TakesASlashForItsOwn,
        broken.KnowsNoCapitals,
        broken.CutsLongNames,
        broken.StripsNames,
        broken.RefusesLongNames,
    ],
    "check_release_of_one_name": [broken.ReleasesAFolder],
    "check_listing_has_names_as_they_are": [broken.ListsEncodedNames, broken.ListsItsOwn],
    "check_tokens_rise_over_release": [broken.TokensRepeat, broken.CountsPerRecord],
    "check_tokens_rise_over_expiry": [broken.TokensRepeat, broken.ExpiryForgetsTheToken],
    "check_tokens_rise_over_restart": [broken.CountsPerProcess],
    "check_restart_is_another_holder": [broken.HoldsByWorkerName, broken.GrantsToTheOld],
    "check_renew_keeps": [broken.NeverRenews, broken.RenewsHalf],
    "check_renewal_says_for_how_long": [broken.TellsNoTtl, broken.AnswersWithTheNewest],
    "check_renew_of_nothing": [broken.NeedsALease],
    "check_expiry": [broken.ExpiresTooEarly, broken.NeverExpires],
    "check_renewal_puts_expiry_off": [broken.NeverRenews, broken.NeverExpires],
    "check_renew_of_a_lost_lease": [broken.RenewsALostLease, broken.CallsLostUnknown],
    "check_renew_of_a_released_lease": [broken.BringsBackTheReleased, broken.CallsLostUnknown],
    "check_one_lost_among_many": [broken.RenewsTheSessionAlone, broken.LosesAllForOne],
    "check_renew_compares_the_token": [broken.RenewIgnoresTheToken],
    "check_renew_compares_the_holder": [broken.RenewIgnoresTheHolder],
    "check_renew_many": [broken.RenewsOnePage],
    "check_release_frees_at_once": [broken.ReleaseDoesNothing],
    "check_release_without_token": [broken.ReleaseNeedsAToken],
    "check_release_by_another": [broken.ReleasesAnothers, broken.ReleasesByTokenAlone],
    "check_release_with_another_token": [broken.ReleaseIgnoresTheToken],
    "check_release_twice": [broken.ReleasesOnce, broken.ReleasesAnothers],
    "check_waiter_wakes_on_release": [broken.NeverWakes],
    "check_no_wake_up_is_lost": [broken.WaitsFromNowOn, broken.NeverWakes],
    "check_wake_up_is_told_until_it_is_used": [broken.TellsOnce],
    "check_waits_for_many": [broken.WaitsForTheFirst, broken.TellsOfOthers],
    "check_wait_ends_after_its_time": [broken.WaitsForEver, broken.DoesNotWait],
    "check_processes_wait_by_themselves": [broken.WakesOne],
    "check_list_shows_holders": [
        broken.ListsItsOwn,
        broken.ListsTheReleased,
        broken.ListsTwice,
        broken.ListsWallTimes,
    ],
    "check_cancelled_acquire": [
        broken.KeepsItsLock,
        broken.ForgetsWhatItAsked,
        broken.IgnoresCancelling,
    ],
    "check_cancelled_renew": [broken.KeepsItsLock, broken.LosesOnCancel],
    "check_cancelled_release": [broken.KeepsItsLock, broken.ForgetsTheTokenFirst],
    "check_cancelled_wait": [broken.KeepsItsLock, broken.LosesTheNewsOnCancel],
    "check_cancelled_list": [broken.KeepsItsLock, broken.LeavesTheAnswerBehind],
    "check_stop_gives_nothing_back": [broken.GivesBackAtStop],
    "check_stop_at_any_time": [broken.NeedsAStart, broken.StopsOnce],
    "check_attributes": [broken.TellsNoFloor, broken.IsMaybeFenced],
}
CHECKS = {check.__name__: check for check in testkit.LEASE_CHECKS}


class Store:
    """A store of any kind of backend, whose time is moved by hand."""

    def __init__(self, kind: Callable[..., LeaseBackend], clock: FakeClock | None = None) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.kind = kind
        is_session = isinstance(kind, type) and issubclass(kind, SessionLeases)
        self.shared: Any = SessionStore(self.clock) if is_session else MemoryStore(self.clock)
        self.made: list[LeaseBackend] = []

    def make(self) -> LeaseBackend:
        self.made.append(self.kind(self.shared))
        return self.made[-1]


def test_every_check_is_shown_to_fail() -> None:
    assert list(BROKEN) == list(CHECKS)


@pytest.mark.parametrize("kind", [MemoryLeases, SessionLeases, broken.Broken])
@pytest.mark.parametrize("name", CHECKS)
async def test_a_sound_backend_passes(name: str, kind: Callable[..., LeaseBackend]) -> None:
    store = Store(kind)
    await CHECKS[name](store.make, store.clock.advance, TTL_SECONDS)


async def test_all_checks_may_share_one_store() -> None:
    store = Store(MemoryLeases)
    for check in testkit.LEASE_CHECKS:
        await check(store.make, store.clock.advance, TTL_SECONDS)


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in BROKEN.items() for kind in kinds])
async def test_a_broken_backend_fails(name: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (harness, testkit.waiting):
        monkeypatch.setattr(module, "WAKE_SECONDS", 0.3)
    monkeypatch.setattr(processes, "_END_SECONDS", 0.2)
    store = Store(kind)
    with pytest.raises(AssertionError, match="expected") as caught:
        await CHECKS[name](store.make, store.clock.advance, TTL_SECONDS)
    assert len(str(caught.value).splitlines()) == 1


# Backends whose leases are assigned.


class Assigned(MemoryLeases):
    """Every lease is that of worker-1, for ever, with the token 1."""

    fenced = False

    async def acquire(self, name: str) -> Lease | Held:
        ctx = self._context()
        if ctx.worker != "worker-1":
            return Held("worker-1")
        return Lease(name, ctx.holder, 1, ctx.ttl_seconds)

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        return Renewal(kept=list(leases))


@pytest.mark.parametrize("check", testkit.ASSIGNED_CHECKS, ids=lambda check: check.__name__)
async def test_a_backend_that_assigns_passes_what_concerns_it(check: testkit.LeaseCheck) -> None:
    store = Store(Assigned)
    await check(store.make, store.clock.advance, TTL_SECONDS)


def test_what_concerns_assigned_leases_is_a_part_of_the_kit() -> None:
    assert set(testkit.ASSIGNED_CHECKS) < set(testkit.LEASE_CHECKS)


# What goes for every check.


class Unhurried:
    """Real time, for a backend that counts it by itself."""

    def __init__(self) -> None:
        self.shared = MemoryStore(SystemClock())

    def make(self) -> MemoryLeases:
        return MemoryLeases(self.shared)

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.mark.parametrize(
    "name",
    [
        "check_expiry",
        "check_renew_keeps",
        "check_acquire_again_has_its_full_ttl",
        "check_wait_ends_after_its_time",
    ],
)
async def test_advance_may_really_wait(name: str) -> None:
    store = Unhurried()
    await CHECKS[name](store.make, store.advance, 0.8)


async def test_an_advance_that_waits_too_long_counts_in_full() -> None:
    store = Unhurried()

    def advance(seconds: float) -> None:
        time.sleep(seconds + 0.05)

    await CHECKS["check_expiry"](store.make, advance, 0.5)


async def test_an_advance_that_does_nothing_is_noticed() -> None:
    store = Store(MemoryLeases)
    with pytest.raises(AssertionError, match="expected a grant, still refused"):
        await CHECKS["check_expiry"](store.make, lambda seconds: None, TTL_SECONDS)


class FreesLate(MemoryLeases):
    """Three seconds after the ttl that it tells."""

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        return replace(answer, ttl_seconds=answer.ttl_seconds - 3) if isinstance(answer, Lease) else answer

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        renewal = await super().renew(leases)
        kept = [replace(lease, ttl_seconds=lease.ttl_seconds - 3) for lease in renewal.kept]
        return Renewal(kept, renewal.lost)


@pytest.mark.parametrize("name", [name for name in CHECKS if "expir" in name or "lost" in name])
async def test_a_lease_may_be_free_as_late_as_the_backend_says(name: str) -> None:
    store = Store(FreesLate)
    await CHECKS[name](store.make, store.clock.advance, TTL_SECONDS, late_seconds=3.5)


async def test_a_lease_that_is_free_later_than_the_backend_says_fails() -> None:
    store = Store(FreesLate)
    with pytest.raises(AssertionError, match=r"expected a grant, still refused 2\.\d+ s late"):
        await CHECKS["check_expiry"](store.make, store.clock.advance, TTL_SECONDS, late_seconds=2.0)


class Slow(MemoryLeases):
    """So slow that its leases run out while it answers."""

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        await asyncio.sleep(0.15)
        return answer


async def test_a_backend_too_slow_to_tell_is_told_so() -> None:
    store = Unhurried()
    with pytest.raises(AssertionError, match=r"expected calls that take a fraction of the ttl of 0\.1 s"):
        await CHECKS["check_one_holder_at_a_time"](lambda: Slow(store.shared), store.advance, 0.1)


class Counted(broken.GrantsTwice):
    """Notes what is started and stopped, and fails some checks and not others."""

    calls: ClassVar[list[tuple[str, int]]] = []

    async def start(self, ctx: LeaseContext) -> None:
        self.calls.append(("start", id(self)))
        await super().start(ctx)

    async def stop(self) -> None:
        self.calls.append(("stop", id(self)))


@pytest.mark.parametrize(
    "name", [n for n in CHECKS if n not in ("check_stop_at_any_time", "check_attributes")]
)
async def test_every_backend_is_started_and_stopped_once(name: str) -> None:
    Counted.calls.clear()
    store = Store(Counted)
    with contextlib.suppress(AssertionError):
        await CHECKS[name](store.make, store.clock.advance, TTL_SECONDS)
    assert store.made
    wanted = sorted((call, id(one)) for one in store.made for call in ("start", "stop"))
    assert sorted(Counted.calls) == wanted


class FailsToStart(MemoryLeases):
    stopped = False

    async def start(self, ctx: LeaseContext) -> None:
        raise OSError("no such folder")

    async def stop(self) -> None:
        self.stopped = True


async def test_a_backend_that_fails_to_start_is_stopped_and_the_error_shown() -> None:
    backend = FailsToStart(MemoryStore(FakeClock()))
    with pytest.raises(OSError, match="no such folder"):
        await CHECKS["check_one_holder_at_a_time"](lambda: backend, lambda seconds: None, TTL_SECONDS)
    assert backend.stopped


class HangsInAcquire(MemoryLeases):
    async def acquire(self, name: str) -> Lease | Held:
        await asyncio.get_running_loop().create_future()
        return Held()


class HangsInStop(MemoryLeases):
    async def stop(self) -> None:
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("hanging", [HangsInAcquire, HangsInStop])
async def test_to_hang_is_to_fail(hanging: type[MemoryLeases], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "CHECK_LIMIT_SECONDS", 0.1)
    monkeypatch.setattr(harness, "STOP_LIMIT_SECONDS", 0.1)
    store = MemoryStore(FakeClock())
    with pytest.raises(AssertionError, match=r"within 0\.\d+ s"):
        await CHECKS["check_one_holder_at_a_time"](
            lambda: hanging(store), lambda seconds: None, 0.01, late_seconds=0.01
        )


async def test_a_check_that_is_cancelled_ends() -> None:
    store = Store(HangsInAcquire)
    task = asyncio.create_task(
        CHECKS["check_one_holder_at_a_time"](store.make, store.clock.advance, TTL_SECONDS)
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class TimesOut(MemoryLeases):
    async def acquire(self, name: str) -> Lease | Held:
        raise TimeoutError("no answer within 3 s")


async def test_a_time_limit_of_the_backend_is_not_taken_for_the_kits() -> None:
    store = Store(TimesOut)
    with pytest.raises(AssertionError, match="no answer within 3 s"):
        await CHECKS["check_one_holder_at_a_time"](store.make, store.clock.advance, TTL_SECONDS)


def test_every_check_states_its_promise() -> None:
    for check in CHECKS.values():
        assert check.__doc__


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "expected a Lease or a Held, got NoneType"),
        (Lease("another", "worker-1/1", 1, 10.0), "expected a grant of .*, got one of 'another'"),
        (Lease("", "worker-1/1", 1, 10.0), "got one of ''"),
        (Lease("*", "somebody/1", 1, 10.0), "expected worker-1/.* as the holder, got 'somebody/1'"),
        (Lease("*", "*", 1.0, 10.0), "expected a token that is an int, got 1.0"),  # type: ignore[arg-type]  # on purpose
        (Lease("*", "*", True, 10.0), "expected a token that is an int, got True"),
        (Lease("*", "*", 1, 0.0), "expected a ttl above 0, got 0.0"),
        (Lease("*", "*", 1, float("nan")), "expected a ttl above 0, got nan"),
        (Held(5), "expected a holder or None, got 5"),  # type: ignore[arg-type]  # on purpose
        (Held("*"), "expected no refusal that shows the very holder who asks"),
        (Held(None, -1.0), "expected retry_after_seconds to be None or within"),
        (Held(None, float("nan")), "expected retry_after_seconds to be None or within"),
    ],
)
async def test_an_answer_of_another_shape_fails(answer: Any, message: str) -> None:
    class Answers(broken.Broken):
        async def acquire(self, name: str) -> Any:
            if getattr(answer, "name", None) == "*":
                return replace(answer, name=name, holder=answer.holder.replace("*", self.me.holder))
            if getattr(answer, "holder", None) == "*":
                return replace(answer, holder=self.me.holder)
            return answer

    store = Store(Answers)
    with pytest.raises(AssertionError, match=message):
        await CHECKS["check_one_holder_at_a_time"](store.make, store.clock.advance, TTL_SECONDS)


# What it makes, and needs.


def test_a_context_has_what_a_backend_asks_for() -> None:
    ctx = testkit.make_context("worker-1", instance="00000000000000ff", ttl_seconds=7, options={"x": 1})
    assert (ctx.holder, ctx.ttl_seconds, ctx.options) == ("worker-1/00000000000000ff", 7, {"x": 1})
    ctx.logger.warning("lease_lost", name="gc-leader")


def test_the_kit_needs_no_test_framework() -> None:
    script = "import sys, drakkar.leases.testkit; print('pytest' in sys.modules, 'hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_kit_checks_under_an_optimising_interpreter() -> None:
    script = (
        "import asyncio\n"
        "from drakkar.leases import testkit\n"
        "from drakkar.leases.backend import Held\n"
        "from drakkar.leases.memory import MemoryLeases\n"
        "class Refuses(MemoryLeases):\n"
        "    async def acquire(self, name):\n"
        "        return Held()\n"
        "for check in testkit.LEASE_CHECKS[:2]:\n"
        "    try:\n"
        "        asyncio.run(check(Refuses, lambda seconds: None, 10))\n"
        "    except AssertionError as error:\n"
        "        print('failed')\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["failed", "failed"]
