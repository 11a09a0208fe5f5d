"""Contenders in every order of their system calls: never two holders, and every token once and rising.

Each contender is what one process does on its thread. They take turns at system calls, by chance, and some
are killed at one; time passes by chance too, so that a contender left out for long is one that was frozen.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from drakkar.leases.backend import Held, Lease
from drakkar.leases.deadline import deadline
from drakkar_filesystem import _claims, _folder, _generations, _grants, _holders
from drakkar_filesystem._candidate import Candidate
from drakkar_filesystem._folder import LEASES, Folder
from drakkar_filesystem._holders import Holders
from drakkar_filesystem._lease_record import place_of
from drakkar_filesystem._watches import Watches
from support.interleaving import Killed, Schedule, by_rank, evenly, take_over

NAME = "gc"
TTL = 10.0
MODULES = (_claims, _folder, _generations, _grants, _holders)


@dataclass
class World:
    """A folder, a clock, and who believes at a moment that the lease is his."""

    path: Path
    chance: random.Random
    now: float = 1000.0
    beliefs: dict[str, tuple[int, float]] = field(default_factory=dict)
    granted: list[int] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    exclusive: bool = True
    """Whether two holders would be wrong; after an operator's work they are possible for a while."""

    def clock(self) -> float:
        return self.now

    def pass_time(self) -> None:
        if self.chance.random() < 0.04:
            self.now += self.chance.choice([0.1, 0.3, 0.6, 0.9, 1.0, 1.1, 2.5]) * TTL
        self.check()

    def check(self) -> None:
        holders = [name for name, (_, until) in self.beliefs.items() if self.now < until]
        assert len(holders) <= 1 or not self.exclusive, f"two holders: {self.beliefs} at {self.now}"

    def won(self, who: str, token: int, until: float, known: set[int]) -> None:
        """What a keeper does with a grant: one that comes after its own end is nothing."""
        if token not in known:
            assert token not in self.told, f"{token} was told twice: {self.told}"
            self.told.add(token)
            known.add(token)
            if self.now < until:
                assert token > max(self.granted, default=0), f"{token} after {self.granted}"
                self.granted.append(token)
        if self.now < until:
            self.beliefs[who] = token, until
        self.check()


class Contender:
    """A process, and the ones that come after it when it is killed; does what a keeper does, in one thread."""

    def __init__(self, name: str, world: World, schedule: Schedule, rounds: int) -> None:
        self._name = name
        self._world = world
        self._schedule = schedule
        self._rounds = rounds

    def __call__(self) -> None:
        starts = 0
        while self._rounds > 0:
            starts += 1
            holders = Holders(f"{self._name}-{starts}", "this-host")
            try:
                self._live(holders, f"{self._name}/{starts}")
            except Killed:
                self._world.beliefs.pop(self._name, None)
                holders.close(held=False)
                self._schedule.revive()

    def _live(self, holders: Holders, holder: str) -> None:
        world = self._world
        candidate = Candidate(
            Folder(world.path, LEASES),
            holders,
            Watches(TTL),
            holder=holder,
            instance=holder,
            ttl_seconds=TTL,
            clock=world.clock,
        )
        known: set[int] = set()
        while self._rounds > 0:
            self._rounds -= 1
            asked_at = world.now
            try:
                answer = candidate.acquire(NAME, asked_at, go_on)
            except OSError:
                assert not world.exclusive  # only where somebody meddles
                continue
            if isinstance(answer, Held):
                continue
            world.won(self._name, answer.token, deadline(asked_at, TTL), known)
            self._lead(candidate, answer)
        holders.close(held=False)

    def _lead(self, candidate: Candidate, lease: Lease) -> None:
        world = self._world
        for _ in range(world.chance.randrange(3)):
            asked_at = world.now
            try:
                outcome = candidate.renew([lease], asked_at, asked_at + 1e9, go_on)
            except OSError:
                assert not world.exclusive
                break
            until = world.beliefs.get(self._name, (0, 0.0))[1]
            if outcome.kept and world.now < until:
                world.beliefs[self._name] = lease.token, deadline(asked_at, TTL)
                world.check()
            elif outcome.lost:
                break
        if world.chance.random() < 0.7:
            world.beliefs.pop(self._name, None)
            try:
                candidate.release(NAME, lease.token, go_on)
            except OSError:
                assert not world.exclusive


def go_on() -> None:
    """Nobody has left."""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory, where there is one: thousands of small worlds."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=shared))
    yield path
    shutil.rmtree(path, ignore_errors=True)


Meddle = Callable[[World], None]


def run_world(path: Path, seed: int, meddle: Meddle | None = None, *, kills: float = 0.01) -> World:
    chance = random.Random(seed)
    world = World(path / str(seed), chance, exclusive=meddle is None)

    def between() -> None:
        world.pass_time()
        if meddle is not None and chance.random() < 0.03:
            meddle(world)
        if chance.random() < kills:
            schedule.kill()

    pick = evenly(chance) if chance.random() < 0.4 else by_rank(chance, chance.randrange(1, 12), 250)
    schedule = Schedule(pick, between)

    def fstat(file: int) -> object:
        """A file server on which a step takes 50 ms: in memory, all of this is over in a few."""
        found = os.fstat(file)
        fields = {field: getattr(found, field) for field in ("st_dev", "st_ino", "st_mode")}
        return SimpleNamespace(st_mtime_ns=(10**12 + 50 * schedule.steps) * 10**6, **fields)

    with pytest.MonkeyPatch.context() as patch:
        take_over(patch, schedule, *MODULES, fstat=fstat)
        rounds = chance.randrange(2, 7)
        names = [f"worker-{number}" for number in range(1, chance.choice([2, 2, 3, 3, 4]) + 1)]
        schedule.run({name: Contender(name, world, schedule, rounds) for name in names})
    shutil.rmtree(world.path, ignore_errors=True)
    return world


@pytest.mark.timeout(1800)
def test_no_order_of_system_calls_makes_two_holders(scratch: Path, long: bool) -> None:
    grants = 0
    for seed in range(40_000 if long else 1_000):
        try:
            grants += len(run_world(scratch, seed).granted)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise

    assert grants > 1_000


def delete_something(world: World) -> None:
    """What an operator does to a lease that is in his way."""
    leases = world.path / LEASES
    place = leases / place_of(NAME)
    records = sorted(place.glob("[0-9]*"))
    what = world.chance.randrange(4)
    if what == 0 and records:
        records[-1].unlink(missing_ok=True)
    elif what == 1:
        for record in records:
            record.unlink(missing_ok=True)
    elif what == 2:
        shutil.rmtree(place, ignore_errors=True)
    elif records and records[-1].exists():
        records[-1].write_bytes(world.chance.choice([b"", b"null", b"[" * 5000, b"\xff" * 300]))


@pytest.mark.timeout(1800)
def test_tokens_rise_whatever_an_operator_deletes(scratch: Path, long: bool) -> None:
    """The trial "The fencing token forgets", in every order."""
    grants = 0
    for seed in range(4_000 if long else 200):
        try:
            grants += len(run_world(scratch, seed, delete_something).granted)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise

    assert grants > 200
