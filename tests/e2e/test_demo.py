"""The demo, as a person sees it: run, watched, interrupted, and with a worker lost."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.processes import wait_for
from support.repository import ROOT

LIMIT_SECONDS = 60


@dataclass
class Demo:
    """The demo under way, with a terminal of its own; its temporary files are in `folder`."""

    process: subprocess.Popen[bytes]
    folder: Path
    terminal: int
    output: bytes = b""

    def read(self) -> str:
        """Everything it has printed so far."""
        with suppress(OSError):  # nothing there yet, or nobody at the other end any more
            while data := os.read(self.terminal, 65536):
                self.output += data
        return self.output.decode(errors="replace")

    def wait(self) -> int:
        give_up_at = time.monotonic() + LIMIT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < give_up_at, f"it did not end: {self.read()}"
            self.read()  # else it would wait for a terminal that takes nothing more
            time.sleep(0.01)
        return self.process.returncode

    def workers(self) -> list[int]:
        """The processes that it has started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def is_watching(self) -> bool:
        return "Seen online by" in self.read()

    def cards(self) -> list[Path]:
        return [*self.folder.glob("*/fleet/workers/*")]


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    command = ["setsid", "--ctty", sys.executable, str(ROOT / "scripts" / "demo.py"), *arguments]
    environ = {**os.environ, "TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=folder)
    os.close(theirs)
    made = Demo(process, folder, ours)
    started: list[int] = []
    try:
        yield made
    finally:
        with suppress(OSError):
            started = made.workers()
        process.kill()
        process.wait()
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(ours)


def nothing_is_left(shown: Demo, workers: list[int]) -> None:
    assert [*shown.folder.iterdir()] == []
    for pid in workers:
        assert not Path(f"/proc/{pid}").exists()
    assert "Traceback" not in shown.read()


def test_ends_by_itself_after_the_given_time_with_the_final_table(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "8") as shown:
        wait_for(shown.is_watching)
        workers = shown.workers()
        assert len(workers) == 3
        assert shown.wait() == 0
        text = shown.read()
        for n in (1, 2, 3):
            assert f"worker-{n} answers at http://127.0.0.1:" in text
        table = text[text.rindex("Seen online by") :]
        for others in ("worker-2, worker-3", "worker-1, worker-3", "worker-1, worker-2"):
            assert others in table
        nothing_is_left(shown, workers)


def test_fails_when_a_worker_dies_meanwhile(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "60") as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        workers = shown.workers()
        os.kill(workers[1], signal.SIGKILL)
        assert shown.wait() != 0
        assert "worker-2 ended with status -9" in shown.read()
        nothing_is_left(shown, workers)


def test_fails_when_a_worker_is_not_seen_by_the_others(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "8") as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        workers = shown.workers()
        os.kill(workers[2], signal.SIGSTOP)
        wait_for(
            lambda: (
                "stopped cleanly" in shown.read()
                or "not seen online" in shown.read()
                or finish(shown, workers[2])
            )
        )
        assert shown.wait() != 0
        nothing_is_left(shown, workers)


def finish(shown: Demo, frozen: int) -> bool:
    """Let a frozen worker go on once the demo wants it to stop."""
    status = Path(f"/proc/{frozen}/status").read_text()
    pending = next(line for line in status.splitlines() if line.startswith("ShdPnd"))
    if int(pending.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
        os.kill(frozen, signal.SIGCONT)
        return True
    return False


def test_ends_cleanly_on_ctrl_c(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        workers = shown.workers()
        os.write(shown.terminal, b"\x03")
        assert shown.wait() == 0
        assert "took their cards along" in shown.read()
        nothing_is_left(shown, workers)


def test_a_second_ctrl_c_leaves_nothing_behind_either(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        workers = shown.workers()
        for _ in range(5):
            os.write(shown.terminal, b"\x03")
            time.sleep(0.02)
        assert shown.wait() == 0
        nothing_is_left(shown, workers)


def test_ctrl_c_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        wait_for(lambda: len(shown.workers()) == 3)
        workers = shown.workers()
        os.write(shown.terminal, b"\x03")
        shown.wait()
        nothing_is_left(shown, workers)


def test_ends_cleanly_when_it_is_told_to_stop(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        workers = shown.workers()
        shown.process.terminate()
        assert shown.wait() == 0
        nothing_is_left(shown, workers)


def test_says_why_a_worker_does_not_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with demo(tmp_path, "--seconds", "x") as shown:
        assert shown.wait() == 2
        assert "--seconds" in shown.read()
        assert "Traceback" not in shown.read()
