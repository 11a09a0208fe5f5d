"""Three real workers on the filesystem provider, watched from outside. `scripts/demo` sets it up."""

import argparse
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.live import Live
from rich.table import Table

WORKERS = ("worker-1", "worker-2", "worker-3")
START_SECONDS = 60
STOP_SECONDS = 30
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
SETTINGS = {
    "DK_FLEET__REGISTRY__PROVIDER": "filesystem",
    "DK_FLEET__REGISTRY__HEARTBEAT_SECONDS": "1",
    "DK_FLEET__REGISTRY__REFRESH_SECONDS": "1",
    "DK_FLEET__REGISTRY__OFFLINE_AFTER_SECONDS": "4",
}

Row = dict[str, Any]


class DemoError(Exception):
    """What went wrong, for the person who watches."""


@dataclass(frozen=True)
class DemoWorker:
    """One worker process, and the address it gave."""

    name: str
    url: str
    process: subprocess.Popen[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Watch three workers see each other.")
    parser.add_argument("--seconds", type=float, help="end by itself after this long")
    seconds: float | None = parser.parse_args().seconds
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="drakkar-demo-") as folder:
        try:
            with fleet(Path(folder)) as workers:
                for worker in workers:
                    console.print(f"{worker.name} answers at {worker.url}")
                seen_by = watch(workers, console, seconds)
        except KeyboardInterrupt:
            console.print("demo: interrupted; what had started is stopped", style="red")
            return 1
        except DemoError as error:
            console.print(f"demo: {error}", style="red", markup=False)
            return 1
    console.print("All three stopped cleanly and took their cards along.")
    unseen = [name for name in WORKERS if len(seen_by.get(name, ())) < len(WORKERS) - 1]
    if seconds is not None and unseen:
        console.print(f"demo: not seen online by both others: {', '.join(unseen)}", style="red")
        return 1
    return 0


@contextmanager
def fleet(folder: Path) -> Iterator[list[DemoWorker]]:
    """Start the workers; stop them at the end, whatever happened, and see that their cards are gone."""
    processes: dict[str, subprocess.Popen[str]] = {}
    try:
        with interrupts_wait():
            for name in WORKERS:
                processes[name] = start(name, folder)
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


def start(name: str, folder: Path) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("DK_")}
    environ |= SETTINGS | {"DK_STORAGE__DIR": str(folder)}
    command = [str(Path(sys.executable).with_name("drakkar")), "run", "--worker-name", name, "--port", "0"]
    with log_file(name, folder).open("w") as log:
        return subprocess.Popen(
            command,
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


def stop(processes: dict[str, subprocess.Popen[str]]) -> list[str]:
    """Ask all to stop, wait for them, and tell who did not end cleanly."""
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
        if status != 0:
            failures.append(f"{name} ended with status {status}")
    return failures


def watch(workers: list[DemoWorker], console: Console, seconds: float | None) -> dict[str, set[str]]:
    """Show the fleet until the time is over or Ctrl-C; return who was seen online by whom at the end."""
    end = None if seconds is None else time.monotonic() + seconds
    seen_by: dict[str, set[str]] = {}
    with Live(console=console, auto_refresh=False) as live, httpx.Client(timeout=2) as client:
        try:
            while end is None or time.monotonic() < end:
                for worker in workers:
                    if worker.process.poll() is not None:
                        raise DemoError(f"{worker.name} ended with status {worker.process.returncode}")
                answers = {worker.name: ask(client, worker) for worker in workers}
                seen_by = {
                    name: {
                        other for other, rows in answers.items() if other != name and is_online(name, rows)
                    }
                    for name in WORKERS
                }
                live.update(table(answers, seen_by), refresh=True)
                time.sleep(0.5)
        except KeyboardInterrupt:
            ignore_interrupts()
    return seen_by


def ask(client: httpx.Client, worker: DemoWorker) -> list[Row]:
    try:
        rows: list[Row] = client.get(f"{worker.url}api/v1/workers").raise_for_status().json()
    except httpx.HTTPError:
        return []
    return rows


def is_online(name: str, rows: list[Row]) -> bool:
    return any(row["worker_name"] == name and row["online"] is True for row in rows)


def table(answers: dict[str, list[Row]], seen_by: dict[str, set[str]]) -> Table:
    result = Table("Worker", "State", "Version", "Address", "Seen online by", title="The fleet")
    own = {name: next((row for row in rows if row["is_current"]), {}) for name, rows in answers.items()}
    for name, row in own.items():
        others = ", ".join(sorted(seen_by[name])) or "nobody yet"
        result.add_row(name, row.get("state", "no answer"), row.get("version"), row.get("url"), others)
    return result


def log_file(name: str, folder: Path) -> Path:
    return folder / f"{name}.log"


if __name__ == "__main__":
    sys.exit(main())
