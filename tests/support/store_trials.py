"""What broke other people's fleets, tried over a real server: the trials that every store must pass.

Framework-free, like the test kits. A store hands them a `TrialStore`, made new for each, and that is all:

    @pytest.mark.parametrize("trial", store_trials.TRIALS, ids=lambda trial: trial.__name__)
    async def test_it_passes_the_trial(trial, store, long):
        await trial(store, 50 if long else 1)

They may be run at once, each on a loop of its own, which saves a lot of waiting: `support.side_by_side`.

`rounds` is how often to repeat what is to be repeated. Time is real: the ttl is the store's shortest that
makes sense on a busy machine. The kits hold single calls to the contract; here the real keeper runs over the
real backend, and the network, the server and an operator do their worst. Each trial's docstring names what
it tries.

Not tried here: what needs processes (`tests/e2e`), or no store at all (`tests/core/leases/test_trials`).
"""

import asyncio
import itertools
import json
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from drakkar.clock import SystemClock
from drakkar.fleet.provider import RegistryProvider
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease, LeaseBackend
from drakkar.leases.deadline import LeaseTiming
from drakkar.leases.handle import LeaseHandle
from drakkar.leases.keeper import LeaseKeeper
from drakkar.leases.testkit import make_context
from drakkar.telemetry.metrics import LeaseMetrics
from prometheus_client import CollectorRegistry
from support.forks import in_a_fork, use_leases
from support.log import RecordingLogger
from support.servers import ServerProcess
from support.tcp_proxy import TcpProxy, Verb, proxy_to
from support.waiting import until

NAME: Final = "gc-leader"
BUSY_SECONDS: Final = 5.0
"""What a busy machine may add to any time that is promised."""


class TrialStore(Protocol):
    """One server with nothing in it, and what an operator can do to it. `port` is where to reach it: its own,
    or that of a proxy."""

    port: int
    server: ServerProcess
    ttl_seconds: float
    """Of the leases of a trial."""

    late_seconds: float
    """How much later than its ttl a lease whose holder vanished is free at most: the documented bound."""

    def make_backend(self, port: int) -> LeaseBackend: ...

    def make_provider(self, port: int) -> RegistryProvider: ...

    async def overwrite(self, name: str) -> None:
        """Write the record of a lease as it would be if `worker-9` had it, as an ordinary write does."""

    async def delete(self, name: str) -> None:
        """Delete the record of a lease."""

    async def spoil(self, name: str) -> None:
        """Write garbage over the record of a lease."""

    async def plant(self, cards: Mapping[str, bytes]) -> None:
        """Write bytes where the cards of these workers are kept."""

    async def forget(self) -> None:
        """Lose all data, while the server runs."""

    def restart(self, keep_data: bool) -> None:
        """Kill the server and start it again; without its data if it need not keep them."""


Trial = Callable[[TrialStore, int], Awaitable[None]]


class Candidate:
    """A process that wants the lease for ever, and writes to the witness while it leads."""

    def __init__(self, store: TrialStore, worker: str, witness: "Witness", port: int | None = None) -> None:
        ttl = store.ttl_seconds
        self.timing = LeaseTiming(ttl, ttl / 3, ttl / 3, ttl / 4)
        self.clean_up_seconds = 0.0
        self.losses = 0
        self.handle: LeaseHandle | None = None
        self.log = RecordingLogger()
        self.worker = worker
        self.ctx = make_context(
            worker,
            secrets.token_hex(8),
            logger=self.log,
            ttl_seconds=ttl,
            timeout_seconds=self.timing.call_seconds,
        )
        self.keeper = LeaseKeeper(
            store.make_backend(store.port if port is None else port),
            self.ctx,
            self.timing,
            clock=_CLOCK,
            logger=self.log,
            metrics=LeaseMetrics(CollectorRegistry()),
        )
        self._witness = witness
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.keeper.start()
        self._task = asyncio.create_task(self._live(), name=f"candidate {self.worker}")

    async def leads(self, limit_seconds: float) -> LeaseHandle:
        await until(lambda: self.leading is not None, limit_seconds + BUSY_SECONDS)
        assert self.leading is not None
        return self.leading

    @property
    def leading(self) -> LeaseHandle | None:
        """What it leads under at this moment; the run of a lease that is lost may not have ended yet."""
        return None if self.handle is None or self.handle.lost else self.handle

    async def stop(self) -> None:
        """As SIGTERM does: end the work, give the lease back, leave."""
        self.keeper.drain()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self.keeper.stop()

    async def _live(self) -> None:
        while True:
            self.handle = handle = await self.keeper.acquire(NAME)
            work = asyncio.create_task(self._work(handle))
            try:
                await handle.wait_lost()
                self.losses += 1
            finally:
                work.cancel()
                await asyncio.wait({work})
                self.handle = None
                await self.keeper.release(handle)

    async def _work(self, handle: LeaseHandle) -> None:
        try:
            while not handle.lost:
                self._witness.write(self.worker, handle.token)
                await asyncio.sleep(0.02)
        finally:
            until_ = _CLOCK.elapsed() + self.clean_up_seconds
            while _CLOCK.elapsed() < until_:
                self._witness.write(self.worker, handle.token)
                await asyncio.sleep(0.02)


