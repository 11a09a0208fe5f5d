"""The leases and the background workers of one worker, put together."""

import asyncio
import contextlib
from datetime import UTC, datetime

import pytest
from drakkar.fleet.identity import WorkerIdentity
from drakkar.leadership import Leadership, local_hint
from drakkar.leases.memory import MemoryLeases, MemoryStore
from drakkar.settings import load_settings
from drakkar.supervisor.worker import BackgroundWorker, Dependencies, RunContext, Runner
from prometheus_client import CollectorRegistry
from support.log import RecordingLogger
from support.supervised import Job, forever, holders, memory
from support.virtual_time import VirtualClock, virtual_time


def make(store: MemoryStore, worker: BackgroundWorker, log: RecordingLogger | None = None) -> Leadership:
    return Leadership(
        load_settings(environ={}, overrides={"fleet.registry.provider": "none"}),
        MemoryLeases(store),
        [worker],
        WorkerIdentity("worker-1", "", "http://127.0.0.1/", "1", datetime(2026, 10, 13, tzinfo=UTC)),
        peers=tuple,
        on_change=lambda: None,
        cache=None,
        clock=VirtualClock(),
        logger=log or RecordingLogger(),
        metrics=CollectorRegistry(),
    )


@virtual_time
async def test_a_stop_ends_the_runs_before_the_leases_and_gives_every_lease_back() -> None:
    async def body(ctx: RunContext) -> None:
        try:
            await forever(ctx)
        finally:
            await asyncio.sleep(5)
            during.append(dict(holders(store)))

    store, job, during = memory(), Job(body), list[dict[str, str]]()
    leadership = make(store, job.worker())
    leadership.start()
    await asyncio.sleep(1)
    assert await leadership.stop() == []
    assert during == [{"gc-leader": "worker-1"}]
    assert holders(store) == {}


@virtual_time
async def test_nothing_is_acquired_once_the_stop_has_begun() -> None:
    got = []

    def build(deps: Dependencies) -> Runner:
        async def body(ctx: RunContext) -> None:
            try:
                await forever(ctx)
            finally:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        got.append(await deps.leases.acquire("late"))

        return Job(body)

    store = memory()
    leadership = make(store, BackgroundWorker("gc", build, skip_lease=True))
    leadership.start()
    await asyncio.sleep(1)
    assert await leadership.stop() == []
    assert got == []
    assert holders(store) == {}


@virtual_time
async def test_leases_of_one_process_are_called_so_when_they_begin() -> None:
    log = RecordingLogger()
    leadership = make(memory(), Job().worker(), log)
    leadership.start()
    await asyncio.sleep(1)
    [line] = log.named("lease_scope_local")
    assert str(line["hint"]).startswith("each process leads by itself; set supervisor.leases.provider")
    await leadership.stop()


@pytest.mark.parametrize(
    ("provider", "hint"),
    [
        ("none", "each process leads by itself; set supervisor.leases.provider"),
        ("filesystem", "workers elsewhere do not see these leases; set shared.dir"),
        ("cardbox", "workers elsewhere do not see these leases"),
    ],
)
def test_what_local_leases_mean_depends_on_whose_they_are(provider: str, hint: str) -> None:
    settings = load_settings(environ={}, overrides={"supervisor.leases.provider": provider})

    assert local_hint(settings).startswith(hint)
