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

import pytest
from support.processes import wait_for
from support.repository import ROOT

LIMIT_SECONDS = 100


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

    def children(self) -> list[int]:
        """The processes that it has started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def worker(self, name: str) -> int:
        """The process of this worker."""
        [found] = [
            pid for pid in self.children() if f"\0{name}\0" in Path(f"/proc/{pid}/cmdline").read_text()
        ]
        return found

    def is_watching(self) -> bool:
        return "Seen online by" in self.read()

    def cards(self) -> list[Path]:
        return [*self.folder.glob("*/fleet/workers/*")]


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    command = ["setsid", "--ctty", sys.executable, "-m", "scripts.demo", *arguments]
    environ = {**os.environ, "TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=ROOT)
    os.close(theirs)
    made = Demo(process, folder, ours)
    started: list[int] = []
    try:
        yield made
    finally:
        with suppress(OSError):
            started = made.children()
        process.kill()
        process.wait()
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(ours)


def nothing_is_left(shown: Demo, children: list[int]) -> None:
    assert [*shown.folder.iterdir()] == []
    for pid in children:
        assert not Path(f"/proc/{pid}").exists()
    assert "Traceback" not in shown.read()


def test_ends_by_itself_after_the_given_time_with_the_final_table(tmp_path: Path, long: bool) -> None:
    with demo(tmp_path, "--seconds", "30" if long else "8") as shown:
        wait_for(shown.is_watching)
        children = shown.children()
        assert shown.wait() == 0, shown.read()
        text = shown.read()
        for n in (1, 2, 3):
            assert f"worker-{n} answers at http://127.0.0.1:" in text
        table = text[text.rindex("Seen online by") :]
        for others in ("worker-2, worker-3", "worker-1, worker-3", "worker-1, worker-2"):
            assert others in table
        cache = table[table.index("The summary in the cache") : table.index("The object store")]
        assert cache.count("worker-") > 1
        nothing_is_left(shown, children)


def test_fails_when_a_worker_dies_meanwhile(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "60") as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        children = shown.children()
        os.kill(shown.worker("worker-2"), signal.SIGKILL)
        assert shown.wait() != 0
        assert "worker-2 ended with status -9" in shown.read()
        nothing_is_left(shown, children)


def test_fails_when_a_worker_is_not_seen_by_the_others(tmp_path: Path, long: bool) -> None:
    if not long:
        pytest.skip("takes a minute: --long")
    with demo(tmp_path, "--seconds", "10") as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        children = shown.children()
        os.kill(shown.worker("worker-3"), signal.SIGSTOP)
        assert shown.wait() != 0
        text = shown.read()
        assert (
            "worker-3 was not seen online by both others" in text or "worker-3 ended with status -9" in text
        )
        assert "Traceback" not in text
        for pid in children:
            assert not Path(f"/proc/{pid}").exists()


def test_ends_cleanly_on_ctrl_c(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        children = shown.children()
        os.write(shown.terminal, b"\x03")
        assert shown.wait() == 0, shown.read()
        assert "took their cards along" in shown.read()
        nothing_is_left(shown, children)


def test_more_than_one_ctrl_c_leaves_nothing_behind_either(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        children = shown.children()
        for _ in range(5):
            os.write(shown.terminal, b"\x03")
            time.sleep(0.02)
        shown.wait()
        nothing_is_left(shown, children)


def test_ctrl_c_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        wait_for(lambda: bool(shown.children()))
        os.write(shown.terminal, b"\x03")
        children = shown.children()
        shown.wait()
        nothing_is_left(shown, children)


def test_ends_cleanly_when_it_is_told_to_stop(tmp_path: Path) -> None:
    with demo(tmp_path) as shown:
        wait_for(lambda: shown.is_watching() and len(shown.cards()) == 3)
        children = shown.children()
        shown.process.terminate()
        assert shown.wait() == 0, shown.read()
        nothing_is_left(shown, children)


def test_a_wrong_argument_is_one_message(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "x") as shown:
        assert shown.wait() == 2
        assert "--seconds" in shown.read()
        assert "Traceback" not in shown.read()