@dataclass
class Witness:
    """An append-only log in which each runner writes while it thinks that it leads."""

    lines: list[tuple[float, str, int]] = field(default_factory=list)

    def write(self, worker: str, token: int) -> None:
        self.lines.append((_CLOCK.elapsed(), worker, token))

    def spans(self) -> list[tuple[float, float, str, int]]:
        """From when to when, who, on which token, in the order of their beginnings."""
        spans: dict[tuple[str, int], tuple[float, float]] = {}
        for at, who, token in self.lines:
            first, _ = spans.get((who, token), (at, at))
            spans[who, token] = first, at
        return sorted((first, last, who, token) for (who, token), (first, last) in spans.items())

    def expect_tokens_rise(self) -> None:
        tokens = [token for _, _, _, token in self.spans()]
        assert tokens == sorted(set(tokens)), self.spans()

    def expect_no_overlap(self) -> None:
        self.expect_tokens_rise()
        for (_, last, *_), (first, *_) in itertools.pairwise(self.spans()):
            assert last < first, self.spans()


_CLOCK: Final = SystemClock()


@asynccontextmanager
async def candidates(*each: Candidate) -> AsyncIterator[None]:
    """They are started one after the other, and stopped in the end whatever happens."""
    try:
        for candidate in each:
            candidate.start()
        yield
    finally:
        for candidate in each:
            await candidate.stop()


@asynccontextmanager
async def a_leader_and_a_standby(
    store: TrialStore,
) -> AsyncIterator[tuple[Candidate, Candidate, Witness, TcpProxy]]:
    """The leader reaches the server through a proxy."""
    witness = Witness()
    with proxy_to(store.port) as proxy:
        leader = Candidate(store, "worker-1", witness, proxy.port)
        standby = Candidate(store, "worker-2", witness)
        async with candidates(leader):
            await leader.leads(BUSY_SECONDS)
            async with candidates(standby):
                await asyncio.sleep(store.ttl_seconds / 2)
                assert standby.leading is None
                yield leader, standby, witness, proxy
                proxy.set(Verb.PASS)


@asynccontextmanager
async def backend_of(store: TrialStore, worker: str, port: int | None = None) -> AsyncIterator[LeaseBackend]:
    """A started backend without a keeper."""
    backend = store.make_backend(store.port if port is None else port)
    ttl = store.ttl_seconds
    try:
        await backend.start(make_context(worker, secrets.token_hex(8), ttl_seconds=ttl, timeout_seconds=10))
        yield backend
    finally:
        await backend.stop()


@asynccontextmanager
async def provider_of(
    store: TrialStore, worker: str, port: int | None = None, timeout_seconds: float = 10.0
) -> AsyncIterator[tuple[RegistryProvider, RecordingLogger]]:
    """A started provider without a service."""
    provider, log = store.make_provider(store.port if port is None else port), RecordingLogger()
    try:
        await provider.start(make_card_context(worker, logger=log, timeout_seconds=timeout_seconds))
        yield provider, log
    finally:
        await provider.stop()


