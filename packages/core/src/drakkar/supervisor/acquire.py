"""Asking for a lease for as long as it is wanted, and leaving nothing behind when it no longer is."""

import asyncio
from collections.abc import Callable

from drakkar.leases.candidates import AfterRefusal, BeforeAttempt
from drakkar.leases.handle import LeaseHandle
from drakkar.leases.keeper import LeaseKeeper
from drakkar.supervisor.waking import Wake


async def acquire(
    keeper: LeaseKeeper,
    lease: str,
    before_attempt: BeforeAttempt,
    after_refusal: AfterRefusal | None,
    unwanted: Callable[[], bool],
    wake: Wake,
) -> LeaseHandle | None:
    """Return the lease; or None as soon as it is `unwanted()`, which is looked at when `wake` rings, with
    nothing held or asked for any more."""
    acquiring = asyncio.create_task(
        keeper.acquire(lease, before_attempt, after_refusal), name=f"drakkar acquire {lease}"
    )
    acquiring.add_done_callback(lambda _: wake.ring())
    try:
        await wake.until(lambda: acquiring.done() or unwanted())
        if not acquiring.done():
            acquiring.cancel()
            await asyncio.wait({acquiring})
    except asyncio.CancelledError:
        acquiring.cancel()
        acquiring.add_done_callback(lambda task: _abandon(keeper, task))
        raise
    if acquiring.cancelled():
        if unwanted():
            return None
        raise RuntimeError("the acquire was cancelled by somebody else")
    handle = acquiring.result()
    if unwanted():
        await keeper.release(handle)
        return None
    return handle


def _abandon(keeper: LeaseKeeper, acquiring: asyncio.Task[LeaseHandle]) -> None:
    if not acquiring.cancelled() and acquiring.exception() is None:
        keeper.abandon(acquiring.result())
