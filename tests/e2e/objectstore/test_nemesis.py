"""Three real workers and two writers, killed, frozen past their leases, stopped and started at random.

Afterwards nothing is lost, nothing is left, and no write came after one of a newer leader. The seed is
printed: `NEMESIS_SEED=...` repeats its choices, though not the moments at which they meet the others.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from objectstore.count import figures
from objectstore.ledger import Ledger
from objectstore.tree import Tree
from objectstore.verify import settle
from support.processes import Fleet, WorkerProcess, stop_all

OBJECTSTORE = str(Path(sys.executable).with_name("objectstore"))
TTL_SECONDS = 2.5
SETTINGS = {
    "workers": "gc,lifecycle,rebalance,inventory",
    "supervisor.leases.ttl_seconds": TTL_SECONDS,
    "supervisor.leases.renew_seconds": 0.8,
    "supervisor.leases.retry_seconds": 0.5,
    "supervisor.leases.timeout_seconds": 0.6,
    "supervisor.stop_timeout_seconds": 5,
    "gc_shards": 4,
    "gc_interval": 0.3,
    "gc_grace": 4,
    "lifecycle_interval": 0.3,
    "rebalance_interval": 0.3,
    "inventory_interval": 0.3,
}
WORKERS = ("worker-1", "worker-2", "worker-3")
WRITERS = 2
DEEDS = ("kill", "freeze", "stop")
TIDY_SECONDS = 60


@dataclass
class Nemesis:
    """Who does what to whom, and when; `story` is what a failure shows."""

    fleet: Fleet
    store: Path
    chance: random.Random
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    frozen: dict[str, float] = field(default_factory=dict)
    """Until when."""

    stopping: set[str] = field(default_factory=set)
    """Told to, and perhaps ended since."""

    writers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    pending: list[str] = field(default_factory=lambda: [*DEEDS])
    """Deeds that are not left to chance."""

    began: float = field(default_factory=time.monotonic)

    def tell(self, deed: str, who: str, detail: str = "") -> None:
        self.deeds[deed] += 1
        self.story.append(f"{time.monotonic() - self.began:7.2f} s  {deed} {who} {detail}".rstrip())

    def start(self, name: str) -> None:
        self.stopping.discard(name)
        self.workers[name] = self.fleet.launch(name, SETTINGS | {"objectstore_dir": self.store})
        self.tell("start", name, f"pid {self.workers[name].pid}")

    def start_writer(self) -> None:
        seed = str(self.chance.randrange(10**6))
        command = [
            OBJECTSTORE,
            "--dir",
            str(self.store),
            "fill",
            "--seed",
            seed,
            "--pause",
            "0.03",
            "--chunk-bytes",
            "4096",
        ]
        self.writers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        self.tell("start", "writer", f"pid {self.writers[-1].pid}")

    def act(self) -> None:
        """One deed."""
        for name in [name for name, until in self.frozen.items() if time.monotonic() >= until]:
            self.thaw(name)
        if self.chance.random() < 0.15:
            self.replace_a_writer()
            return
        name = self.chance.choice(WORKERS)
        worker = self.workers[name]
        if worker.process.poll() is not None:
            self.start(name)
        elif name not in self.frozen:
            deed = self.pending.pop() if self.pending else self.chance.choice([*DEEDS, "freeze"])
            {"kill": self.kill, "freeze": self.freeze, "stop": self.stop}[deed](name)
        elif self.chance.random() < 0.2:
            self.kill(name)

    def kill(self, name: str) -> None:
        self.tell("kill", name)
        self.frozen.pop(name, None)
        self.workers[name].kill()

    def freeze(self, name: str) -> None:
        seconds = TTL_SECONDS * self.chance.uniform(0.3, 2)
        self.tell("freeze", name, f"for {seconds:.2f} s")
        self.frozen[name] = time.monotonic() + seconds
        self.workers[name].send(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.tell("thaw", name)
        del self.frozen[name]
        self.workers[name].send(signal.SIGCONT)

    def stop(self, name: str) -> None:
        self.tell("stop", name)
        self.stopping.add(name)
        self.workers[name].send(signal.SIGTERM)

    def replace_a_writer(self) -> None:
        writer = self.writers.pop(self.chance.randrange(len(self.writers)))
        self.tell("kill", "writer", f"pid {writer.pid}")
        writer.kill()
        writer.wait()
        self.start_writer()

    def end_writers(self) -> list[int]:
        for writer in self.writers:
            writer.terminate()
        return [writer.wait(30) for writer in self.writers]

    def calm(self) -> None:
        """Return when all workers run, and none of them was told to stop."""
        for name in list(self.frozen):
            self.thaw(name)
        for name in WORKERS:
            if name in self.stopping:
                self.workers[name].wait()
            if self.workers[name].process.poll() is not None:
                self.start(name)
        for worker in self.workers.values():
            if not worker.url:
                worker.wait_until_it_runs()
        self.tell("calm", "all")

    def crashes(self) -> list[str]:
        """What runs died of, but for what befalls those that were frozen."""
        lines = [line for worker in self.fleet.started for line in worker.events("worker_crashed")]
        errors = [f"{line['worker']}/{line['shard']}: {line['error']}" for line in lines]
        return [error for error in errors if not ("LeaseLost: " in error or "StaleWrite: " in error)]


@pytest.fixture(name="nemesis")
def a_nemesis(fleet: Fleet, tmp_path: Path) -> Iterator[Nemesis]:
    seed = int(os.environ.get("NEMESIS_SEED", "") or random.randrange(10**9))
    made = Nemesis(fleet, tmp_path / "objects", random.Random(seed))
    try:
        yield made
    finally:
        for writer in made.writers:
            writer.kill()
            writer.wait()
        print(f"NEMESIS_SEED={seed}")
        print(*made.story, sep="\n")


@pytest.mark.timeout(400)
def test_a_store_outlives_everything_that_befalls_its_workers(nemesis: Nemesis, long: bool) -> None:
    for name in WORKERS:
        nemesis.start(name)
    for _ in range(WRITERS):
        nemesis.start_writer()
    for worker in nemesis.workers.values():
        worker.wait_until_it_runs()

    end = time.monotonic() + (60 if long else 18)
    while time.monotonic() < end:
        time.sleep(nemesis.chance.uniform(0.1, 1.2))
        nemesis.act()
    assert {0, -signal.SIGTERM} >= {*nemesis.end_writers()}  # one that was about to start hears no signal yet
    nemesis.calm()
    tree = Tree(nemesis.store)
    report = settle(tree, TIDY_SECONDS)
    nemesis.tell("verified", "the store", f"{report.checked} {figures(tree)}")

    assert report.broken == []
    assert report.left == []
    assert nemesis.crashes() == []
    assert stop_all(nemesis.workers.values()) == [0, 0, 0]
    check_that_something_happened(nemesis, Ledger(tree), report.checked)


def check_that_something_happened(nemesis: Nemesis, ledger: Ledger, checked: Mapping[str, int]) -> None:
    """A store that nobody touched proves nothing."""
    assert min(nemesis.deeds[deed] for deed in DEEDS) > 0, nemesis.deeds
    assert min(checked[what] for what in ("objects", "chunks named", "operations", "ledger entries")) > 50
    for prefix in ("gc-leader-", "lifecycle-leader-", "rebalance-leader-", "inventory-leader"):
        assert ledger.total(prefix) > 0, prefix
    terms = {lease: len({entry.token for entry in ledger.entries(lease)}) for lease in ledger.leases()}
    assert len(terms) == 4 + 4 + 2 + 1
    assert sum(terms.values()) >= 2 * len(terms), terms
    nemesis.tell("leaders", "by lease", f"{terms}")
    refused = sum(len(worker.events("objectstore_write_refused")) for worker in nemesis.fleet.started)
    withdrawn = sum(len(worker.events("objectstore_upload_withdrawn")) for worker in nemesis.fleet.started)
    nemesis.tell("counted", f"{refused} stale writes refused,", f"{withdrawn} unfinished files withdrawn")
