"""File systems for tests: small ones, ones that go away, and ones that hang, fail, or tell another time.

Needed: the right to mount, `/dev/fuse`, and for `passthrough` the packages `fuse3` (Debian) and `mfusepy`
(PyPI). As root all of it works as it is. In a container: `--cap-add SYS_ADMIN --device /dev/fuse`. Without
root, run the tests in name spaces of their own:

    unshare --user --map-root-user --mount python -m pytest tests/filesystem

There only the tests about files of another owner fail, which need a second user. Where something is missing
a test fails and says what to install; it is never skipped.

What is mounted here is unmounted at the end of the `with`, whatever happened in it, also while it hangs; and
by `clean_up`, should a test be cut off so hard that it does not get there.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

_READY_SECONDS = 60.0
_SERVER = Path(__file__).with_name("passthrough.py")

Operation = Literal[
    "getattr", "readdir", "mkdir", "open", "create", "read", "write", "fsync", "link", "rename", "unlink"
]


_left: list[Callable[[], object]] = []


def clean_up() -> None:
    """Unmount all that is still mounted by functions of this module."""
    while _left:
        _left.pop()()


@contextmanager
def _undone(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` at the end, or in `clean_up` if there is no end."""
    _left.append(undo)
    try:
        yield
    finally:
        if undo in _left:
            _left.remove(undo)
            undo()


@contextmanager
def tmpfs(path: Path, size: str = "1m") -> Iterator[Path]:
    """A file system in memory at `path`, which is made; empty each time."""
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"cannot mount: {done.stderr.strip()}; run as root, see {__file__}")
    with _undone(partial(unmount, path)):
        yield path


@contextmanager
def bound(source: Path, path: Path) -> Iterator[Path]:
    """The folder `source` once more, at `path`, which is made: with the same files each time."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", str(source), str(path)], check=True)
    with _undone(partial(unmount, path)):
        yield path


def fill(folder: Path) -> Path:
    """Leave no room on the file system of `folder`; returns the file that takes it."""
    filling = folder / "filling"
    with suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filling


def unmount(path: Path) -> None:
    """Take away what is mounted at `path`, in use or not; nothing mounted there is fine."""
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True)


@dataclass(frozen=True)
class Passthrough:
    """A folder that shows `source`, served by a process of its own, one request after the other."""

    path: Path
    source: Path
    pid: int
    control: Path

    def hang(self) -> None:
        """From now on no request is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_until_hung()

    def hang_at(self, operation: Operation, name: str = "") -> None:
        """Hang at the next `operation` on a file whose name holds `name`: before it is carried out."""
        self._rule(operation, name=name, times=1)

    def fail_at(self, operation: Operation, number: int, name: str = "", times: int = 1_000_000) -> None:
        """Answer `operation` on such files with the error `number`."""
        self._rule(operation, name=name, times=times, errno=number)

    def hide(self, name: str) -> None:
        """Leave files whose name holds `name` out of listings; they can be opened all the same."""
        (self.control / "hide").write_text(name)

    def die(self) -> None:
        """The server is gone, the mount stays."""
        os.kill(self.pid, signal.SIGKILL)

    def go_on(self) -> None:
        """Answer again, until the next fault that was asked for."""
        os.kill(self.pid, signal.SIGCONT)

    def work(self) -> None:
        """Answer again, and forget the faults that were asked for."""
        for rule in self.control.iterdir():
            rule.unlink(missing_ok=True)
        self.go_on()

    def wait_until_hung(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not self.is_hung():
            assert time.monotonic() < deadline, "the file system goes on answering"
            time.sleep(0.002)

    def is_hung(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def _rule(self, operation: Operation, **rule: Any) -> None:
        new = self.control.with_name("rule")
        new.write_text(json.dumps(rule))
        new.rename(self.control / operation)


@contextmanager
def passthrough(
    source: Path, path: Path, *, shift_seconds: float = 0, types: bool = True
) -> Iterator[Passthrough]:
    """Show `source` at `path`; both are made.

    The file server's clock is `shift_seconds` ahead. Without `types` a listing of a folder does not say what
    kind of file each name is.
    """
    control = path.with_name(path.name + "-control") / "rules"
    for folder in (source, path, control):
        folder.mkdir(parents=True, exist_ok=True)
    arguments = [str(source), str(path), str(control), str(shift_seconds), str(int(types))]
    server = subprocess.Popen([sys.executable, str(_SERVER), *arguments], stderr=subprocess.PIPE, text=True)

    def end() -> None:
        server.kill()  # also when it is stopped; the requests that hang then fail
        server.communicate()
        unmount(path)

    with _undone(end):
        _wait_until_mounted(path, server)
        yield Passthrough(path, source, server.pid, control)


def _wait_until_mounted(path: Path, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not path.is_mount():
        if server.poll() is not None:
            told = server.communicate()[1].strip().rpartition("\n")[2]
            pytest.fail(f"no FUSE: {told}; apt-get install fuse3, pip install mfusepy, see {__file__}")
        assert time.monotonic() < deadline, "the file system was not mounted"
        time.sleep(0.01)
