"""The one shape of all four background workers: a round every so often, until asked to stop."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from drakkar.fleet.provider import EventLogger
from drakkar.supervisor.worker import RunContext

from objectstore.ledger import Ledger, Term
from objectstore.permit import Permit
from objectstore.tree import Tree


class Job(Protocol):
    async def round(self) -> None:
        """Do what there is to do now. Asks the permit before each side effect."""


MakeJob = Callable[[Tree, Permit, Term, EventLogger], Job]


class Rounds:
    """A `drakkar.supervisor.worker.Runner`."""

    def __init__(self, tree: Tree, interval_seconds: float, make_job: MakeJob) -> None:
        self._tree = tree
        self._interval_seconds = interval_seconds
        self._make_job = make_job

    async def run(self, ctx: RunContext) -> None:
        assert ctx.lease is not None  # none of our workers skips its lease
        permit = Permit(ctx.lease)
        term = await permit.in_thread(lambda: Term(Ledger(self._tree), self._tree, permit, ctx.logger))
        job = self._make_job(self._tree, permit, term, ctx.logger)
        while not ctx.yielding.is_set():
            await job.round()
            try:
                async with asyncio.timeout(self._interval_seconds):
                    await ctx.yielding.wait()
            except TimeoutError:
                pass
