"""Background workers for pages to show, known to workers started with the environment of `install`."""

import asyncio
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.keyed import KeyedFanOut
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext, Runner
from support.commands import install as install_package

_KEYS: Final = "PAGE_JOBS_KEYS"
_ERROR: Final = "PAGE_JOBS_ERROR"


class Steady:
    """At work until it is cancelled."""

    async def run(self, ctx: RunContext) -> None:
        await asyncio.Event().wait()


class Failing:
    """Ends at once."""

    async def run(self, ctx: RunContext) -> None:
        raise RuntimeError(os.environ.get(_ERROR, "the volume is gone"))


def build(_deps: Dependencies) -> Runner:
    return Steady()


def build_part(_deps: Dependencies, _part: object) -> Runner:
    return Steady()


def build_failing(_deps: Dependencies) -> Runner:
    return Failing()


async def keys() -> Collection[str]:
    found: list[str] = json.loads(os.environ.get(_KEYS, '["photos", "invoices"]'))
    return found


indexer = BackgroundWorker("indexer", build)
sweeper = FanOut("sweeper", 6, build_part)
expiry = KeyedFanOut("expiry", keys, build_part)
reports = BackgroundWorker("reports", build_failing)


def install(folder: Path, *, names: Collection[str] = (), error: str = "") -> dict[str, str]:
    """The environment in which a worker knows `indexer`, `sweeper` (six shards), `expiry` (over `names`) and
    `reports`, which fails with `error`."""
    jobs = ("indexer", "sweeper", "expiry", "reports")
    install_package(folder, "page-jobs", {}, {}, {name: f"{__name__}:{name}" for name in jobs})
    tests = Path(__file__).parents[1]
    environment = {"PYTHONPATH": os.pathsep.join([str(folder), str(tests)])}
    return environment | ({_KEYS: json.dumps([*names])} if names else {}) | ({_ERROR: error} if error else {})
