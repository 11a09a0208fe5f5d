"""Three real workers that keep an object store in order while it is being filled, watched from outside.

`scripts/demo` sets it up and starts it.
"""

import argparse
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from objectstore.tree import Tree
from objectstore.verify import settle, verify
from rich.console import Console
from rich.live import Live

from scripts.demo_view import Sample, Watcher, show

WORKERS = ("worker-1", "worker-2", "worker-3")
BACKGROUND = ("gc", "lifecycle", "rebalance", "inventory")
START_SECONDS = 60
STOP_SECONDS = 30
QUIET_SECONDS = 4
"""How long before the end nothing is written to the store any more."""

TIDY_SECONDS = 20
"""How long the workers may take after the end to have cleared everything away."""

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
SETTINGS = {
    "DK_FLEET__REGISTRY__PROVIDER": "filesystem",
    "DK_FLEET__REGISTRY__HEARTBEAT_SECONDS": "1",
    "DK_FLEET__REGISTRY__REFRESH_SECONDS": "1",
    "DK_FLEET__REGISTRY__OFFLINE_AFTER_SECONDS": "4",
    "DK_SUPERVISOR__LEASES__TTL_SECONDS": "5",
    "DK_SUPERVISOR__LEASES__RENEW_SECONDS": "1",
    "DK_SUPERVISOR__LEASES__RETRY_SECONDS": "1",
    "DK_GC_SHARDS": "4",
    "DK_GC_INTERVAL": "1",
    "DK_GC_GRACE": "5",
    "DK_LIFECYCLE_INTERVAL": "1",
    "DK_REBALANCE_INTERVAL": "1",
    "DK_INVENTORY_INTERVAL": "1",
    "DK_BOARD_INTERVAL": "0.5",
    "DK_CACHE__ENABLED": "true",
    "DK_CACHE__FLUSH_INTERVAL_SECONDS": "0.5",
    "DK_FLEET__CACHE_EXCHANGE__INTERVAL_SECONDS": "1",
}


class DemoError(Exception):
    """What went wrong, for the person who watches."""


@dataclass(frozen=True)
class DemoWorker:
    """One worker process, and the address it gave."""

    name: str
    url: str
    process: subprocess.Popen[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Watch three workers share their work.")
    parser.add_argument("--seconds", type=float, help="end by itself after this long")
    seconds: float | None = parser.parse_args().seconds
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="drakkar-demo-") as folder:
        store = Path(folder) / "objects"
        try:
            with fleet(Path(folder), store) as workers:
                for worker in workers:
                    console.print(f"{worker.name} answers at {worker.url}")
                problems = watch(workers, store, console, seconds)
            problems += verify(Tree(store)).broken
        except KeyboardInterrupt:
            console.print("demo: interrupted; what had started is stopped", style="red")
            return 1
        except DemoError as error:
            console.print(f"demo: {error}", style="red", markup=False)
            return 1
    if not console.is_terminal:
        console.print()  # the table ends without one there
    console.print("All three stopped cleanly and took their cards along.")
    for problem in problems:
        console.print(f"demo: {problem}", style="red", markup=False)
    return 1 if problems else 0


