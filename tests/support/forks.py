"""A copy of this process, made as `multiprocessing` makes it by its start method `fork`."""

import asyncio
import multiprocessing
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final

_SECONDS: Final = 30.0


def in_a_fork(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` in an event loop of the copy's own, and see the copy end; fails unless `work` returned."""
    child = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(work()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, none of which the copy needs
        child.start()
    child.join(_SECONDS)
    if child.exitcode is None:
        child.kill()
        child.join()
    assert child.exitcode == 0
