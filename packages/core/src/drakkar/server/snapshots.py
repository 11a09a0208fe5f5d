"""What the pages show, part by part: made once for all streams, only when it changed, and only while somebody
looks.

A part is always sent whole, so that a reader who missed some versions needs the newest alone. Times in it are
absolute, or counted from its `at_ts`: it stays true while it gets older, and the page counts on by itself.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from drakkar.clock import Clock
from drakkar.masking import mask_text
from drakkar.server.fleet_api import FleetView, Row, in_order, row_slices
from drakkar.server.history_api import history_answer
from drakkar.server.leases_api import LeaseListing, LeasesView, supervisor_answer
from drakkar.server.messages import frame, in_slices, to_json

LOOK_SECONDS: Final = 0.5
"""How often a change is looked for."""

LEASES_SECONDS: Final = 3.0
"""How often the leases are read from the store, for all streams together."""

_MOVED_SECONDS: Final = 0.5
"""By how much a time must differ to be another one: it is computed anew from an age each time."""

_WORKERS_SHARE: Final = 20
"""The list of workers is made again, without other news, after so many times as long as it took: in a fleet
of ten thousand that is work."""


class Snapshots:
    """The parts of one worker, numbered by one sequence: what is newer than a number is what a reader of that
    number has missed."""

    def __init__(
        self, view: FleetView, leases: LeasesView | None, listing: LeaseListing | None, clock: Clock
    ) -> None:
        self._view = view
        self._leases = leases
        self._listing = listing
        self._clock = clock
        self._looking = asyncio.Lock()
        self._sequence = 0
        self._messages: dict[str, tuple[int, bytes]] = {}
        self._marks: dict[str, object] = {}
        self._looked_at = self._read_at = self._workers_due = -math.inf
        self._rows: list[Row] = []
        self._seen: list[float | None] = []
        self._workers_news: tuple[str, ...] = ()
        self._listing_shown: object = None
        self._reading: asyncio.Task[dict[str, Any]] | None = None
        self.watchers = 0
        """How many look."""

    @property
    def instance(self) -> str:
        """Whose sequence it is: another one after a restart."""
        return self._view.served.identity.instance

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Somebody looks for as long as this lasts. When the leases have been read next they are told anew,
        even if they are as before: who comes back does not know that."""
        self.watchers += 1
        if self._listing is not None:
            self._marks.pop("leases", None)
        try:
            yield
        finally:
            self.watchers -= 1
            reading = self._reading
            if self.watchers == 0:
                for known in (self._messages, self._marks):
                    known.pop("leases", None)  # too old for the next one who looks
                self._read_at, self._reading = -math.inf, None
                if reading is not None:
                    reading.cancel()
                    await asyncio.wait({reading})

    def newer_than(self, number: int) -> list[tuple[int, bytes]]:
        """The parts that changed after `number`, oldest first, as messages with their own numbers."""
        return sorted(message for message in self._messages.values() if message[0] > number)

    def hello(self, login: bool) -> bytes:
        """The first message to everybody: who speaks, its time of day, and whether there is a login."""
        own = self._view.served.identity
        data = {"worker": own.worker, "instance": own.instance, "version": own.version, "login": login}
        return frame("hello", to_json({**data, "now_ts": self._view.now_ts()}))

    def beat(self) -> bytes:
        """A message that tells that the connection lives, and the time of day."""
        return frame("beat", to_json({"now_ts": self._view.now_ts()}))

    async def look(self) -> None:
        """Bring the parts up to date, unless that was done a moment ago for another stream. Reads memory
        only; the leases come when the store has answered. A cancellation leaves what was done so far."""
        async with self._looking:
            now = self._clock.elapsed()
            if now - self._looked_at < LOOK_SECONDS:
                return
            self._look_at_registry()
            self._look_at_supervisor()
            self._look_at_history()
            self._look_at_leases(now)
            await self._look_at_workers(now)
            self._looked_at = now

    async def _look_at_workers(self, now: float) -> None:
        view = self._view
        listing, news = view.listing(), (view.state, *view.leader_for())
        if listing is self._listing_shown and news == self._workers_news and now < self._workers_due:
            return
        rows: list[Row] = []
        for some in row_slices(view):
            rows += some
            await asyncio.sleep(0)
        rows = in_order(rows)
        seen = [None if row["is_current"] else row["last_seen_ts"] for row in rows]
        for row in rows:
            del row["last_seen_ts"]  # apart: it moves with every heartbeat of everybody
        if rows != self._rows:
            body = await in_slices(rows)
            self._rows, self._seen = rows, []
            self._tell("workers", f'{{"rows":[{body}]}}')
        if _moved(seen, self._seen):
            self._seen = seen
            shown = [None if ts is None else round(ts, 2) for ts in seen]
            self._tell("seen", to_json({"last_seen_ts": shown}))
        took = self._clock.elapsed() - now
        self._listing_shown, self._workers_news = listing, news
        self._workers_due = now + _WORKERS_SHARE * took

    def _look_at_registry(self) -> None:
        health = self._view.registry_health()
        if health is None:
            self._tell_if_new("registry", None, {"registry": None})
            return
        now_ts = self._view.now_ts()
        errors = {op: mask_text(error) for op, error in health.errors.items()}
        registry = {
            "provider": health.provider,
            "snapshot_ts": now_ts - health.snapshot_age_seconds,
            "failing": {
                op: {"since_ts": now_ts - age, "error": errors.get(op)} for op, age in health.failing.items()
            },
        }
        refreshed_at = round(self._clock.elapsed() - health.snapshot_age_seconds, 1)
        mark = (health.provider, refreshed_at, *health.failing, *errors.values())
        self._tell_if_new("registry", mark, {"registry": registry})

    def _look_at_supervisor(self) -> None:
        if self._leases is None:
            self._tell_if_new("supervisor", None, {"workers": None})
            return
        answer = supervisor_answer(self._leases)
        lanes = [lane for worker in answer["workers"] for lane in worker["lanes"]]
        for lane in lanes:
            _exact(lane)
        mark = [
            {key: lane[key] for key in lane if key not in ("since_seconds", "restarts_in_seconds")}
            for lane in lanes
        ]
        self._tell_if_new("supervisor", (mark, answer["problem"]), {**answer, "at_ts": self._view.now_ts()})

    def _look_at_history(self) -> None:
        events = () if self._leases is None else self._leases.history()
        timeline = self._view.timeline
        mark = (events[-1].number if events else 0, timeline.version)
        if mark == self._marks.get("history"):
            return
        self._tell_if_new("history", mark, history_answer(self._view, self._leases))

    def _look_at_leases(self, now: float) -> None:
        if self._listing is None:
            self._tell_if_new("leases", None, {"leases": None})
            return
        if self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            self._take_leases(reading.result())
        if self._reading is None and now - self._read_at >= LEASES_SECONDS and self.watchers:
            self._read_at = now
            self._reading = asyncio.create_task(self._listing.answer(), name="drakkar lease listing")

    def _take_leases(self, answer: dict[str, Any]) -> None:
        now_ts = self._view.now_ts()
        rows = answer["leases"] or []
        for row in rows:
            _exact(row)
        mark = (
            answer["error"],
            answer["leases"] is None,
            [
                (row["name"], row["holder"], row["token"], _whole(now_ts, row["remaining_seconds"]))
                for row in rows
            ],
        )
        self._tell_if_new("leases", mark, {**answer, "at_ts": now_ts})

    def _tell_if_new(self, part: str, mark: object, data: dict[str, Any]) -> None:
        if part not in self._marks or self._marks[part] != mark:
            self._marks[part] = mark
            self._tell(part, to_json(data))

    def _tell(self, part: str, data: str) -> None:
        self._sequence += 1
        message = frame(part, data, f"{self.instance}.{self._sequence}")
        self._messages[part] = (self._sequence, message)


def _moved(seen: Sequence[float | None], before: Sequence[float | None]) -> bool:
    return len(seen) != len(before) or any(
        new is not old and (new is None or old is None or abs(new - old) >= _MOVED_SECONDS)
        for new, old in zip(seen, before, strict=True)
    )


def _exact(row: dict[str, Any]) -> None:
    """Tokens as texts: they may be greater than what a number can be in a browser."""
    if row["token"] is not None:
        row["token"] = str(row["token"])


def _whole(now_ts: float, seconds: float | None) -> int | None:
    return None if seconds is None else round(now_ts + seconds)
