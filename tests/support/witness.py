"""A witness of real processes: background workers that write down, every 50 ms, under which lease, in which
process and with which token they are at work; and what must be true of that.

`install` makes them known to workers started with the environment that it returns.
"""

import asyncio
import contextlib
import itertools
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext, Runner
from support.commands import install as install_package

SHARDS = 12
EVERY_SECONDS = 0.05
CLEAN_UP_SECONDS = 0.15
_LOG = "WITNESS_LOG"


class Witnessed:
    """At work until it is cancelled, and a little longer: its clean-up is work, too."""

    def __init__(self) -> None:
        self._log = os.open(os.environ[_LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def run(self, ctx: RunContext) -> None:
        try:
            while True:
                self._write(ctx)
                await asyncio.sleep(EVERY_SECONDS)
        finally:
            self._write(ctx)
            await asyncio.sleep(CLEAN_UP_SECONDS)
            self._write(ctx)
            os.close(self._log)

    def _write(self, ctx: RunContext) -> None:
        assert ctx.lease is not None
        line = f"{ctx.lease.name} {os.getpid()} {ctx.lease.token} {time.monotonic():.3f}\n"
        os.write(self._log, line.encode())  # appended as a whole: the order of lines is that of events


class Stubborn(Witnessed):
    """Its clean-up never ends, and goes on writing."""

    async def run(self, ctx: RunContext) -> None:
        while True:
            self._write(ctx)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(EVERY_SECONDS)


class Parent:
    """Has its work done by a child process, started as the documentation says."""

    async def run(self, ctx: RunContext) -> None:
        assert ctx.lease is not None
        script = (
            "import os, sys, time\n"
            "log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)\n"
            "while True:\n"
            "    os.write(log, f'{sys.argv[2]} {time.monotonic():.3f}\\n'.encode())\n"
            f"    time.sleep({EVERY_SECONDS})\n"
        )
        who = f"{ctx.lease.name} {os.getpid()} {ctx.lease.token}"
        command = ("setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-c", script)
        child = await asyncio.create_subprocess_exec(*command, os.environ[_LOG], who)
        try:
            await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()


def build(_deps: Dependencies) -> Runner:
    return Witnessed()


def build_parent(_deps: Dependencies) -> Runner:
    return Parent()


def build_stubborn(_deps: Dependencies) -> Runner:
    return Stubborn()


def build_shard(_deps: Dependencies, _shard: int) -> Runner:
    return Witnessed()


split = FanOut("split", SHARDS, build_shard)
sole = BackgroundWorker("sole", build)
stubborn = BackgroundWorker("stubborn", build_stubborn)
parent = BackgroundWorker("parent", build_parent)


def install(folder: Path, log: Path) -> dict[str, str]:
    """The environment in which a worker knows `split`, twelve shards, `sole`, `stubborn` and `parent`, which
    write to `log`."""
    names = ("split", "sole", "stubborn", "parent")
    install_package(folder, "witness", {}, {}, {name: f"{__name__}:{name}" for name in names})
    tests = Path(__file__).parents[1]
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(tests)]), _LOG: str(log)}


@dataclass
class Term:
    """The work of one process under one token."""

    pid: int
    token: int
    times: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class HandOver:
    lease: str
    old_pid: int
    at: float
    """When the next term began."""

    seconds: float
    """How long nobody was at work."""


@dataclass
class Account:
    """What the log says: by lease, the terms in the order in which they began."""

    terms: dict[str, list[Term]]
    faults: list[str]

    def hand_overs(self) -> Iterator[HandOver]:
        for lease, terms in self.terms.items():
            for old, new in itertools.pairwise(terms):
                yield HandOver(lease, old.pid, new.times[0], new.times[0] - old.times[-1])

    def longest_silence(self) -> float:
        """Within terms: how long one that was at work wrote nothing."""
        return max(
            later - earlier
            for terms in self.terms.values()
            for term in terms
            for earlier, later in itertools.pairwise(term.times)
        )


def read(log: Path) -> Account:
    """Faults are: a line of an older term after one of a younger, a token that went back, a token of two."""
    terms: dict[str, list[Term]] = defaultdict(list)
    faults = []
    for number, line in enumerate(log.read_text().splitlines(), 1):
        lease, pid, token, at = line.rsplit(" ", 3)
        of_lease = terms[lease]
        last = of_lease[-1] if of_lease else None
        if last is None or int(token) > last.token:
            of_lease.append(last := Term(int(pid), int(token)))
        if (last.pid, last.token) != (int(pid), int(token)):
            faults.append(f"line {number}: {line}, while token {last.token} is at work in {last.pid}")
        else:
            last.times.append(float(at))
    return Account(dict(terms), faults)
