"""Tests that spend their time waiting for a server, done at the same time instead of one after the other."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

THREADS = 8


@contextmanager
def side_by_side(
    request: pytest.FixtureRequest, test: str, play: Callable[[Mapping[str, Any]], Coroutine[Any, Any, None]]
) -> Iterator[Callable[[pytest.Item], None]]:
    """Begin to run `play` for each test of that name which this session has chosen, with its parameters, each
    on an event loop and a thread of its own. Yields a function that waits for the one of a test, and raises
    what it raised."""
    with ThreadPoolExecutor(THREADS) as pool:
        futures: dict[str, Future[None]] = {
            item.nodeid: pool.submit(lambda params: asyncio.run(play(params)), item.callspec.params)
            for item in request.session.items
            if isinstance(item, pytest.Function) and item.originalname == test
        }
        yield lambda item: futures[item.nodeid].result()
        pool.shutdown(cancel_futures=True)
