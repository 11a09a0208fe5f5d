"""Real servers, each a process of its own with a fresh data folder, ended with the test that started it."""

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

START_SECONDS = 60.0
"""How long a server may take to answer, on a machine that is busy with other things."""


def program(name: str) -> str:
    """The path of a server's program; a test that needs one that is missing fails."""
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed: run ./scripts/install-servers"
    return found


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment, nor is given by the kernel to whoever asks for any.

    Taken at random below those: a server binds its port some time after it was found free.
    """
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(10_000, 32_000)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            found.add(port)
    return [*found]


class ServerProcess:
    """A server that can be killed, frozen and started again with the same arguments and data.

    `ready` tells whether it answers; a raise is a no.
    """

    def __init__(
        self, name: str, arguments: Sequence[str | Path], folder: Path, ready: Callable[[], bool]
    ) -> None:
        self._command = [program(name), *map(str, arguments)]
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.folder = folder
        """Where it runs; its output is in `output.log` there."""

        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> None:
        """Start it, and return when it answers. Without `wait` at once, for members that need each other."""
        assert not self.is_running
        self._close_output()
        self._output = (self.folder / "output.log").open("ab")
        self._process = subprocess.Popen(
            self._command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self.is_running, f"{self._command[0]} ended: {self.log()[-2000:]}"
            assert time.monotonic() < until, f"{self._command[0]} does not answer: {self.log()[-2000:]}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to end, as an operator does, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """It keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def log(self) -> str:
        return (self.folder / "output.log").read_text(errors="replace")

    def _answers(self) -> bool:
        try:
            return self._ready()
        except Exception:  # noqa: BLE001  whatever a client raises: not yet
            return False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._signal(number)
            if number is not signal.SIGKILL:
                self.thaw()
            try:
                self._process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._close_output()

    def _close_output(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output = None


@contextmanager
def running(server: ServerProcess) -> Iterator[ServerProcess]:
    """`server`, started; not running any more afterwards, whatever the test did to it."""
    try:
        server.start()
        yield server
    finally:
        server.kill()
