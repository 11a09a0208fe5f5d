"""The fleet as it changes, in a terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commands import Drakkar, end_of, wait_for
from support.scripted_server import Reply, reply, serving

ROW: dict[str, Any] = {"worker_name": "worker-1", "state": "running", "online": True}


def rows(*rows: Any) -> Reply:
    return reply(json.dumps(rows).encode())


def test_watching_as_json_prints_a_line_each_time_until_a_signal(drakkar: Drakkar) -> None:
    with serving(rows(ROW), rows(ROW | {"state": "draining"})) as server:
        process = drakkar.start("workers", "--url", server.url, "--watch", "--json")
        assert process.stdout is not None
        states = [json.loads(process.stdout.readline())[0]["state"] for _ in range(3)]
        process.send_signal(signal.SIGINT)
        ended = end_of(process)

    assert states == ["running", "draining", "draining"]
    assert (ended.status, ended.err) == (0, "")


@dataclass
class Terminal:
    """A command in a terminal of its own, and all that it has written so far."""

    process: subprocess.Popen[bytes]
    text: str = ""

    def shows(self, wanted: str) -> bool:
        return wanted in self.text


@contextmanager
def in_a_terminal(drakkar: Drakkar, *arguments: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("drakkar")), *arguments],
        cwd=drakkar.folder,
        env=drakkar.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "20"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    terminal = Terminal(process)

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other end is closed
                return
            terminal.text += data.decode(errors="replace")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        os.close(ours)


def test_watching_shows_each_change_and_ends_with_ctrl_c(drakkar: Drakkar) -> None:
    with (
        serving(rows(ROW), rows(ROW | {"state": "draining"})) as server,
        in_a_terminal(drakkar, "workers", "--url", server.url, "--watch") as terminal,
    ):
        wait_for(lambda: terminal.shows("running"))
        wait_for(lambda: terminal.shows("draining"))
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(20) == 0

    assert "Traceback" not in terminal.text
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")  # the cursor is back


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_watching_ends_at_once_while_a_worker_is_silent(number: int, drakkar: Drakkar) -> None:
    with (
        serving(rows(ROW), lambda send: time.sleep(60)) as server,
        in_a_terminal(drakkar, "workers", "--url", server.url, "--watch") as terminal,
    ):
        wait_for(lambda: len(server.requests) == 2)
        started = time.monotonic()
        terminal.process.send_signal(number)
        assert terminal.process.wait(20) == 0

    assert time.monotonic() - started < 15


def test_watching_goes_on_when_the_worker_is_away_for_a_while(drakkar: Drakkar) -> None:
    away = reply(b"", "503 Away")
    with (
        serving(rows(ROW), away, away, rows(ROW | {"state": "back"})) as server,
        in_a_terminal(drakkar, "workers", "--url", server.url, "--watch") as terminal,
    ):
        wait_for(lambda: terminal.shows("answers with status 503"))
        wait_for(lambda: terminal.shows("back"))
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(20) == 0


def test_watching_a_large_fleet_keeps_to_the_terminal(drakkar: Drakkar) -> None:
    fleet = [ROW | {"worker_name": f"worker-{number}"} for number in range(10_000)]
    with (
        serving(rows(*fleet)) as server,
        in_a_terminal(drakkar, "workers", "--url", server.url, "--watch") as terminal,
    ):
        wait_for(lambda: len(server.requests) == 3)
        assert "and 9986 more" in terminal.text
