"""Single files in an open folder: how they are opened, written and deleted. Every function here blocks."""

import os
from contextlib import suppress
from typing import Final

CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe that lies there, or took the place of a file after a look at its type, must not
# block.
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
READ_WRITE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_all(file: int, data: bytes) -> None:
    """Write all of `data` to the opened file, also where the system takes a part of it at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def remove(folder: int, name: str) -> None:
    """Delete the file if that is possible; somebody else may have been faster."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)