@contextmanager
def fleet(folder: Path, store: Path) -> Iterator[list[DemoWorker]]:
    """Start the workers; stop them at the end, whatever happened, and see that their cards are gone."""
    processes: dict[str, subprocess.Popen[str]] = {}
    try:
        with interrupts_wait():
            for name in WORKERS:
                processes[name] = start_worker(name, folder, store)
        yield [
            DemoWorker(name, url_of(name, process, folder), process) for name, process in processes.items()
        ]
    finally:
        ignore_interrupts()  # a second Ctrl-C must not leave workers behind
        failures = stop(processes)
    failures += [f"its card is still there: {path.name}" for path in (folder / "fleet/workers").glob("*")]
    if failures:
        raise DemoError("; ".join(failures))


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let Ctrl-C wait for the end of this: a process must be known before it can be stopped."""
    waiting: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: waiting.append(number)) for number in INTERRUPTS
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if waiting:
        raise KeyboardInterrupt


def ignore_interrupts() -> None:
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)


def start_worker(name: str, folder: Path, store: Path) -> subprocess.Popen[str]:
    settings = SETTINGS | {"DK_STORAGE__DIR": str(folder), "DK_OBJECTSTORE_DIR": str(store)}
    workers = ",".join([*BACKGROUND, "board"])
    arguments = ("run", "--worker-name", name, "--port", "0", "--workers", workers)
    return start(name, folder, "drakkar", *arguments, settings=settings)


def start(
    name: str, folder: Path, command: str, *arguments: str, settings: Mapping[str, str]
) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("DK_")} | dict(settings)
    with log_file(name, folder).open("w") as log:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name(command)), *arguments],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # Ctrl-C is for this program, which then stops the workers
        )


def url_of(name: str, process: subprocess.Popen[str], folder: Path) -> str:
    """The address in the line that a worker prints once it runs."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    found = re.search(r"https?://\S+", process.stdout.readline() if ready else "")
    if found is None:
        last = log_file(name, folder).read_text().strip().splitlines()[-1:] or ["it said nothing"]
        raise DemoError(f"{name} did not start: {last[0]}")
    return found.group()


def stop(processes: dict[str, subprocess.Popen[str]], *statuses: int) -> list[str]:
    """Ask all to stop, wait for them, and tell who did not end with 0 or one of `statuses`."""
    failures = []
    for process in processes.values():
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for name, process in processes.items():
        try:
            status = process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if status not in (0, *statuses):
            failures.append(f"{name} ended with status {status}")
    return failures


def watch(workers: list[DemoWorker], store: Path, console: Console, seconds: float | None) -> list[str]:
    """Have the store filled, and show it and the fleet until the time is over or Ctrl-C; return what was not
    as it should be."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    urls = {worker.name: worker.url for worker in workers}
    with (
        Live(console=console, auto_refresh=False) as live,
        httpx.Client(timeout=2, trust_env=False) as client,
    ):
        watcher = Watcher(urls, store, client)

        def look_until(moment: float) -> Sample:
            while True:
                for worker in workers:
                    if worker.process.poll() is not None:
                        raise DemoError(f"{worker.name} ended with status {worker.process.returncode}")
                sample = watcher.look()
                live.update(show(sample), refresh=True)
                if time.monotonic() >= moment:
                    return sample
                time.sleep(0.5)

        try:
            with filler(store):
                look_until(end - QUIET_SECONDS)
            look_until(end)
            report = settle(Tree(store), TIDY_SECONDS)
            sample = look_until(0)
        except KeyboardInterrupt:
            ignore_interrupts()
            return [f"{lease} was led by two workers at once" for lease in sorted(watcher.led_by_two)]
    unseen = [name for name in WORKERS if len(sample.seen_by(name)) < len(WORKERS) - 1]
    return [
        *(f"{name} was not seen online by both others" for name in unseen),
        *(() if sample.read_from_others() else ("nobody has read what another worker put into the cache",)),
        *(f"nobody leads {name}" for name in BACKGROUND if name not in sample.led()),
        *(f"{lease} was led by two workers at once" for lease in sorted(watcher.led_by_two)),
        *report.broken,
        *report.left,
    ]


@contextmanager
def filler(store: Path) -> Iterator[None]:
    """Write, read and delete objects meanwhile."""
    processes: dict[str, subprocess.Popen[str]] = {}
    try:
        with interrupts_wait():
            command = ("objectstore", "--dir", str(store), "fill", "--pause", "0.1")
            processes["the filler"] = start("filler", store.parent, *command, settings={})
        yield
    finally:
        with interrupts_wait():
            failures = stop(processes, -signal.SIGTERM)  # so early that it heard no signals yet
    if failures:
        raise DemoError("; ".join(failures))


def log_file(name: str, folder: Path) -> Path:
    return folder / f"{name}.log"


if __name__ == "__main__":
    sys.exit(main())
