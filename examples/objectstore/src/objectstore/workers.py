"""The five background workers, as entry points of the group `drakkar.workers`.

Each entry point is a function that reads its knobs from the environment when the process starts, and raises
`ValueError` for one that does not hold. A run reads them again: runs get what their process was started with.
"""

import math
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from drakkar.clock import SystemClock
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.keyed import KeyedFanOut
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, Runner

from objectstore.balance import Balance
from objectstore.board import Board, publish
from objectstore.collect import Collect, Unfinished
from objectstore.count import Count
from objectstore.expire import Expire
from objectstore.files import in_thread
from objectstore.rounds import Rounds
from objectstore.tree import Tree

ROOT: Final = "DK_OBJECTSTORE_DIR"
MAX_SHARDS: Final = 1024
_SHARDS: Final = {"GC": 1, "REBALANCE": 2}
"""Where `DK_…_SHARDS` does not say."""


def gc() -> FanOut:
    """`DK_GC_SHARDS` shards of a round every `DK_GC_INTERVAL` seconds; uploads that stand still for
    `DK_GC_GRACE` seconds are taken for dead."""
    _tree()
    _interval("GC")
    _gc_grace()
    return FanOut("gc", _shards("GC"), _gc)


def lifecycle() -> KeyedFanOut:
    """A lease for each bucket, held where gc's shard is; a round every `DK_LIFECYCLE_INTERVAL` seconds."""
    return KeyedFanOut(
        "lifecycle", _buckets, _lifecycle, gate=gc(), keys_seconds=max(1.0, _interval("LIFECYCLE"))
    )


def rebalance() -> FanOut:
    """`DK_REBALANCE_SHARDS` shards of a round every `DK_REBALANCE_INTERVAL` seconds."""
    _tree()
    _interval("REBALANCE")
    return FanOut("rebalance", _shards("REBALANCE"), _rebalance)


def inventory() -> BackgroundWorker:
    """One summary of the whole, every `DK_INVENTORY_INTERVAL` seconds."""
    _tree()
    _interval("INVENTORY")
    return BackgroundWorker("inventory", _inventory)


def board() -> BackgroundWorker:
    """In every process: what the newest summary is, looked up every `DK_BOARD_INTERVAL` seconds."""
    _interval("BOARD")
    return BackgroundWorker("board", _board, skip_lease=True)


def _gc(_: Dependencies, shard: int) -> Runner:
    shards, grace = _shards("GC"), _gc_grace()
    return Rounds(
        _tree(),
        _interval("GC"),
        lambda tree, permit, term, logger: Collect(
            tree, permit, term, logger, shard, shards, Unfinished(tree, grace, SystemClock())
        ),
    )


async def _buckets() -> Iterable[str]:
    return await in_thread(_tree().buckets)


def _lifecycle(_: Dependencies, bucket: str) -> Runner:
    return Rounds(
        _tree(),
        _interval("LIFECYCLE"),
        lambda tree, permit, term, _logger: Expire(tree, permit, term, bucket),
    )


def _rebalance(_: Dependencies, shard: int) -> Runner:
    shards = _shards("REBALANCE")
    return Rounds(
        _tree(),
        _interval("REBALANCE"),
        lambda tree, permit, term, logger: Balance(tree, permit, term, logger, shard, shards),
    )


def _inventory(deps: Dependencies) -> Runner:
    def announce(summary: dict[str, Any]) -> None:
        if deps.cache is not None:
            publish(deps.cache, deps.settings.worker_name, summary)

    return Rounds(
        _tree(),
        _interval("INVENTORY"),
        lambda tree, permit, term, _logger: Count(tree, permit, term, announce),
    )


def _board(deps: Dependencies) -> Runner:
    return Board(deps.cache, deps.settings.worker_name, _interval("BOARD"))


def _tree() -> Tree:
    root = os.environ.get(ROOT, "")
    if not root:
        raise ValueError(f"{ROOT} must name the folder of the object store")
    return _tree_at(Path(root).absolute())


@cache
def _tree_at(root: Path) -> Tree:
    # One for all runs of this process, since it remembers the manifests that it has read.
    tree = Tree(root)
    tree.prepare()
    return tree


def _shards(worker: str) -> int:
    name = f"DK_{worker}_SHARDS"
    text = os.environ.get(name, "") or str(_SHARDS[worker])
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_SHARDS):
        raise ValueError(f"{name} ({text:.20}) must be a whole number from 1 to {MAX_SHARDS}")
    return int(text)


def _interval(worker: str) -> float:
    return _seconds(f"DK_{worker}_INTERVAL", 30.0)


def _gc_grace() -> float:
    return _seconds("DK_GC_GRACE", 60.0)


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name, "") or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"{name} ({text:.20}) must be a number of seconds above 0")
    return seconds
