"""The command `drakkar` as a process of its own, and a provider package for it, made on the spot."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

Process = subprocess.Popen[str]

DRAKKAR = str(Path(sys.executable).with_name("drakkar"))
LIMIT_SECONDS = 60
"""No command takes longer. Nothing waits this long unless something is wrong."""

CARDBOX = '''
"""Cards as files, and every way to be slow that an option can name."""
import asyncio, json, os, threading, time
from pathlib import Path

from drakkar.fleet.card import encode_card
from drakkar.fleet.provider import PeerCard

time.sleep(float(os.environ.get("CARDBOX_IMPORT_SECONDS", "0")))


class Cardbox:
    def __init__(self, options):
        if not isinstance(options.get("dir"), str):
            raise ValueError("dir is missing; name a folder")
        self._dir, self._options = Path(options["dir"]), options

    async def _at(self, op):
        self._dir.mkdir(parents=True, exist_ok=True)
        (self._dir / f"{op}.began").touch()
        await asyncio.sleep(self._options.get(f"{op}_seconds", 0))

    async def start(self, ctx):
        if self._options.get("thread"):
            threading.Thread(target=threading.Event().wait, name="endless").start()
        await self._at("start")
        self._prune_after_seconds = ctx.prune_after_seconds

    async def publish(self, card):
        await self._at("publish")
        data = encode_card(card)
        part = self._dir / f"{card['worker'].encode().hex()}.{os.urandom(4).hex()}.part"
        part.write_bytes(data)
        part.rename(self._path(card["worker"]))

    async def list(self):
        await self._at("list")
        peers = []
        for path in self._dir.glob("*.card"):
            age = max(0.0, time.time() - path.stat().st_mtime)
            if age > self._prune_after_seconds:
                path.unlink()
            else:
                peers.append(PeerCard(json.loads(path.read_bytes()), age))
        return peers

    async def withdraw(self, worker, instance):
        await self._at("withdraw")
        path = self._path(worker)
        mine = path.exists() and json.loads(path.read_bytes())["instance"] == instance
        if mine and not self._options.get("forgets_to_withdraw"):
            path.unlink()

    async def stop(self):
        await self._at("stop")

    def _path(self, worker):
        return self._dir / f"{worker.encode().hex()}.card"
'''
TESTING = """
import os
from pathlib import Path

from cardbox import Cardbox


class Store:
    def __init__(self, options, prune_after_seconds=600):
        self._options = options

    def make_provider(self):
        return Cardbox(self._options)

    def advance(self, seconds):
        for path in Path(self._options["dir"]).glob("*.card"):
            found = path.stat()
            os.utime(path, (found.st_atime, found.st_mtime - seconds))
"""


JOBS = """
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.keyed import KeyedFanOut
from drakkar.supervisor.worker import BackgroundWorker


class Rests:
    async def run(self, ctx):
        await ctx.yielding.wait()


async def keys():
    return ["a"]


sweep = BackgroundWorker("sweep", lambda deps: Rests())
prune = FanOut("prune", 3, lambda deps, shard: Rests())
notify = KeyedFanOut("notify", keys=keys, build_item=lambda deps, key: Rests(), gate=prune)
number = 7


def fails():
    raise OSError("no such disk")
"""
"""A package with background workers, one of each kind; and what is none."""


def install(
    folder: Path,
    distribution: str,
    entry_points: Mapping[str, str],
    modules: Mapping[str, str],
    workers: Mapping[str, str] | None = None,
) -> None:
    """What a package leaves in a folder for libraries, written by hand."""
    metadata = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    groups = {"drakkar.registry_providers": entry_points, "drakkar.workers": workers or {}}
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in names.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join([*lines, ""]))
    for name, source in modules.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)


@dataclass
class Drakkar:
    """The command `drakkar`, with the environment and the folder that it runs in."""

    folder: Path
    libraries: Path
    environ: dict[str, str] = field(default_factory=dict)
    started: list[Process] = field(default_factory=list)

    @property
    def cards(self) -> Path:
        return self.folder / "cards"

    def install(self, distribution: str, entry_points: Mapping[str, str], modules: Mapping[str, str]) -> None:
        install(self.libraries, distribution, entry_points, modules)

    def install_jobs(self, *names: str) -> None:
        """A package `jobs` that offers these names of `JOBS` as background workers."""
        install(self.libraries, "jobs", {}, {"jobs.py": JOBS}, {name: f"jobs:{name}" for name in names})

    def start(
        self,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        stdout: IO[str] | int = subprocess.PIPE,
    ) -> Process:
        process = subprocess.Popen(
            [DRAKKAR, *arguments],
            cwd=self.folder,
            env=self.environ | dict(environ or {}),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: str, **environ: str) -> "Ended":
        return end_of(self.start(*arguments, environ=environ))

    def start_worker(self, *arguments: str, options: str = "{}", **environ: str) -> Process:
        """A worker whose cards are in `cards`; `options` are those that make it slow, as JSON."""
        section = "DK_FLEET__REGISTRY__PLUGIN_OPTIONS"
        extra = {section: options, f"{section}__DIR": str(self.cards)}
        fixed = ["--provider=cardbox", "--worker-name=worker-1", "--port=0", "--log-level=error"]
        return self.start("run", *fixed, *arguments, environ=extra | environ)

    @contextmanager
    def running_worker(self, *arguments: str, options: str = "{}") -> "Iterator[tuple[Process, str]]":
        """A worker that runs, and the line that it printed; ended by force if the test left it running."""
        process = self.start_worker(*arguments, options=options)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(end_of(process))
        try:
            yield process, line
        finally:
            end_by_force(process)

    def cards_left(self) -> list[str]:
        return sorted(path.name for path in self.cards.glob("*.card"))


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that it ended with, without the name of the command before it."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].isprintable()
        assert lines[0].startswith("drakkar: ")
        return lines[0].removeprefix("drakkar: ")


def end_of(process: Process) -> Ended:
    """Wait for the end of a process; one that does not come is a failure."""
    try:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        raise AssertionError(f"it did not end; it wrote: {err}") from None
    assert "Traceback" not in err, err
    return Ended(process.returncode, out or "", err)


def end_by_force(process: Process) -> None:
    process.kill()
    process.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(0.002)


def hears_signals(process: Process) -> bool:
    """Whether SIGTERM has a handler in the process by now; before that, Python's own start is under way."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = next((line for line in status.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
