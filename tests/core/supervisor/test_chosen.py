"""Who can be chosen, and what happens to a wish that cannot be met. Packages are metadata in a folder."""

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drakkar.errors import ConfigError
from drakkar.supervisor import chosen
from drakkar.supervisor.chosen import check_together, choose, known_names, register
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.keyed import KeyedFanOut
from drakkar.supervisor.worker import BackgroundWorker
from support.supervised import Job

JOB = Job()

Install = Callable[..., None]


async def keys() -> list[str]:
    return []


def item(_deps: object, _key: str) -> Job:
    return JOB


@pytest.fixture(autouse=True)
def nobody_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "_registered", {})


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package, the only ones there are: its module, and its entry points by name."""
    monkeypatch.syspath_prepend(tmp_path)
    distributions = importlib.metadata.distributions
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: distributions(path=[str(tmp_path)]))
    modules = []

    def install(package: str, source: str, **entries: str) -> None:
        (tmp_path / f"{package}.py").write_text(source)
        modules.append(package)
        metadata = tmp_path / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {target}" for name, target in entries.items()]
        (metadata / "entry_points.txt").write_text("\n".join(["[drakkar.workers]", *lines, ""]))

    yield install
    for package in modules:
        sys.modules.pop(package, None)


IMPORTS = (
    "from drakkar.supervisor.worker import BackgroundWorker\n"
    "from drakkar.supervisor.fanout import FanOut\n"
    "def build(deps): ...\n"
    "def build_shard(deps, shard): ...\n"
)


# -- in code


def test_what_was_registered_can_be_chosen_in_the_order_of_the_wish() -> None:
    gc, notify = register(JOB.worker("gc")), register(JOB.worker("notify"))

    assert choose(["notify", "gc", "notify"]) == [notify, gc]
    assert choose([]) == []


def test_a_name_can_be_registered_once() -> None:
    worker = register(JOB.worker("gc"))
    assert register(worker) is worker
    with pytest.raises(ValueError, match="there is a background worker 'gc' already"):
        register(JOB.worker("gc"))


def test_only_workers_and_fan_outs_can_be_registered() -> None:
    with pytest.raises(TypeError, match="not Job"):
        register(JOB)  # type: ignore[arg-type]  # a mistake that is easily made


def test_workers_that_are_given_come_after_those_that_are_named() -> None:
    gc, given = register(JOB.worker("gc")), JOB.worker("given")

    assert choose(["gc"], also=[given, gc]) == [gc, given]


def test_one_that_is_given_twice_is_one() -> None:
    given = JOB.worker("given")

    assert choose([], also=[given, given]) == [given]


def test_two_that_would_run_side_by_side_under_one_name_are_never_taken() -> None:
    given = JOB.worker("given")
    with pytest.raises(ConfigError, match="two background workers 'given'"):
        check_together([given, given])


def test_what_is_no_background_worker_is_a_mistake_that_is_named() -> None:
    with pytest.raises(TypeError, match="a background worker or a fan-out is wanted, not str"):
        choose([], also=["gc"])  # type: ignore[list-item]  # a mistake that is easily made


def test_a_given_worker_with_the_name_of_another_is_an_error() -> None:
    register(JOB.worker("gc"))
    with pytest.raises(ConfigError, match="two background workers 'gc'"):
        choose(["gc"], also=[JOB.worker("gc")])


# -- names that do not exist


def test_an_unknown_name_is_an_error_that_lists_those_that_exist_and_the_nearest(install: Install) -> None:
    register(JOB.worker("notify"))
    install("store", IMPORTS, lifecycle="store:missing")
    with pytest.raises(ConfigError) as raised:
        choose(["notfy"])

    assert str(raised.value) == (
        "supervisor.workers: there is no background worker 'notfy', did you mean 'notify'?"
        " (those that exist: lifecycle, notify)"
    )


def test_a_name_that_is_like_none_brings_no_other_one_to_mind(install: Install) -> None:
    install("store", IMPORTS, ignore="store:missing")
    with pytest.raises(ConfigError) as raised:
        choose(["nope"])

    assert "did you mean" not in str(raised.value)


@pytest.mark.usefixtures("install")
def test_where_none_exist_it_says_so() -> None:
    with pytest.raises(ConfigError, match=r"those that exist: none\)"):
        choose(["gc"])


def test_a_name_is_looked_for_before_anything_is_imported(install: Install) -> None:
    install("store", "raise SystemExit", gc="store:gc")

    assert known_names() == ["gc"]
    with pytest.raises(ConfigError, match="no background worker 'gcc'"):
        choose(["gcc"])
    assert "store" not in sys.modules


# -- from packages


def test_an_entry_point_gives_a_worker_or_makes_one(install: Install) -> None:
    source = (
        IMPORTS + "gc = BackgroundWorker('gc', build)\ndef make(): return FanOut('split', 4, build_shard)\n"
    )
    install("store", source, gc="store:gc", split="store:make")

    gc, split = choose(["gc", "split"])
    assert isinstance(gc, BackgroundWorker)
    assert isinstance(split, FanOut)
    assert split.shards == 4


def test_packages_that_were_not_chosen_are_not_imported(install: Install) -> None:
    install("store", IMPORTS + "gc = BackgroundWorker('gc', build)\n", gc="store:gc")
    install("broken", "raise RuntimeError", notify="broken:notify")

    assert [worker.name for worker in choose(["gc"])] == ["gc"]
    assert "broken" not in sys.modules


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ImportError('no module named boto')", "cannot be loaded: ImportError: no module named boto"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("", "cannot be loaded: AttributeError"),
        ("gc = 3", "must give a background worker named 'gc', not int"),
        ("gc = None", "not NoneType"),
        ("async def gc(): ...", "not coroutine"),
        ("def gc(): raise ValueError('GC_SHARDS=x')", "cannot be loaded: ValueError: GC_SHARDS=x"),
        (IMPORTS + "gc = BackgroundWorker('other', build)", "not one named 'other'"),
        (IMPORTS + "gc = BackgroundWorker", "cannot be loaded: TypeError"),
        (
            IMPORTS + "def gc(): return FanOut('gc', 0, build_shard)",
            "cannot be loaded: ValueError: gc: 0 shards",
        ),
    ],
)
def test_an_entry_point_that_fails_is_an_error_in_one_line(
    install: Install, source: str, message: str
) -> None:
    install("store", source, gc="store:gc")
    with pytest.raises(ConfigError) as raised:
        choose(["gc"])

    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("supervisor.workers: ")


def test_a_name_that_two_packages_offer_is_an_error_that_names_both(install: Install) -> None:
    install("store", IMPORTS + "gc = BackgroundWorker('gc', build)\n", gc="store:gc")
    install("other", IMPORTS + "gc = BackgroundWorker('gc', build)\n", gc="other:gc")
    with pytest.raises(ConfigError, match="offered more than once, by other:gc and store:gc"):
        choose(["gc"])


def test_what_code_registers_goes_before_what_a_package_offers(install: Install) -> None:
    install("store", "raise RuntimeError", gc="store:gc")
    worker = register(JOB.worker("gc"))

    assert choose(["gc"]) == [worker]


def test_a_damaged_distribution_costs_its_own_workers_alone(install: Install, tmp_path: Path) -> None:
    install("store", IMPORTS + "gc = BackgroundWorker('gc', build)\n", gc="store:gc")
    damaged = tmp_path / "damaged-1.0.dist-info"
    damaged.mkdir()
    (damaged / "METADATA").write_bytes(b"Name: damaged\xff\nVersion: 1.0\n")
    (damaged / "entry_points.txt").write_bytes(b"[drakkar.workers\n\xff\xfe = = =")
    (tmp_path / "empty-1.0.dist-info").mkdir()

    assert [worker.name for worker in choose(["gc"])] == ["gc"]


# -- gates


def gate(shards: int = 4) -> FanOut:
    return FanOut("gc", shards, JOB.build_shard)


def test_a_gate_that_was_not_chosen_is_an_error() -> None:
    register(KeyedFanOut("lifecycle", keys, item, gate()))
    with pytest.raises(ConfigError, match="lifecycle works only where its gate gc does; choose gc as well"):
        choose(["lifecycle"])


def test_a_gate_that_is_no_fan_out_here_is_an_error() -> None:
    with pytest.raises(ConfigError, match="choose gc as well"):
        check_together([JOB.worker("gc"), KeyedFanOut("lifecycle", keys, item, gate())])


def test_a_gate_of_another_number_of_shards_is_an_error() -> None:
    with pytest.raises(ConfigError, match="gc has 8 shards, but 4 as the gate of lifecycle"):
        check_together([gate(8), KeyedFanOut("lifecycle", keys, item, gate(4))])


def test_a_gate_may_be_made_anew_with_the_same_shards_and_come_in_any_order() -> None:
    check_together([KeyedFanOut("lifecycle", keys, item, gate()), gate()])