async def granted(backend: LeaseBackend, name: str, limit_seconds: float) -> Lease:
    """The lease, as soon as it can be had."""
    async with asyncio.timeout(limit_seconds + BUSY_SECONDS):
        while True:
            try:
                answer = await backend.acquire(name)
            except (OSError, RuntimeError):  # whatever a server that is just starting says
                answer = Held()
            if isinstance(answer, Lease):
                return answer
            await asyncio.sleep(0.05)


async def fails_in_time(call: Awaitable[object], limit_seconds: float) -> None:
    """It raises, and in time; a hang is a failure, and so is an answer."""
    began, failure = time.monotonic(), None
    try:
        async with asyncio.timeout(10 * limit_seconds + BUSY_SECONDS):
            answer = await call
    except Exception as error:  # noqa: BLE001  a store may raise anything
        answer, failure = None, error
    took = time.monotonic() - began
    assert failure is not None, f"expected a failure, got {answer!r}"
    assert took <= limit_seconds + BUSY_SECONDS, f"{took:g} s for {failure!r}"


# --- leases -----------------------------------------------------------------------------------------------


def _tampering(what: str) -> Trial:
    async def trial(store: TrialStore, rounds: int) -> None:
        del rounds
        witness = Witness()
        candidate = Candidate(store, "worker-1", witness)
        async with candidates(candidate):
            old = await candidate.leads(BUSY_SECONDS)
            await getattr(store, what)(NAME)
            began = time.monotonic()
            await until(lambda: candidate.losses == 1, store.ttl_seconds + BUSY_SECONDS)
            assert time.monotonic() - began <= candidate.timing.period_seconds + 1 + BUSY_SECONDS / 2
            assert old.lost
            new = await candidate.leads(2 * store.ttl_seconds + store.late_seconds)
            assert new.token > old.token
            await asyncio.sleep(store.ttl_seconds / 2)
            assert candidate.losses == 1, candidate.log.lines
            assert candidate.log.named("lease_loop_failed") == []
        witness.expect_no_overlap()

    trial.__name__ = f"a_leader_whose_record_is_hit_by_{what}_is_told"
    trial.__doc__ = f"""Trials: a leader that lost its lease is never told; renewing a lease that is gone
    counts as success. The record is hit by: {what}. One loss, within one renewal, and a candidate again on a
    higher token."""
    return trial


async def garbage_is_no_free_lease_for_two_takers(store: TrialStore, rounds: int) -> None:
    """Trial: a leader that lost its lease is never told; the record is garbage from the start, and three want
    it. Nobody crashes, it is free after a ttl, and one has it."""
    del rounds
    async with backend_of(store, "worker-8") as other:  # so that there is something to spoil
        await granted(other, NAME, 0)
        await store.spoil(NAME)
    witness = Witness()
    takers = [Candidate(store, f"worker-{number}", witness) for number in (1, 2, 3)]
    began = time.monotonic()
    async with candidates(*takers):
        longest = 2 * store.ttl_seconds + store.late_seconds + BUSY_SECONDS
        await until(lambda: any(taker.leading is not None for taker in takers), longest)
        assert time.monotonic() - began >= 0.8 * store.ttl_seconds
        await asyncio.sleep(store.ttl_seconds)
        assert sum(taker.leading is not None for taker in takers) == 1
    witness.expect_no_overlap()


async def a_black_hole_costs_the_lease_before_anybody_else_has_it(store: TrialStore, rounds: int) -> None:
    """Trial: the renewal call outlives the lease. The leader stops by its own clock, the standby starts after
    that and within the documented bound; overlap 0."""
    for _ in range(rounds):
        async with a_leader_and_a_standby(store) as (leader, standby, witness, proxy):
            proxy.set(Verb.BLACK_HOLE)
            await standby.leads(store.ttl_seconds + store.late_seconds)
            assert leader.losses == 1
            proxy.set(Verb.PASS)
            await asyncio.sleep(store.ttl_seconds / 2)
            assert leader.leading is None
        witness.expect_no_overlap()


