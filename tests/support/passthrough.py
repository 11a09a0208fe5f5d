"""The process behind `support.mounts.passthrough`: shows one folder at another place, by FUSE.

    python passthrough.py SOURCE MOUNT_POINT CONTROL SHIFT_SECONDS TYPES

A file `CONTROL/<operation>` tells it to stop itself, or to answer with an error, at that operation; one named
`hide` tells what names a listing leaves out.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import mfusepy  # type: ignore[import-untyped]  # has none

_NS = 1_000_000_000
_PR_SET_PDEATHSIG = 1


def faulty(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(self: "Files", path: str, *arguments: Any) -> Any:
        self.misbehave(function.__name__, path)
        return function(self, path, *arguments)

    return wrapper


class Files(mfusepy.Operations):  # type: ignore[misc]  # of an untyped module
    use_ns = True

    def __init__(self, source: str, control: str, shift_seconds: float, types: bool) -> None:
        self._source = source
        self._control = Path(control)
        self._shift_ns = round(shift_seconds * _NS)
        self._types = types

    def misbehave(self, operation: str, path: str) -> None:
        try:
            rule = json.loads((self._control / operation).read_text())
        except FileNotFoundError:
            return
        if rule["name"] not in path:
            return
        rule["times"] -= 1
        if rule["times"] <= 0:
            (self._control / operation).unlink(missing_ok=True)
        else:
            (self._control / operation).write_text(json.dumps(rule))
        if "errno" in rule:
            raise mfusepy.FuseOSError(rule["errno"])
        os.kill(os.getpid(), signal.SIGSTOP)

    def hidden(self, name: str) -> bool:
        try:
            return (self._control / "hide").read_text() in name
        except FileNotFoundError:
            return False

    def at(self, path: str) -> Path:
        return Path(self._source + path)

    @faulty
    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = self.at(path).lstat()
        fields = ("st_ino", "st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_rdev")
        times = {f"st_{kind}time": getattr(found, f"st_{kind}time_ns") + self._shift_ns for kind in "amc"}
        return {field: getattr(found, field) for field in fields} | times

    @faulty
    def readdir(self, path: str, fh: int) -> Iterator[Any]:
        names = [inner.name for inner in self.at(path).iterdir() if not self.hidden(inner.name)]
        for name in [".", "..", *names]:
            found = self.at(f"{path}/{name}").lstat()
            yield name, {"st_ino": found.st_ino, "st_mode": found.st_mode if self._types else 0}, 0

    @faulty
    def open(self, path: str, flags: int) -> int:
        return os.open(self.at(path), flags & ~os.O_NOFOLLOW)

    @faulty
    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(self.at(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)

    @faulty
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    @faulty
    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    @faulty
    def fsync(self, path: str, datasync: int, fh: int) -> int:
        os.fsync(fh)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    @faulty
    def link(self, target: str, source: str) -> int:
        self.at(target).hardlink_to(self.at(source))
        return 0

    @faulty
    def rename(self, old: str, new: str) -> int:
        self.at(old).rename(self.at(new))
        return 0

    @faulty
    def unlink(self, path: str) -> int:
        self.at(path).unlink()
        return 0

    @faulty
    def mkdir(self, path: str, mode: int) -> int:
        self.at(path).mkdir(mode)
        return 0

    def rmdir(self, path: str) -> int:
        self.at(path).rmdir()
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        at = self.at(path)
        if times is None:
            os.utime(at, follow_symlinks=False)
        else:
            os.utime(at, ns=(times[0] - self._shift_ns, times[1] - self._shift_ns), follow_symlinks=False)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        self.at(path).chmod(mode)
        return 0


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not to outlive a test run that was killed
    source, mount_point, control, shift_seconds, types = sys.argv[1:]
    no_caches = {"attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0, "direct_io": True}
    files = Files(source, control, float(shift_seconds), types == "1")
    mfusepy.FUSE(files, mount_point, foreground=True, nothreads=True, use_ino=True, **no_caches)


if __name__ == "__main__":
    main()
