"""Real workers on the filesystem provider: they come, are seen, and go."""

import json
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import httpx
import pytest
from support.commands import hears_signals
from support.processes import (
    DRAKKAR,
    HEARTBEAT_SECONDS,
    OFFLINE_AFTER_SECONDS,
    Fleet,
    WorkerProcess,
    stop_all,
    until_all_see,
    wait_for,
)

NAMES = ["worker-1", "worker-2", "worker-3"]


def row_of(worker: WorkerProcess, name: str) -> dict[str, Any]:
    return worker.rows().get(name, {})


def test_three_workers_with_nothing_configured_see_each_other_online(fleet: Fleet) -> None:
    workers = fleet.start("", "", "", quick=False)
    names = [worker.get("api/v1/identity").json()["worker_id"] for worker in workers]
    assert len({*names}) == 3
    until_all_see(workers, names, 15 + 15)  # at the second refresh of those that came first
    folder = fleet.home / "state" / "drakkar" / "fleet" / "workers"
    assert len([*folder.iterdir()]) == 3
    assert folder.stat().st_mode & 0o777 == 0o700
    told = subprocess.run(
        [DRAKKAR, "workers", "--url", workers[0].url, "--json"], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0
    assert {row["worker_name"]: row["online"] for row in json.loads(told.stdout)} == dict.fromkeys(
        names, True
    )
    assert stop_all(workers) == [0, 0, 0]
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_takes_its_card_along_and_ends_well(
    fleet: Fleet, number: signal.Signals
) -> None:
    one, two = fleet.start("worker-1", "worker-2")
    until_all_see([one, two], ["worker-1", "worker-2"])
    assert one.stop(number) == 0
    assert fleet.card_names() == ["worker-2.json"]
    wait_for(lambda: two.online() == {"worker-2": True}, 10, "the row of worker-1 vanishing")
    assert [line["event"] for line in map(json.loads, one.log.read_text().splitlines())] == [
        "fleet_registry_started"
    ]


def test_peers_see_draining_while_a_worker_stops(fleet: Fleet) -> None:
    one, two = fleet.start("worker-1", "worker-2", settings={"fleet.registry.refresh_seconds": 0.02})
    until_all_see([two], ["worker-1", "worker-2"])
    seen = []
    one.send(signal.SIGTERM)
    while one.process.poll() is None or "worker-1" in two.online():
        seen.append(row_of(two, "worker-1").get("state"))
    assert one.wait() == 0
    assert set(seen) <= {"running", "draining", None}
    assert seen == sorted(seen, key=["running", "draining", None].index)


def test_a_killed_worker_is_offline_after_a_while_and_pruned_later(fleet: Fleet) -> None:
    prune_after_seconds = OFFLINE_AFTER_SECONDS + 3
    one, two = fleet.start(
        "worker-1", "worker-2", settings={"fleet.registry.prune_after_seconds": prune_after_seconds}
    )
    until_all_see([one, two], ["worker-1", "worker-2"])
    one.kill()
    offline_after = wait_for(
        lambda: two.online() == {"worker-1": False, "worker-2": True}, 20, "going offline"
    )
    assert offline_after > OFFLINE_AFTER_SECONDS - HEARTBEAT_SECONDS - 0.5
    assert row_of(two, "worker-1")["state"] == "running"  # what it said last
    assert two.metric('drakkar_fleet_peers{state="offline"}') == 1
    assert fleet.card("worker-1").exists()
    wait_for(lambda: two.online() == {"worker-2": True}, prune_after_seconds + 20, "pruning")
    assert fleet.card_names() == ["worker-2.json"]


def test_a_worker_that_is_killed_and_started_again_is_one_worker(fleet: Fleet) -> None:
    one, two = fleet.start("worker-1", "worker-2")
    until_all_see([one, two], ["worker-1", "worker-2"])
    before = one.instance()
    one.kill()
    again = fleet.start_one("worker-1")
    until_all_see([again, two], ["worker-1", "worker-2"])
    wait_for(lambda: row_of(two, "worker-1")["instance"] == again.instance() != before)
    assert fleet.card_names() == ["worker-1.json", "worker-2.json"]


def test_ten_rapid_restarts_leave_one_card(fleet: Fleet, long: bool) -> None:
    watcher = fleet.start_one("worker-2")
    for n in range(100 if long else 10):
        worker = fleet.launch("worker-1")
        if n % 3 == 0:
            worker.wait_until_it_runs()
        else:
            wait_for(partial(hears_signals, worker.process))
        if n % 2:
            worker.kill()
        else:
            assert worker.stop() == 0
    last = fleet.start_one("worker-1")
    until_all_see([last, watcher], ["worker-1", "worker-2"])
    wait_for(lambda: row_of(watcher, "worker-1")["instance"] == last.instance())
    assert [name for name in fleet.card_names() if not name.startswith(".")] == [
        "worker-1.json",
        "worker-2.json",
    ]


def test_stops_well_from_the_first_moment_on(fleet: Fleet, long: bool) -> None:
    """Trial "A polite stop looks like a crash to the others": SIGTERM at any time after the start."""
    for n in range(40 if long else 6):
        worker = fleet.launch(f"worker-{n + 1}")
        wait_for(partial(hears_signals, worker.process))
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(n * (0.05 if long else 0.3))
        assert worker.stop() == 0
        assert [name for name in fleet.card_names() if name.endswith(".json")] == []


def test_two_signals_in_a_row_stop_it_as_one_does(fleet: Fleet) -> None:
    worker = fleet.start_one("worker-1")
    wait_for(lambda: fleet.card("worker-1").exists())
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGINT)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert fleet.card_names() == []


