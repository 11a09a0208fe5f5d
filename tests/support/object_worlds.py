"""Object stores whose actors are stopped between any two of their file calls, while others act."""

import asyncio
import itertools
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from drakkar.clock import SystemClock
from objectstore.balance import Balance
from objectstore.collect import Collect, Unfinished
from objectstore.count import Count
from objectstore.errors import StaleWrite
from objectstore.expire import Expire
from objectstore.ledger import Ledger, Term
from objectstore.permit import Permit
from objectstore.rounds import Job
from objectstore.store import Store
from objectstore.tree import Tree
from support.log import RecordingLogger

T = TypeVar("T")

CHUNK_BYTES = 64
Meanwhile = Callable[[], None]


@dataclass
class HeldLease:
    """A lease that its holder believes to have, whatever the truth: a process that froze after looking."""

    name: str
    token: int
    lost: bool = False
    on_check: Meanwhile = lambda: None
    checks: int = 0

    def check(self) -> None:
        self.checks += 1
        self.on_check()


class PausingTree(Tree):
    """Calls `on_pause` before each file call whose number is in `pauses`: who uses this tree stands still
    until that returns."""

    def __init__(self, root: Path, *, now: Callable[[], float]) -> None:
        super().__init__(root, now=now)
        self.names: list[str] = []
        """What each file call so far was about."""

        self.pauses: set[int] = set()
        self.on_pause: Meanwhile = lambda: None

    def path(self, name: str) -> Path:
        self.names.append(name)
        if len(self.names) in self.pauses:
            self.on_pause()
        return super().path(name)

    def boundaries(self) -> list[int]:
        """The numbers of the calls that are about something else than the one before: a listing of many
        folders is one thing."""
        kinds = [_kind(name) for name in self.names]
        return [
            number
            for number, (before, kind) in enumerate(zip(["", *kinds], kinds, strict=False), 1)
            if before != kind
        ]


