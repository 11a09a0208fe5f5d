"""A copy of this process, made as `multiprocessing` makes it by its start method `fork`."""

import asyncio
import multiprocessing
import os
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from drakkar.fleet.card import Card
from drakkar.fleet.provider import RegistryProvider
from drakkar.leases.backend import Lease, LeaseBackend
from drakkar.leases.testkit import make_context

_SECONDS: Final = 30.0


def in_a_fork(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` in an event loop of the copy's own, and see the copy end; fails unless `work` returned."""

    def run() -> None:
        asyncio.run(work())
        os._exit(0)  # at once: an orderly exit joins threads of pools, and this may be the copy of one

    child = multiprocessing.get_context("fork").Process(target=run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, none of which the copy needs
        child.start()
    child.join(_SECONDS)
    if child.exitcode is None:
        child.kill()
        child.join()
    assert child.exitcode == 0


async def use_provider(provider: RegistryProvider, card: Card) -> None:
    """For the copy: every call is refused, and a stop is not."""
    await _refused(
        provider.publish(card),
        provider.list(),
        provider.withdraw(card["worker"], card["instance"]),
    )
    await provider.stop()


async def use_leases(backend: LeaseBackend, lease: Lease) -> None:
    """For the copy: every call is refused, and a stop is not."""
    await _refused(
        backend.start(make_context("worker-1")),
        backend.acquire(lease.name),
        backend.renew([lease]),
        backend.release(lease.name),
        backend.release(lease.name, lease.token),
        backend.wait([lease.name], 1),
        backend.list(),
    )
    await backend.stop()


async def _refused(*calls: Awaitable[object]) -> None:
    for call in calls:
        told = ""
        try:
            await call
        except RuntimeError as error:
            told = str(error)
        assert "forked copy" in told  # and not for want of an event loop