async def a_reply_that_is_late_gains_no_time(store: TrialStore, rounds: int) -> None:
    """Trial: the renewal call outlives the lease; requests are delivered at once, replies only after 0.8 x
    ttl. The leader stops at the deadline that counts from the last renewal it knows of."""
    for _ in range(rounds):
        async with a_leader_and_a_standby(store) as (leader, standby, witness, proxy):
            proxy.set(Verb.DELAY_REPLIES, 0.8 * store.ttl_seconds)
            handle = leader.handle
            assert handle is not None
            await until(lambda: leader.losses == 1, 2 * store.ttl_seconds + BUSY_SECONDS)
            last = max(at for at, who, _ in witness.lines if who == "worker-1")
            assert last < handle.deadline
            proxy.set(Verb.REFUSE)
            await standby.leads(2 * store.ttl_seconds + store.late_seconds)
        witness.expect_no_overlap()


async def a_blocked_event_loop_never_leads_twice_on_one_token(store: TrialStore, rounds: int) -> None:
    """Trial: the job starves its own renewal, by a blocking call of 2.5 x ttl, and a bound's worth more so
    that the store has certainly given the lease up. The loss is noticed first thing afterwards."""
    del rounds
    witness = Witness()
    candidate = Candidate(store, "worker-1", witness)
    async with candidates(candidate):
        old = await candidate.leads(BUSY_SECONDS)
        time.sleep(2.5 * store.ttl_seconds)  # noqa: ASYNC251  this is the trial
        assert old.lost
        await until(lambda: candidate.losses == 1, BUSY_SECONDS)
        new = await candidate.leads(store.ttl_seconds + store.late_seconds)
        assert new.token > old.token
    witness.expect_no_overlap()


async def tokens_rise_whatever_happens(store: TrialStore, rounds: int) -> None:
    """Trial: the fencing token forgets. Over release and another one's grant, expiry, an operator deleting or
    overwriting the record, the loss of all data, restarts with and without data."""
    del rounds
    tokens = []
    limit = 2 * store.ttl_seconds + store.late_seconds
    async with backend_of(store, "worker-1") as first, backend_of(store, "worker-2") as second:
        for backend in (first, second, first):
            lease = await granted(backend, NAME, limit)
            tokens.append(lease.token)
            await backend.release(NAME, lease.token)
        tokens.append((await granted(first, NAME, limit)).token)
        tokens.append((await granted(second, NAME, limit)).token)  # by expiry
        for hit in (store.delete, store.overwrite, store.spoil):
            await hit(NAME)
            tokens.append((await granted(first, NAME, limit)).token)
        await store.forget()
        tokens.append((await granted(first, NAME, limit)).token)
        for keep_data in (True, False):
            store.restart(keep_data)
            tokens.append((await granted(second, NAME, limit)).token)
    assert tokens == sorted(set(tokens)), tokens


async def a_forked_copy_is_refused(store: TrialStore, rounds: int) -> None:
    """Trial: two candidates with the same identity both lead; one process forked into two after its start."""
    del rounds
    async with backend_of(store, "worker-1") as backend:
        lease = await granted(backend, NAME, 0)
        in_a_fork(lambda: use_leases(backend, lease))
        renewal = await backend.renew([lease])
        assert [each.token for each in renewal.kept] == [lease.token]


async def a_polite_stop_hands_over_at_once(store: TrialStore, rounds: int) -> None:
    """Trial: a polite stop looks like a crash to the others. Well before the ttl, by a wake-up."""
    for _ in range(rounds):
        async with a_leader_and_a_standby(store) as (leader, standby, witness, _proxy):
            await asyncio.sleep(0.1)
            began = time.monotonic()
            await leader.stop()
            await standby.leads(store.ttl_seconds / 2 - BUSY_SECONDS)
            assert time.monotonic() - began < 0.5 * store.ttl_seconds
        witness.expect_no_overlap()


async def a_stop_with_an_acquire_under_way_leaves_no_lease(store: TrialStore, rounds: int) -> None:
    """Trials: a polite stop looks like a crash to the others; cancelling the release strands the lock. The
    reply to an acquire is delayed, and the process stops: what it was granted costs others a ttl at most."""
    for _ in range(rounds):
        with proxy_to(store.port) as proxy:
            leaving = Candidate(store, "worker-1", Witness(), proxy.port)
            leaving.start()
            await asyncio.sleep(0.2)
            proxy.set(Verb.DELAY_REPLIES, 0.15 * store.ttl_seconds)
            await asyncio.sleep(random.random() * 0.2)
            await leaving.stop()
        async with backend_of(store, "worker-2") as other:
            lease = await granted(other, NAME, store.ttl_seconds + store.late_seconds)
            await other.release(NAME, lease.token)


