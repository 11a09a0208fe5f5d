"""The history as an answer: for whoever asks without a stream."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from drakkar.fleet.testkit import make_card
from drakkar.server.models import HistoryAnswer
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext
from drakkar.worker import Worker
from support.log import RecordingLogger
from support.scripted import Script, stranger
from support.supervised import Job
from support.waiting import until
from support.workers import get, make_worker, settings


class Failing:
    async def run(self, ctx: RunContext) -> None:
        raise OSError("cannot reach redis://drakkar:s3cret@10.0.0.1/0")


def failing(_: Dependencies) -> Failing:
    return Failing()


async def history(worker: Worker) -> dict[str, Any]:
    answer = await get(worker, "api/v1/history")
    assert answer.status_code == 200
    HistoryAnswer.model_validate_json(answer.content, strict=True)
    told: dict[str, Any] = answer.json()
    return told


def leading(*workers: BackgroundWorker) -> Worker:
    return Worker(settings("none"), workers=workers, environ={}, logger=RecordingLogger())


def kinds(told: dict[str, Any]) -> Sequence[tuple[str, str]]:
    return [(row["name"], row["event"]) for row in told["events"]]


async def test_tells_leader_changes_and_crashes_newest_first_without_secrets() -> None:
    async with (
        asyncio.timeout(20),
        leading(BackgroundWorker("gc", Job().build), BackgroundWorker("notify", failing)) as worker,
    ):
        told = await history(worker)
        while not {("gc", "acquired"), ("notify", "crashed")} <= set(kinds(told)):
            told = await history(worker)
        started = worker.served.identity.started_at
    numbers = [row["number"] for row in told["events"]]
    assert numbers == sorted(numbers, reverse=True)
    [crash] = [row for row in told["events"] if row["event"] == "crashed"]
    assert crash["error"].startswith("OSError: cannot reach redis://")
    assert "s3cret" not in str(told)
    assert datetime.fromtimestamp(told["since_ts"], UTC) == started
    assert all(row["at_ts"] >= told["since_ts"] for row in told["events"])


async def test_a_worker_without_background_workers_tells_who_leads_elsewhere(script: Script) -> None:
    script.strangers = [stranger(make_card("worker-2", features={"leader_for": ["gc"]}))]
    async with make_worker() as worker:
        await until(lambda: len(worker.peers()) == 1)
        told = await history(worker)
    assert told["events"] == []
    [span] = told["spans"]
    assert (span["name"], span["worker"], span["to_ts"]) == ("gc", "worker-2", None)
