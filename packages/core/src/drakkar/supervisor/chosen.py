"""Which background workers there are, and which of them this process runs.

They come from code, by `register`, or from installed packages, by entry points of the group
`drakkar.workers`. The target of an entry point is a background worker or fan-out, or a callable without
arguments that returns one, for what is decided when the process starts (a number of shards, say). Entry
points that are not chosen are not imported. What code registers goes before what a package offers under the
same name.
"""

import difflib
from collections.abc import Iterable
from importlib.metadata import EntryPoint

from drakkar.errors import ConfigError
from drakkar.supervisor import installed
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.keyed import KeyedFanOut
from drakkar.supervisor.worker import BackgroundWorker

Supervised = BackgroundWorker | FanOut | KeyedFanOut

_registered: dict[str, Supervised] = {}


def register(worker: Supervised) -> Supervised:
    """Make `worker` known under its name, and return it.

    Raises `ValueError` for a name that another one has already.
    """
    if not isinstance(worker, BackgroundWorker | FanOut | KeyedFanOut):
        raise TypeError(f"register takes a background worker or a fan-out, not {type(worker).__name__}")
    if _registered.setdefault(worker.name, worker) is not worker:
        raise ValueError(f"there is a background worker {worker.name!r} already")
    return worker


def known_names() -> list[str]:
    """The names of all that could be chosen, sorted; imports nothing."""
    return sorted({*_registered, *installed.find()})


def choose(names: Iterable[str], also: Iterable[Supervised] = ()) -> list[Supervised]:
    """Return the background workers of these names, and then those of `also`, each once.

    Touches no store. Raises `ConfigError` for a name that does not exist or that two packages offer, for a
    package that cannot be imported, for two of one name, and for a gate that is not among them; `TypeError`
    for what is no background worker.
    """
    chosen: dict[int, Supervised] = {}
    for worker in (*(_find(name) for name in dict.fromkeys(names)), *also):
        if not isinstance(worker, BackgroundWorker | FanOut | KeyedFanOut):
            raise TypeError(f"a background worker or a fan-out is wanted, not {type(worker).__name__}")
        chosen[id(worker)] = worker
    check_together(chosen.values())
    return [*chosen.values()]


def check_together(workers: Iterable[Supervised]) -> None:
    """Raise `ConfigError` unless `workers` can run in one process: each has a name of its own, and the gate
    of each keyed fan-out is among them."""
    by_name: dict[str, Supervised] = {}
    for worker in workers:
        if worker.name in by_name:
            raise ConfigError(f"supervisor.workers: there are two background workers {worker.name!r}")
        by_name[worker.name] = worker
    for worker in by_name.values():
        gate = worker.gate if isinstance(worker, KeyedFanOut) else None
        if gate is None:
            continue
        chosen = by_name.get(gate.name)
        if not isinstance(chosen, FanOut):
            raise ConfigError(
                f"supervisor.workers: {worker.name} works only where its gate {gate.name} does;"
                f" choose {gate.name} as well"
            )
        if chosen.shards != gate.shards:
            raise ConfigError(
                f"supervisor.workers: {gate.name} has {chosen.shards} shards,"
                f" but {gate.shards} as the gate of {worker.name}"
            )


def _find(name: str) -> Supervised:
    if name in _registered:
        return _registered[name]
    offered = installed.find()
    entries = offered.get(name, ())
    if not entries:
        known = sorted({*_registered, *offered})
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        hint = f", did you mean {nearest[0]!r}?" if nearest else ""
        if " " in name and not nearest:
            hint = "; separate names with commas"
        raise ConfigError(
            f"supervisor.workers: there is no background worker {name!r}{hint}"
            f" (those that exist: {', '.join(known) or 'none'})"
        )
    if len(entries) > 1:
        raise ConfigError(
            f"supervisor.workers: {name!r} is offered more than once, by"
            f" {' and '.join(entry.value for entry in entries)}; uninstall all packages but one of these"
        )
    return _load(name, entries[0])


def _load(name: str, entry: EntryPoint) -> Supervised:
    made = installed.load(entry)
    if isinstance(made, BackgroundWorker | FanOut | KeyedFanOut) and made.name == name:
        return made
    what = type(made).__name__
    if isinstance(made, BackgroundWorker | FanOut | KeyedFanOut):
        what = f"one named {made.name!r}"
    raise ConfigError(
        f"supervisor.workers: {entry.value} must give a background worker named {name!r}, not {what}"
    )
