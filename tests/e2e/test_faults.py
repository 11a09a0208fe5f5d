"""What goes wrong with a folder and with the processes that share it: noticed, survived, over by itself."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from support.mounts import passthrough, tmpfs, unmount
from support.processes import (
    HEARTBEAT_SECONDS,
    OFFLINE_AFTER_SECONDS,
    TIMEOUT_SECONDS,
    Fleet,
    WorkerProcess,
    stop_all,
    until_all_see,
    wait_for,
)
from support.servers import free_ports

SLACK_SECONDS = 4.0
"""What a busy machine may add to a period."""

AT_ONCE = HEARTBEAT_SECONDS + SLACK_SECONDS
"""Within one heartbeat."""


def card_of(fleet: Fleet, name: str) -> dict[str, object]:
    """The card as it is stored; empty while it is none."""
    path = fleet.card(name)
    if path.is_symlink() or not path.is_file():
        return {}
    try:
        card: dict[str, object] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return card


def errors(worker: WorkerProcess, op: str) -> float:
    return worker.metric(f'drakkar_fleet_registry_errors_total{{op="{op}"}}')


def calls(worker: WorkerProcess, op: str) -> float:
    return worker.metric(f'drakkar_fleet_registry_duration_seconds_count{{op="{op}"}}')


def has_called(worker: WorkerProcess, op: str, times: float) -> bool:
    return calls(worker, op) >= times


def fails(worker: WorkerProcess, times: int = 1) -> bool:
    return errors(worker, "publish") >= times and errors(worker, "list") >= times


def has_logged(worker: WorkerProcess, event: str) -> bool:
    return bool(worker.events(event))


def snapshot_age(worker: WorkerProcess) -> float:
    return worker.metric("drakkar_fleet_registry_snapshot_age_seconds")


def has_older_snapshot(worker: WorkerProcess, seconds: float) -> bool:
    return snapshot_age(worker) > seconds


# -- frozen and forged


def test_a_frozen_worker_goes_offline_and_comes_back_with_its_whole_card(fleet: Fleet) -> None:
    """Trial "A card comes back as an immortal stump": frozen past every limit, then awake again."""
    one, two = fleet.start("worker-1", "worker-2", settings={"fleet.registry.prune_after_seconds": 3.5})
    until_all_see([one, two], ["worker-1", "worker-2"])
    before = card_of(fleet, "worker-1")
    one.send(signal.SIGSTOP)
    wait_for(
        lambda: two.online().get("worker-1") is False, OFFLINE_AFTER_SECONDS + SLACK_SECONDS, "going offline"
    )
    wait_for(lambda: not fleet.card("worker-1").exists(), 3.5 + SLACK_SECONDS, "pruning")
    wait_for(lambda: "worker-1" not in two.rows(), AT_ONCE, "its row vanishing")
    one.send(signal.SIGCONT)
    wait_for(lambda: two.online().get("worker-1") is True, 2 * AT_ONCE, "coming back")
    after = card_of(fleet, "worker-1")
    assert {**after, "heartbeat_at": ""} == {**before, "heartbeat_at": ""}
    assert after["heartbeat_at"] != before["heartbeat_at"]
    assert list(two.rows()).count("worker-1") == 1
    assert stop_all([one, two]) == [0, 0]


def test_a_worker_that_was_frozen_for_less_than_the_prune_age_comes_back_as_well(fleet: Fleet) -> None:
    one, two = fleet.start("worker-1", "worker-2")
    until_all_see([one, two], ["worker-1", "worker-2"])
    one.send(signal.SIGSTOP)
    wait_for(
        lambda: two.online() == {"worker-1": False, "worker-2": True}, OFFLINE_AFTER_SECONDS + SLACK_SECONDS
    )
    one.send(signal.SIGCONT)
    wait_for(lambda: two.online() == {"worker-1": True, "worker-2": True}, 2 * AT_ONCE, "coming back")
    assert one.online()["worker-1"] is True


def remove(fleet: Fleet) -> None:
    fleet.card("worker-1").unlink()


def remove_everything(fleet: Fleet) -> None:
    shutil.rmtree(fleet.folder / "fleet")


def write(data: bytes) -> Callable[[Fleet], None]:
    def overwrite(fleet: Fleet) -> None:
        fleet.card("worker-1").write_bytes(data)

    return overwrite


def make_it_a_link(fleet: Fleet) -> None:
    target = fleet.home / "somebody's file"
    target.write_text("precious")
    fleet.card("worker-1").unlink()
    fleet.card("worker-1").symlink_to(target)


def make_it_a_dangling_link(fleet: Fleet) -> None:
    fleet.card("worker-1").unlink()
    fleet.card("worker-1").symlink_to("nowhere")


def make_it_a_pipe(fleet: Fleet) -> None:
    fleet.card("worker-1").unlink()
    os.mkfifo(fleet.card("worker-1"))


def make_it_somebody_elses(fleet: Fleet) -> None:
    card = card_of(fleet, "worker-1") | {"instance": "f" * 16, "url": "http://10.9.9.9/"}
    fleet.card("worker-1").write_text(json.dumps(card))


@pytest.mark.parametrize(
    "damage",
    [
        remove,
        remove_everything,
        write(b""),
        write(b'{"worker": "worker-1"}'),
        write(b"\xff\x00garbage" * 1000),
        make_it_a_link,
        make_it_a_dangling_link,
        make_it_a_pipe,
        make_it_somebody_elses,
    ],
    ids=[
        "removed",
        "folder removed",
        "empty",
        "stump",
        "garbage",
        "link",
        "dangling link",
        "pipe",
        "other instance",
    ],
)
def test_a_damaged_card_is_whole_again_within_one_heartbeat(
    shared: tuple[Fleet, list[WorkerProcess]], damage: Callable[[Fleet], None]
) -> None:
    """Trial "A card comes back as an immortal stump": the whole card, the same instance, no restart."""
    fleet, [one, two] = shared
    until_all_see([one, two], ["worker-1", "worker-2"])
    before = card_of(fleet, "worker-1")
    damage(fleet)
    wait_for(
        lambda: {**card_of(fleet, "worker-1"), "heartbeat_at": ""} == {**before, "heartbeat_at": ""},
        AT_ONCE,
        "a whole card",
    )
    assert fleet.card("worker-1").stat().st_mode & 0o777 == 0o600
    until_all_see([one, two], ["worker-1", "worker-2"], 2 * AT_ONCE)
    assert (
        not (fleet.home / "somebody's file").exists()
        or (fleet.home / "somebody's file").read_text() == "precious"
    )


# -- one name twice


def test_two_workers_of_one_name_are_told_and_neither_takes_the_others_card_along(fleet: Fleet) -> None:
    """Trial "Two candidates with the same identity both lead", for cards."""
    periods = {"fleet.registry.refresh_seconds": 0.3 * HEARTBEAT_SECONDS}
    one, two = fleet.start("worker-1", "worker-1", settings=periods)
    instances = {one.instance(): one, two.instance(): two}
    assert len(instances) == 2
    for worker in (one, two):
        wait_for(partial(has_logged, worker, "fleet_duplicate_worker_name"))
        [line] = worker.events("fleet_duplicate_worker_name")
        other = instances[line["other_instance"]]
        assert other is not worker
        assert (line["level"], line["worker"], line["other_url"]) == ("warning", "worker-1", other.url)
        assert worker.metric("drakkar_fleet_duplicate_worker_name_total") == 1
        assert worker.online() == {"worker-1": True}  # itself
    assert one.stop() == 0
    wait_for(
        lambda: card_of(fleet, "worker-1").get("instance") == two.instance(), AT_ONCE, "the other's card"
    )
    published = calls(two, "publish")
    wait_for(lambda: calls(two, "publish") > published + 3)
    assert card_of(fleet, "worker-1")["instance"] == two.instance()
    assert len(two.events("fleet_duplicate_worker_name")) == 1  # not once a period
    assert two.stop() == 0
    assert fleet.card_names() == []


# -- bad cards


def test_bad_cards_are_named_once_and_their_neighbours_are_listed(fleet: Fleet) -> None:
    """Trial "One bad card takes down the list", through real workers and their API."""
    one, two = fleet.start("worker-1", "worker-2")
    until_all_see([one, two], ["worker-1", "worker-2"])
    good = json.dumps(card_of(fleet, "worker-2"))
    files: dict[str, bytes] = {
        "empty": b"",
        "truncated": good[: len(good) // 2].encode(),
        "null": b"null",
        "list": b"[]",
        "number": b"3",
        "huge-number": b"9" * 4000,
        "too-large": b"9" * 5_000,
        "deep": b"[" * 4000,
        "deeper": b"[" * 100_000,
        "not-utf-8": b'{"worker": "\xff\xfe"}',
        "bom": b"\xef\xbb\xbf" + good.encode(),
        "nan": good.replace('"schema": 1', '"schema": NaN').encode(),
        "infinity": b'{"schema": 1e999}',
        "surrogate": b'{"worker": "\\ud800"}',
        "worker-90": b'{"schema": 1, "worker": "worker-90"}',
        "worker-91": b'{"schema": 1, "worker": "worker-91", "cluster": null, "url": "http://10.0.0.1/"}',
        "worker-92": b'{"schema": 2, "worker": "worker-92", "cluster": "", "url": "http://10.0.0.1/"}',
        "x\ny": b"",
        "n" * 250: b"",
    }
    for name, data in files.items():
        (fleet.cards / f"{name}.json").write_bytes(data)
    with (fleet.cards / "large.json").open("wb") as large:
        large.truncate(50_000_000)
    (fleet.cards / "folder.json").mkdir()
    (fleet.cards / "dangling.json").symlink_to("nowhere")
    (fleet.cards / "link.json").symlink_to(fleet.card("worker-2"))
    os.mkfifo(fleet.cards / "pipe.json")
    (fleet.cards / ".left.json.0123456789abcdef.tmp").write_bytes(b"{")
    foreign = {
        "schema": 1,
        "worker": "worker-3",
        "cluster": "",
        "url": "http://10.0.0.3/",
        "more": [1],
        "state": "x",
    }
    fleet.card("worker-3").write_text(json.dumps(foreign))
    fleet.card("another-name").write_text(json.dumps(foreign | {"worker": "worker-4"}))

    wait_for(
        lambda: "worker-3" in one.rows() and "worker-3" in two.rows(), AT_ONCE, "the good card among them"
    )
    for _ in range(3):
        listed = calls(one, "list")
        wait_for(partial(has_called, one, "list", listed + 2))
        assert {name for name, online in one.online().items() if online} >= {"worker-1", "worker-2"}
        assert set(one.rows()) == {"worker-1", "worker-2", "worker-3"}
    assert errors(one, "list") == errors(two, "list") == 0
    for worker in (one, two):
        named = [line.get("file", line.get("worker")) for line in worker.events("fleet_card_invalid")]
        assert len(named) == len({*named})
        assert {*named} >= {
            f"{name}.json" for name in ("empty", "deeper", "pipe", "link", "large", "nan", "folder")
        }
        assert {*named} >= {"worker-90", "worker-91", "another-name.json"}
        [schema] = worker.events("fleet_card_schema_unsupported")
        assert schema["worker"] == "worker-92"
        json.loads(worker.get("api/v1/workers").content, parse_constant=pytest.fail)
    assert stop_all([one, two]) == [0, 0]


# -- outages


def test_an_unmounted_folder_leaves_the_last_list_and_an_empty_one_fills_again(fleet: Fleet) -> None:
    """Trial "'Store unreachable' is reported as 'no peers'": the list stays, its age tells, all come back."""
    names = ["worker-1", "worker-2", "worker-3"]
    mount = fleet.home.parent / "mount"
    with tmpfs(mount):
        workers = fleet.start(*names, settings={"storage.dir": mount})
        until_all_see(workers, names)
        unmount(mount)
        for worker in workers:
            wait_for(partial(fails, worker))
            first = snapshot_age(worker)
            wait_for(partial(has_older_snapshot, worker, first + 1))
            assert list(worker.rows()) == names
            assert worker.online()[worker.name] is True
            told = worker.get("readyz")
            assert told.status_code == 200
            assert told.json()["registry"]["failing_for_seconds"].keys() == {"publish", "list"}
        wait_for(
            lambda: workers[0].online() == {**dict.fromkeys(names, False), "worker-1": True},
            what="going offline",
        )
        assert list(workers[0].rows()) == names
        assert list((mount).iterdir()) == []  # nothing was written into the empty mount point
        with tmpfs(mount):
            until_all_see(workers, names, 2 * AT_ONCE)
            for worker in workers:
                assert worker.get("readyz").json()["registry"]["failing_for_seconds"] == {}
                assert [line["op"] for line in worker.events("fleet_registry_recovered")].count(
                    "publish"
                ) == 1
                assert len(worker.events("fleet_registry_publish_failed")) == 1
            assert stop_all(workers) == [0, 0, 0]
            assert list((mount / "fleet" / "workers").iterdir()) == []


def test_a_folder_that_hangs_costs_no_answer_and_all_come_back(fleet: Fleet) -> None:
    """Trial "No timeout unless you ask for one", in mid-run: the loops go on, and so does everything else."""
    with passthrough(fleet.home.parent / "server", fleet.home.parent / "mount") as mount:
        one, two = fleet.start("worker-1", "worker-2", settings={"storage.dir": mount.path})
        until_all_see([one, two], ["worker-1", "worker-2"])
        mount.hang()
        for worker in (one, two):
            wait_for(partial(fails, worker, times=2))
            began = time.monotonic()
            assert list(worker.rows()) == ["worker-1", "worker-2"]
            assert worker.get("readyz").status_code == 200
            assert time.monotonic() - began < TIMEOUT_SECONDS + SLACK_SECONDS
            assert "TimeoutError" in worker.events("fleet_registry_publish_failed")[0]["error"]
        mount.work()
        until_all_see([one, two], ["worker-1", "worker-2"], TIMEOUT_SECONDS + 2 * AT_ONCE)
        assert stop_all([one, two]) == [0, 0]


@pytest.mark.parametrize("known", [True, False], ids=["for a while", "from the same moment"])
def test_a_worker_stops_well_while_its_folder_hangs(fleet: Fleet, known: bool) -> None:
    """Trial "No timeout unless you ask for one", at shutdown."""
    with passthrough(fleet.home.parent / "server", fleet.home.parent / "mount") as mount:
        worker = fleet.start_one("worker-1", {"storage.dir": mount.path})
        wait_for((mount.path / "fleet" / "workers" / "worker-1.json").exists)
        mount.hang()
        if known:
            wait_for(lambda: errors(worker, "publish") >= 1)
        began = time.monotonic()
        assert worker.stop(limit_seconds=30) == 0
        # The last publish, one limit each to end the loops, to withdraw and to stop the provider; the server.
        assert time.monotonic() - began < 4 * TIMEOUT_SECONDS + 3 + SLACK_SECONDS
        assert "did not end in time" not in worker.log.read_text()
        mount.work()


def test_a_worker_starts_and_stops_well_while_its_folder_hangs(fleet: Fleet) -> None:
    """Trial "No timeout unless you ask for one", at start."""
    with passthrough(fleet.home.parent / "server", fleet.home.parent / "mount") as mount:
        mount.hang()
        worker = fleet.start_one("worker-1", {"storage.dir": mount.path})
        assert worker.online() == {"worker-1": True}
        wait_for(lambda: errors(worker, "publish") >= 1)
        assert worker.stop(limit_seconds=30) == 0
        mount.work()


def test_a_folder_that_was_set_and_hangs_ends_the_start_in_bounded_time(fleet: Fleet) -> None:
    with passthrough(fleet.home.parent / "server", fleet.home.parent / "mount") as mount:
        mount.hang()
        worker = fleet.launch("worker-1", {"fleet.registry.filesystem.dir": mount.path})
        assert worker.wait(30) == 2
        assert "fleet.registry.filesystem.dir" in worker.log.read_text().splitlines()[-1]
        mount.work()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_start_waits_for_a_hanging_folder_ends_it(
    fleet: Fleet, number: signal.Signals
) -> None:
    with passthrough(fleet.home.parent / "server", fleet.home.parent / "mount") as mount:
        mount.hang()
        settings = {"fleet.registry.filesystem.dir": mount.path, "fleet.registry.timeout_seconds": 60}
        [port] = free_ports(1)
        worker = fleet.launch("worker-1", settings | {"ui.port": port})
        worker.url = f"http://127.0.0.1:{port}/"
        wait_for(partial(answers, worker))  # from right before the provider starts
        assert worker.stop(number, limit_seconds=30) == 0
        mount.work()


def answers(worker: WorkerProcess) -> bool:
    try:
        return worker.get("healthz").is_success
    except httpx.TransportError:
        return False


def test_an_hour_between_the_clocks_of_file_server_and_worker_changes_nothing(fleet: Fleet) -> None:
    server = fleet.home.parent / "server"
    with passthrough(server, fleet.home.parent / "mount", shift_seconds=-7200) as mount:
        one, two = fleet.start("worker-1", "worker-2", settings={"storage.dir": mount.path})
        until_all_see([one, two], ["worker-1", "worker-2"])
        ages = [time.time() - row["last_seen_ts"] for row in one.rows().values()]
        assert all(-SLACK_SECONDS < age < OFFLINE_AFTER_SECONDS + SLACK_SECONDS for age in ages)
        two.kill()
        wait_for(
            lambda: one.online() == {"worker-1": True, "worker-2": False},
            OFFLINE_AFTER_SECONDS + SLACK_SECONDS,
        )
        assert one.stop() == 0
        assert Path(mount.path / "fleet/workers/worker-2.json").exists()
