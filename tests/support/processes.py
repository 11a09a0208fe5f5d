"""Fleets of real workers: `drakkar run` in processes of their own, asked over HTTP."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

DRAKKAR = str(Path(sys.executable).with_name("drakkar"))
START_SECONDS = 60.0
"""How long anything may take that has no limit of its own, on a machine that is busy with other things."""

HEARTBEAT_SECONDS = 0.4
OFFLINE_AFTER_SECONDS = 2.0
TIMEOUT_SECONDS = 1.0
QUICK = {
    "fleet.registry.heartbeat_seconds": HEARTBEAT_SECONDS,
    "fleet.registry.refresh_seconds": HEARTBEAT_SECONDS,
    "fleet.registry.offline_after_seconds": OFFLINE_AFTER_SECONDS,
    "fleet.registry.timeout_seconds": TIMEOUT_SECONDS,
    "ui.port": 0,
}

Row = dict[str, Any]


def wait_for(condition: Callable[[], bool], limit_seconds: float = START_SECONDS, what: str = "it") -> float:
    """Return how long it took until `condition` held; fails when it does not come to."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_seconds, f"{what} did not happen in {limit_seconds:g} s"
        time.sleep(0.01)
    return time.monotonic() - began


@dataclass
class WorkerProcess:
    """One `drakkar run`."""

    name: str
    """The name it was started with; empty when it was to make one itself."""

    process: subprocess.Popen[str]
    log: Path
    """What it writes to standard error: one JSON object a line."""

    token: str = ""
    url: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_it_runs(self) -> None:
        """Until it has printed its address, and answers there."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        found = re.search(r"https?://\S+", self.process.stdout.readline() if ready else "")
        assert found is not None, f"{self.name} did not start: {self.log.read_text()}"
        self.url = found.group()
        self.get("healthz")

    def get(self, path: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx.get(self.url + path, headers=headers, timeout=10, trust_env=False)

    def rows(self) -> dict[str, Row]:
        """What it answers to `GET /api/v1/workers`, by worker name."""
        listed: list[Row] = self.get("api/v1/workers").raise_for_status().json()
        return {row["worker_name"]: row for row in listed}

    def online(self) -> dict[str, bool | None]:
        return {name: row["online"] for name, row in self.rows().items()}

    def instance(self) -> str:
        instance: str = self.get("api/v1/identity").json()["instance"]
        return instance

    def metric(self, sample: str) -> float:
        """A sample of `GET /metrics`, named as it stands there, labels included."""
        for line in self.get("metrics").text.splitlines():
            if line.startswith(f"{sample} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"there is no {sample}")

    def events(self, event: str) -> list[dict[str, Any]]:
        """The fields of each line of this event that it has written so far."""
        lines = (json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, limit_seconds: float = START_SECONDS) -> int:
        """Its exit status."""
        return self.process.wait(limit_seconds)

    def stop(self, number: signal.Signals = signal.SIGTERM, limit_seconds: float = START_SECONDS) -> int:
        """Ask it to stop, and return its exit status."""
        self.send(number)
        return self.wait(limit_seconds)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def cpu_seconds(self) -> float:
        """The processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Fleet:
    """Workers that share a folder, with short periods."""

    folder: Path
    """Their storage folder; the cards are in `fleet/workers` in it, unless settings say otherwise."""

    home: Path
    started: list[WorkerProcess] = field(default_factory=list)

    @property
    def cards(self) -> Path:
        return self.folder / "fleet" / "workers"

    def card(self, name: str) -> Path:
        return self.cards / f"{name}.json"

    def card_names(self) -> list[str]:
        """The names of all files beside the cards, too; empty when there is no folder."""
        return sorted(path.name for path in self.cards.iterdir()) if self.cards.is_dir() else []

    def launch(
        self, name: str, settings: Mapping[str, object] | None = None, *, quick: bool = True, **more: str
    ) -> WorkerProcess:
        """Start a worker without waiting for it. Without `quick` nothing is configured but `settings`. `more`
        are environment variables."""
        values = ({**QUICK, "storage.dir": self.folder} if quick else {}) | dict(settings or {})
        environ = {
            key: os.environ[key] for key in ("PATH", "LANG", "COVERAGE_PROCESS_START") if key in os.environ
        }
        environ |= {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state")}
        for key, value in values.items():
            text = value if isinstance(value, str) else json.dumps(value, default=str).strip('"')
            environ["DK_" + key.replace(".", "__").upper()] = text
        if name:
            environ["DK_WORKER_NAME"] = name
        environ |= more
        log = self.home / f"{len(self.started)}-{name}.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [DRAKKAR, "run", "--log-level", "debug", "--log-format", "json"],
                cwd=self.home,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        worker = WorkerProcess(name, process, log, str(values.get("ui.auth_token", "")))
        self.started.append(worker)
        return worker

    def start(
        self, *names: str, settings: Mapping[str, object] | None = None, quick: bool = True
    ) -> list[WorkerProcess]:
        """Start workers side by side and return when all of them answer."""
        workers = [self.launch(name, settings, quick=quick) for name in names]
        for worker in workers:
            worker.wait_until_it_runs()
        return workers

    def start_one(self, name: str, settings: Mapping[str, object] | None = None) -> WorkerProcess:
        [worker] = self.start(name, settings=settings)
        return worker

    def end(self) -> None:
        """Kill what a test has left running; print what the workers logged, for who asks why it failed."""
        for worker in self.started:
            if worker.process.poll() is None:
                worker.process.kill()
        for worker in self.started:
            worker.process.communicate()
            print(f"--- {worker.log.name}, status {worker.process.returncode}")
            print(worker.log.read_text()[-20_000:])


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """A fleet that keeps its files in `folder`; no process of it outlives the `with`."""
    home = folder / "home"
    home.mkdir()
    made = Fleet(folder / "storage", home)
    try:
        yield made
    finally:
        made.end()


def until_all_see(
    workers: Iterable[WorkerProcess], names: Iterable[str], limit_seconds: float = START_SECONDS
) -> float:
    """Wait until each of `workers` sees exactly `names`, all online."""
    wanted = dict.fromkeys(names, True)
    watchers = [*workers]
    return wait_for(
        lambda: all(worker.online() == wanted for worker in watchers),
        limit_seconds,
        f"seeing {[*wanted]} online",
    )


def stop_all(workers: Iterable[WorkerProcess]) -> list[int]:
    """Stop workers side by side; return their exit statuses."""
    workers = [*workers]
    for worker in workers:
        worker.send(signal.SIGTERM)
    with ThreadPoolExecutor(len(workers)) as pool:
        return [*pool.map(lambda worker: worker.wait(), workers)]