async def the_lease_stays_until_the_work_has_stopped(store: TrialStore, rounds: int) -> None:
    """Trial: the lease is released before the work has stopped. A clean-up of more than a ttl; overlap 0."""
    for _ in range(rounds):
        async with a_leader_and_a_standby(store) as (leader, standby, witness, _proxy):
            leader.clean_up_seconds = 1.2 * store.ttl_seconds
            await leader.stop()
            await standby.leads(store.ttl_seconds)
        witness.expect_no_overlap()


async def cancelled_calls_strand_nothing(store: TrialStore, rounds: int) -> None:
    """Trial: cancelling the release strands the lock. Acquires and releases cancelled at any moment, the
    replies late or cut off: in the end no lease is left that would not run out, and the backend is usable."""
    names = [f"{NAME}-{number}" for number in range(10 * rounds)]
    with proxy_to(store.port) as proxy:
        async with backend_of(store, "worker-1", proxy.port) as backend:
            for number, name in enumerate(names):
                proxy.set(Verb.DELAY_REPLIES if number % 3 else Verb.LOSE_REPLIES, 0.02)
                for call in (backend.acquire, backend.release):
                    task: asyncio.Task[Any] = asyncio.ensure_future(call(name))
                    await asyncio.wait({task}, timeout=random.random() * 0.03)
                    task.cancel()
                    await asyncio.wait({task})
                    if not task.cancelled():
                        task.exception()
            proxy.set(Verb.PASS)
            lease = await granted(backend, NAME, store.ttl_seconds)
            await backend.release(NAME, lease.token)
    async with backend_of(store, "worker-2") as other:
        limit = store.ttl_seconds + store.late_seconds + BUSY_SECONDS
        began = time.monotonic()
        while left := [row for row in await other.list() if row.remaining_seconds != 0]:
            assert time.monotonic() - began < limit, left
            await asyncio.sleep(0.1)
        assert isinstance(await other.acquire(names[0]), Lease)


async def cancelled_calls_mix_nothing_up(store: TrialStore, rounds: int) -> None:
    """An answer never goes to another call. Two thousand calls (fewer in a gate) through a proxy that delays
    replies, two in five cancelled; each that ends tells of the lease that it was asked about."""
    owners = 4
    count = min(2000, 460 + 40 * rounds)
    with proxy_to(store.port) as proxy:
        async with backend_of(store, "asker", proxy.port) as asker, _owners(store, owners) as leases:
            proxy.set(Verb.DELAY_REPLIES, 0.002)
            wrong: list[str] = []
            answered = 0

            async def ask(number: int) -> None:
                nonlocal answered
                name = f"{NAME}-{number % owners}"
                call: Awaitable[Any] = asker.list() if number % 7 == 0 else asker.acquire(name)
                task = asyncio.ensure_future(call)
                if random.random() < 0.4:
                    await asyncio.wait({task}, timeout=random.random() * 0.006)
                    task.cancel()
                await asyncio.wait({task})
                if task.cancelled() or task.exception() is not None:
                    return
                answer = task.result()
                answered += 1
                if isinstance(answer, Held):
                    if answer.holder != leases[number % owners].holder:
                        wrong.append(f"{name}: {answer}")
                elif number % 7 or {row.name for row in answer} != {lease.name for lease in leases}:
                    wrong.append(f"{name}: {answer}")

            for first in range(0, count, 8):
                await asyncio.gather(*(ask(number) for number in range(first, first + 8)))
            assert wrong == []
            assert answered > count / 4


@asynccontextmanager
async def _owners(store: TrialStore, count: int) -> AsyncIterator[list[Lease]]:
    """Leases `gc-leader-<n>`, each of a process of its own, renewed until the end."""
    async with asyncio.TaskGroup() as group:
        leases: list[Lease] = []
        end = asyncio.Event()

        async def own(number: int) -> None:
            async with backend_of(store, f"owner-{number}") as backend:
                lease = await granted(backend, f"{NAME}-{number}", 0)
                leases.append(lease)
                while not end.is_set():
                    renewal = await backend.renew([lease])
                    assert len(renewal.kept) == 1
                    with suppress(TimeoutError):
                        async with asyncio.timeout(store.ttl_seconds / 4):
                            await end.wait()

        for number in range(count):
            group.create_task(own(number))
        try:
            await until(lambda: len(leases) == count)
            leases.sort(key=lambda lease: lease.name)
            yield leases
        finally:
            end.set()


