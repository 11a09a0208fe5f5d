"""Every actor, frozen or killed between any two of its file calls: nothing is lost, and nothing is left for
long.

With `--long` every moment is tried, else every few.
"""

import itertools
import multiprocessing
import random
import signal
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from objectstore.verify import verify
from support.object_worlds import (
    ACTORS,
    KEPT,
    OLD,
    SHARED,
    Actor,
    Crossing,
    ObjectWorld,
    PausingTree,
    act,
    act_and_die,
    collect,
    collect_elsewhere,
    in_order,
    prepare,
    put_what_was_dead,
    rebalance,
    rebalance_elsewhere,
    run,
)


def name_of(actor: Actor) -> str:
    return actor.__name__


processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["support.object_worlds"])


def rehearse(root: Path, actor: Actor) -> PausingTree:
    """What an actor does when nobody disturbs it."""
    world = ObjectWorld(root)
    prepare(world)
    tree = world.tree()
    run(actor(world, tree))
    return tree


def check(world: ObjectWorld) -> None:
    """Nothing is lost now, and nothing is left when the workers had their rounds."""
    assert verify(world.tree()).broken == []
    store = world.store()
    assert run(store.get("photos", "kept")) == KEPT + SHARED
    assert OLD not in [run(store.get("photos", each.key)) for each in run(store.list("photos"))]
    world.tidy()
    report = verify(world.tree())
    assert (report.broken, report.left) == ([], [])


def moments(rehearsed: PausingTree, stride: int, *actors: Actor) -> range:
    """Some of the steps; other ones for other actors."""
    steps = len(rehearsed.names)
    return range(
        1 + random.Random(" ".join(actor.__name__ for actor in actors)).randrange(stride), steps + 1, stride
    )


@pytest.fixture(name="tmp_path")
def in_memory() -> Iterator[Path]:
    """Thousands of small stores, of which none has to outlive a power cut."""
    shared_memory = Path("/dev/shm")
    with TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("meanwhile", ACTORS, ids=name_of)
@pytest.mark.parametrize("frozen", ACTORS[:-1], ids=name_of)
def test_who_is_frozen_at_any_moment_harms_nobody(
    frozen: Actor, meanwhile: Actor, tmp_path: Path, long: bool
) -> None:
    """All of the other's work happens while the first stands still."""
    for at in moments(rehearse(tmp_path / "whole", frozen), 1 if long else 127, frozen, meanwhile):
        world = ObjectWorld(tmp_path / f"{at}")
        prepare(world)
        world.patient = at % 2 == 0
        tree = world.tree()
        tree.pauses = {at}
        tree.on_pause = lambda world=world: run(meanwhile(world, world.tree()))  # type: ignore[misc]  # an argument
        act(world, frozen, tree)
        check(world)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("actor", ACTORS[:-1], ids=name_of)
def test_who_is_killed_at_any_moment_leaves_what_others_clear_away(
    actor: Actor, tmp_path: Path, long: bool
) -> None:
    rehearsed = rehearse(tmp_path / "whole", actor)
    all_of_them = long or len(rehearsed.names) <= 40
    for at in moments(rehearsed, 1 if all_of_them else 25, actor):
        world = ObjectWorld(tmp_path / f"{at}")
        prepare(world)
        process = processes.Process(target=act_and_die, args=(world.root, world.wall, actor, at))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        world.tokens = itertools.count(1000)  # those that come after it
        check(world)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("order", [(0, 1, 2, 1, 0), (0, 1, 2, 0, 1)], ids=["nested", "crossed"])
@pytest.mark.parametrize(
    "trio",
    [
        (collect, collect_elsewhere, put_what_was_dead),
        (rebalance, collect, put_what_was_dead),
        (rebalance, rebalance_elsewhere, collect),
        (collect, rebalance, collect_elsewhere),
        (put_what_was_dead, collect, collect_elsewhere),
        (put_what_was_dead, rebalance, collect),
    ],
    ids=lambda trio: "-".join(map(name_of, trio)),
)
def test_two_that_are_frozen_at_once_harm_nobody(
    trio: tuple[Actor, Actor, Actor], order: tuple[int, ...], tmp_path: Path, long: bool
) -> None:
    """The third does all of its work while the others stand still, wherever they turn to something else."""
    rehearsed = [rehearse(tmp_path / name_of(actor), actor) for actor in trio]
    pairs = list(product(rehearsed[0].boundaries(), rehearsed[1].boundaries()))
    stride = 1 if long else 127
    for number in range(random.Random(f"{order} {trio[0].__name__}").randrange(stride), len(pairs), stride):
        world = ObjectWorld(tmp_path / f"{number}")
        prepare(world)
        world.patient = True
        trees = [world.tree() for _ in trio]
        trees[0].pauses, trees[1].pauses = ({pause} for pause in pairs[number])
        Crossing(in_order(*order)).run(world, list(zip(trio, trees, strict=True)))
        check(world)


@pytest.mark.timeout(900)
def test_several_that_are_frozen_again_and_again_harm_nobody(tmp_path: Path, long: bool) -> None:
    """Any order of what they do, changing over where one turns to something else. Each trial can be repeated
    by its number."""
    places = {actor: rehearse(tmp_path / actor.__name__, actor).boundaries() for actor in ACTORS[:-1]}
    for number in range(4000 if long else 40):
        chance = random.Random(number)
        world = ObjectWorld(tmp_path / f"{number}")
        prepare(world)
        world.patient = chance.random() < 0.5
        actors = [(actor, world.tree()) for actor in chance.choices(ACTORS[:-1], k=chance.randint(2, 4))]
        for actor, tree in actors:
            tree.pauses = {*chance.choices(places[actor], k=chance.randint(1, 3))}
        Crossing(chance.choice).run(world, actors)
        check(world)
