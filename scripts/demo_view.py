"""What the demo sees, the workers and leases over HTTP and the store in its folder; and the tables of it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from objectstore.count import figures
from objectstore.tree import Tree
from rich.console import Group
from rich.table import Table

Row = dict[str, Any]


def is_led(lane: Row) -> bool:
    """Without a token its lease has gone, or is being given back."""
    return lane["status"] == "leading" and lane["token"] is not None


@dataclass(frozen=True)
class Answers:
    """What one worker said at one moment; empty what it did not answer."""

    workers: list[Row] = field(default_factory=list)
    lanes: list[Row] = field(default_factory=list)
    cached: dict[str, Row] = field(default_factory=dict)
    """What it has put into the cache for others, by key."""

    def leads(self) -> dict[str, int]:
        """The token of each lease that a run of this worker is at work under."""
        return {lane["lease"]: lane["token"] for lane in self.lanes if is_led(lane)}


@dataclass(frozen=True)
class Sample:
    """The fleet and the store, as good as at one moment."""

    answers: Mapping[str, Answers]
    leases: list[Row]
    figures: Row

    def seen_by(self, name: str) -> set[str]:
        """The workers that see `name` online, not counting itself."""
        return {
            other
            for other, answers in self.answers.items()
            if other != name and any(row["worker_name"] == name and row["online"] for row in answers.workers)
        }

    def summaries(self) -> dict[str, Row]:
        """The newest summary that each worker has read out of its cache, and says so."""
        found = {name: answers.cached.get(f"seen|{name}") for name, answers in self.answers.items()}
        return {name: summary for name, summary in found.items() if summary is not None}

    def read_from_others(self) -> list[str]:
        """The workers that have read what another one set."""
        return [name for name, summary in self.summaries().items() if summary["by"] != name]

    def leaders(self) -> dict[str, dict[str, int]]:
        """For each lease who is at work under it, and with which token."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for name, answers in self.answers.items():
            for lease, token in answers.leads().items():
                found[lease][name] = token
        return found

    def led(self) -> set[str]:
        """The background workers of which some part is led."""
        return {
            lane["name"]
            for each in self.answers.values()
            for lane in each.lanes
            if lane["status"] == "leading"
        }


class Watcher:
    """Asks the workers at `urls`, by name, and looks at the store in `folder`."""

    def __init__(self, urls: Mapping[str, str], folder: Path, client: httpx.Client) -> None:
        self._urls = urls
        self._tree = Tree(folder)
        self._tree.prepare()
        self._client = client
        self.led_by_two: set[str] = set()
        """Leases that two workers were at work under at once, ever."""

    def look(self) -> Sample:
        answers = {name: self._ask(name) for name in self._urls}
        leases: list[Row] = next(
            filter(None, (self._get(name, "leases", "leases") for name in self._urls)), []
        )
        sample = Sample(answers, leases, figures(self._tree))
        for lease, leaders in sample.leaders().items():
            if len(leaders) > 1 and self._still(lease, leaders):
                self.led_by_two.add(lease)
        return sample

    def _still(self, lease: str, leaders: Mapping[str, int]) -> bool:
        """Whether more than one is at work still. The workers were asked one after the other, and a lease may
        have changed hands in between; then the first has stopped by now."""
        now = (self._ask(name).leads().get(lease) == token for name, token in leaders.items())
        return sum(now) > 1

    def _ask(self, name: str) -> Answers:
        workers = self._get(name, "supervisor", "workers")
        lanes = [lane for each in workers for lane in each["lanes"]]
        rows = self._get(name, "peer/cache/changes?scopes=cluster", "rows")
        cached = {row["key"]: json.loads(row["value"]) for row in rows}
        return Answers(self._get(name, "workers"), lanes, cached)

    def _get(self, name: str, what: str, key: str | None = None) -> list[Row]:
        try:
            answer = self._client.get(f"{self._urls[name]}api/v1/{what}").raise_for_status().json()
        except httpx.HTTPError:
            return []
        rows: list[Row] = (answer if key is None else answer[key]) or []
        return rows


def show(sample: Sample) -> Group:
    return Group(_fleet(sample), _leases(sample.leases), _cache(sample), _store(sample.figures))


def _fleet(sample: Sample) -> Table:
    table = Table("Worker", "State", "Seen online by", "Leads", title="The fleet")
    for name, answers in sample.answers.items():
        own: Row = next((row for row in answers.workers if row["is_current"]), {})
        others = ", ".join(sorted(sample.seen_by(name))) or "nobody yet"
        table.add_row(name, own.get("state", "no answer"), others, _leads(answers))
    return table


def _leads(answers: Answers) -> str:
    """For example `gc 0 3, inventory`: the background workers, each with its shards or keys."""
    shards: dict[str, list[str]] = defaultdict(list)
    for lane in answers.lanes:
        if is_led(lane):
            shards[lane["name"]].append(lane["shard"])
    return (
        ", ".join(" ".join([name, *_without_dash(parts)]) for name, parts in sorted(shards.items()))
        or "nothing"
    )


def _without_dash(parts: Iterable[str]) -> list[str]:
    return [part for part in parts if part != "-"]


def _leases(rows: list[Row]) -> Table:
    table = Table("Lease", "Held by", "Token", "For", title="The leases")
    for row in rows:
        age = "" if row["age_seconds"] is None else f"{row['age_seconds']:.0f} s"
        table.add_row(row["name"], row["worker"] or "?", str(row["token"]), age)
    return table


def _cache(sample: Sample) -> Table:
    table = Table("Read by", "Objects", "Bytes", "Set by", title="The summary in the cache")
    for name, summary in sample.summaries().items():
        table.add_row(name, f"{summary['objects']:,}", f"{summary['bytes']:,}", summary["by"])
    return table


def _store(figures: Row) -> Table:
    table = Table(title="The object store")
    first, second = (f"{size / 1e6:.1f} MB" for size in figures["volumes"])
    columns = {
        "Objects": f"{figures['objects']:,}",
        "Chunks": f"{figures['chunks']:,}",
        "Volume 0": first,
        "Volume 1": second,
        "Expired": f"{figures['expired']:,}",
        "Collected": f"{figures['collected']:,}",
        "Moved": f"{figures['moved']:,}",
    }
    for head in columns:
        table.add_column(head, justify="right")
    table.add_row(*columns.values())
    return table