async def an_outage_that_ends_in_time_costs_nobody_the_lease(store: TrialStore, rounds: int) -> None:
    """Trial: alarms that cry too much. The server is frozen for a third of the ttl; nothing is lost."""
    for _ in range(rounds):
        async with a_leader_and_a_standby(store) as (leader, standby, _witness, _proxy):
            with worst_lag() as lag:
                store.server.freeze()
                try:
                    await asyncio.sleep(0.33 * store.ttl_seconds)
                finally:
                    store.server.thaw()
                await asyncio.sleep(store.ttl_seconds)
            if lag() < 0.05 * store.ttl_seconds:  # else the machine had an outage of its own
                assert leader.losses == 0
                assert standby.leading is None


@contextmanager
def worst_lag() -> Iterator[Callable[[], float]]:
    """The longest that anything had to wait for its turn so far."""
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            worst = max(worst, time.monotonic() - began - 0.01)

    ticking = asyncio.ensure_future(tick())
    try:
        yield lambda: worst
    finally:
        ticking.cancel()


async def a_restart_of_the_server_needs_no_restart_of_workers(store: TrialStore, rounds: int) -> None:
    """Trials: the fencing token forgets; a leader that lost its lease is never told. The server is killed and
    comes back, with its data and without; somebody leads again, one at a time, on tokens that rise."""
    del rounds
    for keep_data in (True, False):
        async with a_leader_and_a_standby(store) as (leader, standby, witness, _proxy):
            store.restart(keep_data)
            await asyncio.sleep(store.ttl_seconds)
            limit = 2 * store.ttl_seconds + store.late_seconds + BUSY_SECONDS
            both = (leader, standby)
            await until(lambda: sum(each.leading is not None for each in both) == 1, limit)  # noqa: B023
        witness.expect_tokens_rise()
        if keep_data:
            witness.expect_no_overlap()


async def a_server_that_does_not_answer_costs_a_time_limit(store: TrialStore, rounds: int) -> None:
    """Trial: no timeout unless you ask for one. A server that is silent, one that sends half a reply, one
    that accepts nobody, one that is not there: at the start, in mid-run, and at the end."""
    del rounds
    timeout_seconds = 0.3
    for server in (_silent, _half_answering, _accepting_nobody, _absent):
        with server() as port:
            backend, provider = store.make_backend(port), store.make_provider(port)
            ctx = make_context("worker-1", timeout_seconds=timeout_seconds, ttl_seconds=store.ttl_seconds)
            await fails_in_time(backend.start(ctx), timeout_seconds)
            began = time.monotonic()
            await provider.start(make_card_context("worker-1", timeout_seconds=timeout_seconds))
            assert time.monotonic() - began <= timeout_seconds + BUSY_SECONDS, server
            await fails_in_time(provider.publish(make_card("worker-1")), timeout_seconds)
            await fails_in_time(provider.list(), timeout_seconds)
            began = time.monotonic()
            await provider.stop()
            await backend.stop()
            assert time.monotonic() - began <= 2 + BUSY_SECONDS, server


async def a_server_that_hangs_costs_a_time_limit_and_nothing_else(store: TrialStore, rounds: int) -> None:
    """Trial: no timeout unless you ask for one, in mid-run: black hole, frozen server. Each call ends in
    time; afterwards the same backend and provider work, and a wait has ended at its time."""
    del rounds
    limit = 0.5
    with proxy_to(store.port) as proxy:
        backend = store.make_backend(proxy.port)
        try:
            ctx = make_context("worker-1", ttl_seconds=store.ttl_seconds, timeout_seconds=limit)
            await _started(backend, ctx)
            async with provider_of(store, "worker-1", proxy.port, limit) as (provider, _):
                lease = await granted(backend, NAME, 0)
                await provider.publish(make_card("worker-1"))
                for hang in (proxy.set, _freezing(store.server)):
                    hang(Verb.BLACK_HOLE)
                    await fails_in_time(backend.acquire(f"{NAME}-2"), limit)
                    await fails_in_time(backend.renew([lease]), limit)
                    await fails_in_time(backend.list(), limit)
                    await fails_in_time(provider.list(), limit)
                    await fails_in_time(provider.publish(make_card("worker-1")), limit)
                    began = time.monotonic()
                    with suppress(Exception):
                        await backend.wait([NAME], 0.5)
                    assert time.monotonic() - began < 1 + 2 * limit + BUSY_SECONDS
                    hang(Verb.PASS)
                    await granted(backend, f"{NAME}-3", store.ttl_seconds)
                    await provider.publish(make_card("worker-1"))
                    assert [peer.card["worker"] for peer in await provider.list()] == ["worker-1"]
        finally:
            store.server.thaw()
            proxy.set(Verb.PASS)
            await backend.stop()


