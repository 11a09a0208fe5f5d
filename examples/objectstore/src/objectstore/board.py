"""`board`: has every worker know the newest summary, which the leader of `inventory` has put into the cache.

What a worker has seen it puts there as well, so that one can look from outside who knows what.
"""

import asyncio
from typing import Any, Final

from drakkar.supervisor.worker import RunContext, SharedCache

SUMMARY: Final = "summary"
SEEN: Final = "seen|"
LASTS_SECONDS: Final = 60.0


def publish(cache: SharedCache, worker: str, summary: dict[str, Any]) -> None:
    """Let all workers of the cluster know."""
    short = {"objects": summary["objects"], "bytes": summary["bytes"], "by": worker}
    cache.set(SUMMARY, short, ttl=LASTS_SECONDS, scope="cluster")


class Board:
    """A `drakkar.supervisor.worker.Runner` without a lease."""

    def __init__(self, cache: SharedCache | None, worker: str, interval_seconds: float) -> None:
        self._cache = cache
        self._worker = worker
        self._interval_seconds = interval_seconds

    async def run(self, ctx: RunContext) -> None:
        while not ctx.yielding.is_set():
            if self._cache is not None and (summary := await self._cache.get(SUMMARY)) is not None:
                self._cache.set(f"{SEEN}{self._worker}", summary, ttl=LASTS_SECONDS, scope="cluster")
            await asyncio.sleep(self._interval_seconds)
