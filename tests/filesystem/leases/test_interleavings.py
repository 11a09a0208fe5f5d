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
from drakkar_filesystem import _claims, _files, _folder, _generations, _grants, _holders
from drakkar_filesystem._candidate import Candidate
from drakkar_filesystem._folder import LEASES, Folder
from drakkar_filesystem._holders import Holders
from drakkar_filesystem._lease_record import place_of
from drakkar_filesystem._watches import Watches
from support.interleaving import Killed, Schedule, by_rank, evenly, take_over

NAME = "gc"
TTL = 10.0
MODULES = (_claims, _files, _folder, _generations, _grants, _holders)


@dataclass(frozen=True)
class Profile:
    """What a world is like."""

    rounds: tuple[int, int]
    contenders: tuple[int, ...]
    renews: float
    """How likely a holder renews rather than gives back."""

    haste: float
    """How likely time passes at a system call."""

    leaps: tuple[float, ...]
    """By how much, in parts of the ttl."""

    kills: float


RACES = Profile((3, 10), (2, 2, 3, 4), 0.6, 0.02, (0.1, 0.3, 0.6, 0.9, 1.1), 0.006)
PATIENCE = Profile((30, 60), (2, 2, 3), 0.97, 0.1, (0.02, 0.05, 0.1, 0.2, 0.3, 0.6), 0.0005)


@dataclass
class World:
    """A folder, a clock, and who believes at a moment that the lease is his."""

    path: Path
    chance: random.Random
    profile: "Profile"
    now: float = 1000.0
    beliefs: dict[str, tuple[int, float]] = field(default_factory=dict)
    granted: list[int] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    renewed: int = 0
    exclusive: bool = True
    """Whether two holders would be wrong; after an operator's work they are possible for a while."""

    def clock(self) -> float:
        return self.now

    def pass_time(self) -> None:
        if self.chance.random() < self.profile.haste:
            self.now += self.chance.choice(self.profile.leaps) * TTL
        self.check()

    def check(self) -> None:
        holders = [name for name, (_, until) in self.beliefs.items() if self.now < until]
        assert len(holders) <= 1 or not self.exclusive, f"two holders: {self.beliefs} at {self.now}"

    def won(self, who: str, token: int, until: float, known: set[int], asked_after: int) -> None:
        """What a keeper does with a grant: one that comes after its own end is nothing."""
        if token not in known:
            assert token not in self.told, f"{token} was told twice: {self.told}"
            self.told.add(token)
            known.add(token)
            if self.now < until:
                # An operator's work lets another have the lease before we even hear of our grant.
                before = self.granted if self.exclusive else self.granted[:asked_after]
                assert token > max(before, default=0), f"{token} after {before}"
                self.granted.append(token)
        if self.now < until:
            self.beliefs[who] = token, until
        self.check()


class Contender:
    """A process, and those that come after it when it is killed; does what a keeper does, in one thread."""

    def __init__(self, name: str, world: World, schedule: Schedule, rounds: int) -> None:
        self._name = name
        self._world = world
        self._schedule = schedule
        self._rounds = rounds

    def __call__(self) -> None:
        starts = 0
        while self._rounds > 0:
            starts += 1
            instance = f"{self._name}-{starts}"
            holders = Holders(instance, "this-host")
            try:
                self._live(instance, holders)
            except Killed:
                self._world.beliefs.pop(self._name, None)
                self._schedule.revive()
            holders._close()

    def _live(self, instance: str, holders: Holders) -> None:
        world = self._world
        candidate = Candidate(
            Folder(world.path, LEASES),
            holders,
            Watches(TTL),
            holder=f"{self._name}/{instance}",
            instance=instance,
            ttl_seconds=TTL,
            clock=world.clock,
        )
        known: set[int] = set()
        lease: Lease | None = None
        while self._rounds > 0:
            self._rounds -= 1
            try:
                if lease is None:
                    lease = self._acquire(candidate, known)
                elif world.chance.random() < world.profile.renews:
                    lease = self._renew(candidate, lease)
                else:
                    world.beliefs.pop(self._name, None)
                    candidate.release(NAME, lease.token, go_on)
                    lease = None
            except OSError:
                assert not world.exclusive  # only where somebody meddles
        if lease is not None:  # its run ends first
            world.beliefs.pop(self._name, None)

    def _acquire(self, candidate: Candidate, known: set[int]) -> Lease | None:
        world = self._world
        asked_at, asked_after = world.now, len(world.granted)
        answer = candidate.acquire(NAME, asked_at, go_on)
        if isinstance(answer, Held) or world.chance.random() < 0.15:  # an answer that never came
            return None
        world.won(self._name, answer.token, deadline(asked_at, TTL), known, asked_after)
        return answer

    def _renew(self, candidate: Candidate, lease: Lease) -> Lease | None:
        world = self._world
        asked_at = world.now
        outcome = candidate.renew([lease], asked_at, asked_at + 1e9, go_on)
        until = world.beliefs.get(self._name, (0, 0.0))[1]
        if outcome.lost or world.now >= until:  # an answer that comes after the old deadline is none
            world.beliefs.pop(self._name, None)
            return None
        world.beliefs[self._name] = lease.token, deadline(asked_at, TTL)
        world.renewed += 1
        world.check()
        return lease


def go_on() -> None:
    """Nobody has left."""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory, where there is one: thousands of small worlds."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=shared))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run_noted(path: Path, seed: int, meddle: "Meddle | None" = None) -> World:
    try:
        return run_world(path, seed, meddle)
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


Meddle = Callable[[World], None]


def run_world(path: Path, seed: int, meddle: Meddle | None = None) -> World:
    chance = random.Random(seed)
    profile = PATIENCE if seed % 4 == 0 else RACES
    world = World(path / str(seed), chance, profile, exclusive=meddle is None)

    def between() -> None:
        world.pass_time()
        if meddle is not None and chance.random() < 0.03:
            meddle(world)
        if chance.random() < profile.kills:
            schedule.kill()

    ranked = profile is RACES and chance.random() < 0.5
    pick = by_rank(chance, chance.randrange(1, 30), 600) if ranked else evenly(chance, 0.02)
    schedule = Schedule(pick, between)

    def fstat(file: int) -> object:
        """Of a new file, on a server where a step takes 50 ms: in memory all of this is over in a few."""
        found = os.fstat(file)
        fields = {field: getattr(found, field) for field in ("st_dev", "st_ino", "st_mode")}
        return SimpleNamespace(st_mtime_ns=(10**12 + 50 * schedule.steps) * 10**6, **fields)

    with pytest.MonkeyPatch.context() as patch:
        take_over(patch, schedule, *MODULES)
        take_over(patch, schedule, _claims, fstat=fstat)
        rounds = chance.randint(*profile.rounds)
        names = [f"worker-{number}" for number in range(1, chance.choice(profile.contenders) + 1)]
        schedule.run({name: Contender(name, world, schedule, rounds) for name in names})
    shutil.rmtree(world.path, ignore_errors=True)
    return world


@pytest.mark.timeout(1800)
def test_no_order_of_system_calls_makes_two_holders(scratch: Path, long: bool) -> None:
    grants = renewals = 0
    for seed in range(20_000 if long else 500):
        world = run_noted(scratch, seed)
        grants += len(world.granted)
        renewals += world.renewed

    assert grants > 500
    assert renewals > 500


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
    grants = sum(
        len(run_noted(scratch, seed, delete_something).granted) for seed in range(4_000 if long else 150)
    )

    assert grants > 150