def _kind(name: str) -> str:
    return "pins" if "/incoming/" in name else name.partition("/")[0]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in an event loop of a thread of its own: as another process would."""
    result: list[T] = []
    errors: list[BaseException] = []

    def thread() -> None:
        try:
            result.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001  raised again below
            errors.append(error)

    running = threading.Thread(target=thread)
    running.start()
    running.join()
    if errors:
        raise errors[0]
    return result[0]


@dataclass
class ObjectWorld:
    """One folder, and everybody who works on it, each as a process of its own."""

    root: Path
    wall: float = 1000.0
    tokens: "itertools.count[int]" = field(default_factory=itertools.count)
    log: RecordingLogger = field(default_factory=RecordingLogger)
    patient: bool = False
    """Whether a collector leaves alone what uploads have not finished yet, however long it stands still."""

    def __post_init__(self) -> None:
        self.tree().prepare()
        next(self.tokens)

    def tree(self) -> PausingTree:
        return PausingTree(self.root, now=lambda: self.wall)

    def store(self, tree: Tree | None = None) -> Store:
        store = Store(self.root, chunk_bytes=CHUNK_BYTES, now=lambda: self.wall)
        if tree is not None:
            store._tree = tree
        return store

    def term(self, lease: HeldLease) -> Term:
        tree = self.tree()
        return Term(Ledger(tree), tree, Permit(lease), self.log)

    def job(
        self, name: str, tree: Tree | None = None, lease: HeldLease | None = None, bucket: str = "photos"
    ) -> Job:
        """A run of a background worker, with the next token."""
        tree = tree or self.tree()
        lease = lease or HeldLease(f"{name}-leader", next(self.tokens))
        permit = Permit(lease)
        term = Term(Ledger(tree), tree, permit, self.log)
        unfinished = Unfinished(tree, math.inf if self.patient else 0.0, SystemClock())
        match name:
            case "gc":
                return Collect(tree, permit, term, self.log, 0, 1, unfinished)
            case "lifecycle":
                return Expire(tree, permit, term, bucket)
            case "rebalance":
                return Balance(tree, permit, term, self.log, 0, 1)
            case "inventory":
                return Count(tree, permit, term)
        raise ValueError(name)

    async def rounds(
        self, name: str, count: int = 1, tree: Tree | None = None, lease: HeldLease | None = None
    ) -> None:
        job = self.job(name, tree, lease)
        for _ in range(count):
            await job.round()

    def tidy(self) -> None:
        """What the workers do when nobody writes for a while."""
        self.patient = False
        for name in ("lifecycle", "gc", "gc", "rebalance", "gc", "inventory"):
            run(self.rounds(name))


KEPT, SHARED, DEAD, CONDEMNED, EXPIRED, OLD = (bytes([65 + n]) * CHUNK_BYTES for n in range(6))

Actor = Callable[[ObjectWorld, Tree], Coroutine[Any, Any, None]]
"""Does its work with the tree that it is given."""


def prepare(world: ObjectWorld) -> None:
    """Objects that share chunks, one that has expired, one whose old version still lies there, a chunk that
    nothing names and one that is condemned already."""

    async def build() -> None:
        store = world.store()
        await store.put("photos", "condemned", CONDEMNED)
        await store.delete("photos", "condemned")
        await world.rounds("gc")
        await store.put("photos", "kept", KEPT + SHARED)
        await replace_and_die(world, "replaced", SHARED + KEPT)
        await replace_and_die(world, "expired", SHARED + EXPIRED, expires_in_seconds=10)
        await store.put("photos", "dead", DEAD)
        await store.delete("photos", "dead")
        world.wall += 20

    run(build())


async def replace_and_die(
    world: ObjectWorld, key: str, data: bytes, *, expires_in_seconds: float | None = None
) -> None:
    """Replace an object, and leave its old version there: as if the writer had died before it removed it."""
    store = world.store()
    await store.put("photos", key, OLD)
    [old] = world.tree().versions_of("photos", key)
    saved = world.root / "saved"
    os.link(world.root / old.name, saved)
    await store.put("photos", key, data, expires_in_seconds=expires_in_seconds)
    saved.rename(world.root / old.name)


async def put_what_was_dead(world: ObjectWorld, tree: Tree) -> None:
    store, data = world.store(tree), DEAD + CONDEMNED + EXPIRED + SHARED
    await store.put("photos", "revived", data)
    assert await store.get("photos", "revived") == data


async def replace(world: ObjectWorld, tree: Tree) -> None:
    await world.store(tree).put("photos", "replaced", DEAD + KEPT)


async def delete(world: ObjectWorld, tree: Tree) -> None:
    await world.store(tree).delete("photos", "replaced")


async def read(world: ObjectWorld, tree: Tree) -> None:
    assert await world.store(tree).get("photos", "kept") == KEPT + SHARED


async def collect(world: ObjectWorld, tree: Tree) -> None:
    await world.rounds("gc", 2, tree)


async def collect_elsewhere(world: ObjectWorld, tree: Tree) -> None:
    """By a worker that was set up with another number of shards: under a lease that fences nobody here."""
    await world.rounds("gc", 2, tree, HeldLease("gc-leader-elsewhere", next(world.tokens)))


async def expire(world: ObjectWorld, tree: Tree) -> None:
    await world.rounds("lifecycle", 1, tree)


async def rebalance(world: ObjectWorld, tree: Tree) -> None:
    await world.rounds("rebalance", 1, tree)


async def rebalance_elsewhere(world: ObjectWorld, tree: Tree) -> None:
    await world.rounds("rebalance", 1, tree, HeldLease("rebalance-leader-elsewhere", next(world.tokens)))


async def count(world: ObjectWorld, tree: Tree) -> None:
    await world.rounds("inventory", 1, tree)


async def everything(world: ObjectWorld, _tree: Tree) -> None:
    """Each of the others, one after the other: a process that was frozen for long."""
    for actor in (rebalance, collect, put_what_was_dead, rebalance, expire, count, collect, delete):
        await actor(world, world.tree())


ACTORS: Final[tuple[Actor, ...]] = (
    put_what_was_dead,
    replace,
    delete,
    read,
    collect,
    collect_elsewhere,
    expire,
    rebalance,
    rebalance_elsewhere,
    count,
    everything,
)


class Crossing:
    """Several actors, of which one goes on at a time. At each of its pauses, and at its end, `pick` chooses
    who is next among the others by their numbers."""

    def __init__(self, pick: Callable[[Sequence[int]], int]) -> None:
        self._pick = pick
        self._turn = threading.Condition()
        self._going: list[int] = []
        self._current = 0

    def run(self, world: ObjectWorld, actors: Sequence[tuple[Actor, PausingTree]]) -> None:
        """Return when all have ended; raises what one of them raised."""
        self._going = list(range(len(actors)))
        self._current = self._pick(self._going)
        with ThreadPoolExecutor(len(actors)) as pool:
            ends = [pool.submit(self._act, number, world, *actor) for number, actor in enumerate(actors)]
        for end in ends:
            end.result()

    def _act(self, number: int, world: ObjectWorld, actor: Actor, tree: PausingTree) -> None:
        tree.on_pause = lambda: self._hand_over(number)
        self._wait_for_turn(number)
        try:
            act(world, actor, tree)
        finally:
            with self._turn:
                self._going.remove(number)
                self._pass_on()

    def _hand_over(self, number: int) -> None:
        with self._turn:
            self._pass_on()
        self._wait_for_turn(number)

    def _pass_on(self) -> None:
        if self._going:
            others = [number for number in self._going if number != self._current]
            self._current = self._pick(others or self._going)
            self._turn.notify_all()

    def _wait_for_turn(self, number: int) -> None:
        with self._turn:
            assert self._turn.wait_for(lambda: self._current == number, 60)


def in_order(*numbers: int) -> Callable[[Sequence[int]], int]:
    """Picks these, one after the other; the first that is there when one of them is not."""
    left = iter(numbers)

    def pick(going: Sequence[int]) -> int:
        number = next(left, going[0])
        return number if number in going else going[0]

    return pick


def act(world: ObjectWorld, actor: Actor, tree: Tree) -> None:
    """Refused is at most who was replaced."""
    try:
        run(actor(world, tree))
    except StaleWrite:
        assert world.log.named("objectstore_write_refused")


def act_and_die(root: Path, wall: float, actor: Actor, at: int) -> None:
    """What a process does that is killed before its file call number `at`."""
    world = ObjectWorld(root, wall)
    world.tokens = itertools.count(100)
    tree = world.tree()
    tree.pauses, tree.on_pause = {at}, lambda: os.kill(os.getpid(), signal.SIGKILL)
    run(actor(world, tree))


def write_for_a_while(root: Path, lease: str, token: int, seconds: float) -> None:
    """Write until refused, or the time is over; then tell which entries were ours."""
    world = ObjectWorld(root)
    numbers = []
    end = time.monotonic() + seconds
    time.sleep(token * seconds / 10)
    try:
        mine = world.term(HeldLease(lease, token))
        while time.monotonic() < end:
            numbers.append(mine.write((), 1).number)
    except StaleWrite:
        pass
    (root / f"told-{token}").write_text(json.dumps(numbers))