def _freezing(server: ServerProcess) -> Callable[[Verb], None]:
    return lambda verb: server.freeze() if verb is Verb.BLACK_HOLE else server.thaw()


async def _started(backend: LeaseBackend, ctx: Any) -> None:
    async with asyncio.timeout(BUSY_SECONDS):
        while True:
            try:
                await backend.start(ctx)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return


# --- cards ------------------------------------------------------------------------------------------------

BAD_CARDS: Final[dict[str, bytes]] = {
    "bad-empty": b"",
    "bad-cut": b'{"worker":"bad-cut","cluster":"',
    "bad-null": b"null",
    "bad-list": b"[]",
    "bad-number": b"3",
    "bad-digits": b"1" * 5000,
    "bad-deep": b"[" * 100_000,
    "bad-utf8": b'{"worker":"bad-utf8\xff"}',
    "bad-mark": b'\xef\xbb\xbf{"worker":"bad-mark"}',
    "bad-nan": b'{"worker":"bad-nan","x":NaN}',
    "bad-huge": b'{"worker":"bad-huge","x":1e999}',
    "bad-surrogate": b'{"worker":"bad-surrogate","x":"\\ud800"}',
    "bad-copy": json.dumps(make_card("worker-1")).encode(),
    "bad-large": b'{"worker":"bad-large","x":"' + b"x" * 400_000 + b'"}',
    "bad\nline" + "x" * 255: b"?",
}
"""Worker names and what stands where their cards would be."""


async def one_bad_card_does_not_take_down_the_list(store: TrialStore, rounds: int) -> None:
    """Trial: one bad card takes down the list. The two good ones come back; the bad ones are named once
    each."""
    del rounds
    async with provider_of(store, "worker-1") as (one, log), provider_of(store, "worker-2") as (two, _):
        await one.publish(make_card("worker-1"))
        await two.publish(make_card("worker-2"))
        await store.plant(BAD_CARDS)
        for _round in range(3):
            began = time.monotonic()
            listed = [peer.card["worker"] for peer in await one.list()]
            assert sorted(listed) == ["worker-1", "worker-2"]
            assert time.monotonic() - began < BUSY_SECONDS
        named = log.named("fleet_card_invalid")
        assert len(named) == len(BAD_CARDS), named
        assert all(str(line["file"]).isprintable() and len(str(line["file"])) <= 512 for line in named)


async def no_reader_sees_a_mix_of_old_and_new(store: TrialStore, rounds: int) -> None:
    """Trial: one bad card takes down the list; the writer's side. A long card is rewritten as a short one
    again and again while readers list: each sees one or the other, whole."""
    long_card = make_card("worker-1", features={"x": "x" * 3000})
    short_card = make_card("worker-1", features={"y": 1})
    async with provider_of(store, "worker-1") as (writer, _), provider_of(store, "worker-2") as (reader, log):
        await writer.publish(long_card)
        done = asyncio.Event()

        async def read() -> None:
            while not done.is_set():
                [peer] = await reader.list()
                assert peer.card in (long_card, short_card)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(read())
            for number in range(min(10_000, 200 * rounds)):
                await writer.publish(long_card if number % 2 else short_card)
            done.set()
        assert log.named("fleet_card_invalid") == []