def test_clients_that_hang_do_not_hold_the_stop(fleet: Fleet) -> None:
    worker = fleet.start_one("worker-1")
    wait_for(fleet.card("worker-1").exists)
    port = httpx.URL(worker.url).port or 0
    with ExitStack() as stack:
        for request in (b"", b"GET /api/v1/wor", b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n" * 3000):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.setblocking(False)
            left = memoryview(request)
            with suppress(BlockingIOError):  # the server no longer reads what nobody reads the answers of
                while left:
                    left = left[client.send(left) :]
        worker.get("healthz")
        began = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - began < 12
    assert fleet.card_names() == []
    assert "Traceback" not in worker.log.read_text()


def test_static_workers_know_their_peers_and_not_whether_they_live(fleet: Fleet) -> None:
    peers = [{"name": "worker-7", "cluster": "search", "url": "http://10.0.3.17:8080/"}]
    worker = fleet.start_one(
        "worker-1", {"fleet.registry.provider": "static", "fleet.registry.static.peers": json.dumps(peers)}
    )
    wait_for(lambda: len(worker.rows()) == 2)
    assert worker.online() == {"worker-7": None, "worker-1": True}
    assert row_of(worker, "worker-7")["last_seen_ts"] is None
    assert [*worker.rows()] == ["worker-7", "worker-1"]  # with a cluster first
    assert worker.stop() == 0


def test_a_port_that_is_taken_ends_the_second_worker_with_one_line(fleet: Fleet) -> None:
    one = fleet.start_one("worker-1")
    port = httpx.URL(one.url).port
    two = fleet.launch("worker-2", {"ui.port": port})
    assert two.wait() == 1
    [line] = two.log.read_text().splitlines()
    assert f"127.0.0.1:{port}" in line
    wait_for(lambda: fleet.card_names() == ["worker-1.json"])


def test_a_folder_that_was_set_and_cannot_be_used_ends_the_start(fleet: Fleet) -> None:
    fleet.folder.mkdir()
    blocked = fleet.folder / "a file"
    blocked.write_text("")
    worker = fleet.launch("worker-1", {"fleet.registry.filesystem.dir": blocked})
    assert worker.wait() == 2
    line = worker.log.read_text().splitlines()[-1]
    assert line.startswith(f"drakkar: fleet.registry.filesystem.dir: cannot use {blocked}: ")


def test_a_derived_folder_that_cannot_be_used_costs_the_peers_only(fleet: Fleet) -> None:
    fleet.folder.mkdir()
    (fleet.folder / "fleet").write_text("")
    worker = fleet.start_one("worker-1")
    wait_for(lambda: worker.metric('drakkar_fleet_registry_errors_total{op="publish"}') >= 2)
    assert worker.online() == {"worker-1": True}
    (fleet.folder / "fleet").unlink()
    wait_for(lambda: fleet.card("worker-1").exists())
    assert worker.stop() == 0
