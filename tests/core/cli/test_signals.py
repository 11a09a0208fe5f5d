"""An event loop that hears of signals, however many come while it is busy."""

import subprocess
import sys

BUSY = """
import asyncio, os, signal
from drakkar.cli._signals import run_until_signal

async def work(stopping: asyncio.Event) -> int:
    for _ in range(2000):  # more than the loop's wake-up socket holds
        os.kill(os.getpid(), signal.SIGTERM)
    await stopping.wait()
    return 7

raise SystemExit(run_until_signal(work))
"""


def test_a_loop_that_is_busy_while_signals_come_has_nothing_to_say() -> None:
    ended = subprocess.run([sys.executable, "-c", BUSY], check=False, capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (7, "")