async def a_card_that_vanished_is_back_whole(store: TrialStore, rounds: int) -> None:
    """Trial: a card comes back as an immortal stump. All data are lost, or the server restarted without any,
    while the card is being changed: the next publish brings the whole of it back, once, under its name."""
    del rounds
    async with provider_of(store, "worker-1") as (one, _), provider_of(store, "worker-2") as (two, _):
        for number in range(4):
            card = make_card("worker-1", features={"x": {"number": number}})
            await _working(one.publish, card)
            assert [peer.card for peer in await _working(two.list)] == [card]
            if number % 2:
                await store.forget()
            else:
                store.restart(keep_data=False)
            assert await _working(two.list) == []


async def _working(call: Callable[..., Awaitable[Any]], *args: object) -> Any:
    """The answer, once the server answers again."""
    async with asyncio.timeout(BUSY_SECONDS * 4):
        while True:
            try:
                return await call(*args)
            except OSError:
                await asyncio.sleep(0.05)


async def an_unreachable_store_is_no_empty_list(store: TrialStore, rounds: int) -> None:
    """Trial: "store unreachable" is reported as "no peers". Black-holed, refused, cut, frozen: an error each
    time, never an empty list, and the list again when it is back."""
    del rounds
    with proxy_to(store.port) as proxy:
        async with provider_of(store, "worker-1", proxy.port, 0.5) as (provider, _):
            await provider.publish(make_card("worker-1"))
            for verb in (Verb.BLACK_HOLE, Verb.REFUSE, Verb.LOSE_REPLIES, None):
                if verb is None:
                    store.server.freeze()
                else:
                    proxy.set(verb)
                try:
                    await fails_in_time(provider.list(), 0.5)
                finally:
                    store.server.thaw()
                    proxy.set(Verb.PASS)
                assert [peer.card["worker"] for peer in await _working(provider.list)] == ["worker-1"]


LEASE_TRIALS: tuple[Trial, ...] = (
    *(_tampering(what) for what in ("overwrite", "delete", "spoil")),
    garbage_is_no_free_lease_for_two_takers,
    a_black_hole_costs_the_lease_before_anybody_else_has_it,
    a_reply_that_is_late_gains_no_time,
    a_blocked_event_loop_never_leads_twice_on_one_token,
    tokens_rise_whatever_happens,
    a_forked_copy_is_refused,
    a_polite_stop_hands_over_at_once,
    a_stop_with_an_acquire_under_way_leaves_no_lease,
    the_lease_stays_until_the_work_has_stopped,
    cancelled_calls_strand_nothing,
    cancelled_calls_mix_nothing_up,
    an_outage_that_ends_in_time_costs_nobody_the_lease,
    a_restart_of_the_server_needs_no_restart_of_workers,
)
CARD_TRIALS: tuple[Trial, ...] = (
    one_bad_card_does_not_take_down_the_list,
    no_reader_sees_a_mix_of_old_and_new,
    a_card_that_vanished_is_back_whole,
    an_unreachable_store_is_no_empty_list,
)
CALL_TRIALS: tuple[Trial, ...] = (
    a_server_that_does_not_answer_costs_a_time_limit,
    a_server_that_hangs_costs_a_time_limit_and_nothing_else,
)
TRIALS: tuple[Trial, ...] = (*LEASE_TRIALS, *CARD_TRIALS, *CALL_TRIALS)


# --- servers that are none --------------------------------------------------------------------------------


@contextmanager
def _silent() -> Iterator[int]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@contextmanager
def _half_answering() -> Iterator[int]:
    """Sends the beginning of an answer, in the first words of several protocols, and no more."""
    server = TcpProxy(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await reader.read(65536)
            is_http = asked.startswith((b"GET", b"PUT", b"POST", b"DELETE"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{" if is_http else b"$900\r\nhalf")
            await reader.read()
        except OSError:
            pass
        finally:
            writer.close()

    server._accept = answer  # type: ignore[method-assign]  # its loop and thread are what is wanted of it
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


@contextmanager
def _accepting_nobody() -> Iterator[int]:
    """Its backlog is full: who connects waits."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = []
        try:
            for _ in range(4):
                each = socket.socket()
                each.setblocking(False)
                each.connect_ex(listener.getsockname())
                waiting.append(each)
            yield listener.getsockname()[1]
        finally:
            for each in waiting:
                each.close()


@contextmanager
def _absent() -> Iterator[int]:
    """Nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    yield port
