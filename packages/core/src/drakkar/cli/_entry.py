"""From the process's first moment to its exit status.

Little is imported at the top, so that the handlers for signals are there before anything takes time. Until a
command has started something of its own there is nothing to undo, and a signal ends the process on the spot:
an exception raised in the middle of somebody's import would end as a traceback, or be lost.
"""

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    # A terminal that is closed; whoever started us with `nohup` wants us to go on.
    *([] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` asks for and return the exit status: 0 well, 1 failed, 2 wrong usage or
    configuration. Whatever goes wrong is one line on standard error."""
    argv = sys.argv[1:] if argv is None else argv
    _leave_on_signals(argv)
    atexit.register(_skip_teardown)  # first, so that all other exit functions come before it
    _ending.status = _status_of(argv)
    return _ending.status


def _status_of(argv: Sequence[str]) -> int:
    from drakkar.errors import ConfigError, DrakkarError

    try:
        status = _run(argv)
        sys.stdout.flush()  # here, where a full disk can still be reported
    except ConfigError as error:
        return _failed(str(error), 2)
    except DrakkarError as error:
        return _failed(str(error), 1)
    except BrokenPipeError:  # the reader has seen enough
        forget_output()
        return 1
    except Exception as error:  # the last resort: a line for a person, a trace on request
        if os.environ.get("DK_DEBUG"):
            raise
        forget_output()
        hint = "set DK_DEBUG=1 to see where"
        return _failed(f"failed unexpectedly: {type(error).__name__}: {error}; {hint}", 1)
    return status


def _run(argv: Sequence[str]) -> int:
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not so when a test has put something else there
            stream.reconfigure(errors="backslashreplace")  # what the terminal cannot show is no error
    from drakkar.cli._parser import parse

    try:
        arguments = parse(argv)
    except SystemExit as exit_:  # argparse has printed a help text or the version
        return exit_.code if isinstance(exit_.code, int) else 0
    status: int = arguments.run(arguments)
    return status


class _Ending:
    """How the process is to end."""

    skips_teardown = False
    status = 1


_ending = _Ending()


def end_without_teardown() -> None:
    """Let the process end as soon as its threads and exit functions have, without taking the interpreter
    apart: no timer runs during that, and where signals are ignored, nothing but SIGKILL could end it."""
    _ending.skips_teardown = True


def _skip_teardown() -> None:
    if not _ending.skips_teardown:
        return
    from contextlib import suppress

    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # ValueError: it is closed
            stream.flush()
    os._exit(_ending.status)


def _open_closed_streams() -> None:
    # Started with a standard stream closed, the process would write into whatever it opens next.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - takes the lowest free number


def _leave_on_signals(argv: Sequence[str]) -> None:
    # A worker that is asked to stop has done as asked, however early; another command was interrupted.
    is_worker = bool(argv) and argv[0] == "run"

    def leave(number: int, _frame: FrameType | None) -> None:
        os._exit(0 if is_worker else 128 + number)

    for number in SIGNALS:
        signal.signal(number, leave)


def _failed(message: str, status: int) -> int:
    line = "".join(char if char.isprintable() else " " for char in " ".join(message.split()))
    print(f"drakkar: {line[:2000]}", file=sys.stderr)  # noqa: T201
    return status


def forget_output() -> None:
    """Drop what standard output holds, and will hold: it cannot be written, and the interpreter would say so
    at the end, in many lines."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
