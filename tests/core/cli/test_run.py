"""A worker as a process: what it prints, and that it stops well, whenever it is told to."""

import json
import os
import pty
import random
import re
import signal
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from support.commands import DRAKKAR, Drakkar, Ended, Process, end_of, hears_signals, wait_for

ALL = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
any_of_them = pytest.mark.parametrize("number", ALL, ids=lambda number: number.name)


@pytest.fixture(autouse=True)
def hangs_up() -> Iterator[None]:
    """Whoever runs the tests may ignore SIGHUP, as `nohup` does, and a child inherits that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def has_begun(drakkar: Drakkar, op: str) -> bool:
    return (drakkar.cards / f"{op}.began").exists()


def kill(process: Process, number: int) -> None:
    """Send a signal; nothing when the process has ended by itself meanwhile."""
    if process.poll() is None:
        process.send_signal(number)


def stopped_well(ended: Ended, drakkar: Drakkar) -> None:
    assert (ended.status, ended.err) == (0, "")
    assert drakkar.cards_left() == []


def test_it_prints_one_line_with_its_name_and_url(drakkar: Drakkar) -> None:
    with drakkar.running_worker() as (process, line):
        found = re.fullmatch(r"worker-1 runs at (http://127\.0\.0\.1:\d+/)\n", line)
        assert found
        (own,) = httpx.get(f"{found[1]}api/v1/workers", trust_env=False).json()
        kill(process, signal.SIGTERM)
        ended = end_of(process)

    assert (own["worker_name"], own["state"]) == ("worker-1", "running")
    assert ended.out == ""
    stopped_well(ended, drakkar)


def test_it_prints_its_name_when_it_has_no_server(drakkar: Drakkar) -> None:
    with drakkar.running_worker("--set", "ui.enabled=false") as (process, line):
        kill(process, signal.SIGTERM)
        ended = end_of(process)

    assert line == "worker-1 runs without a server\n"
    assert ended.status == 0


def test_it_writes_its_log_to_standard_error(drakkar: Drakkar) -> None:
    with drakkar.running_worker("--log-level=info", "--log-format=json") as (process, _):
        kill(process, signal.SIGTERM)
        ended = end_of(process)

    events = [json.loads(line)["event"] for line in ended.err.splitlines()]
    assert "fleet_registry_started" in events


def test_options_win_over_the_file(drakkar: Drakkar) -> None:
    (drakkar.folder / "drakkar.yaml").write_text("worker_name: worker-9\nui: {port: 1, host: '::1'}\n")

    with drakkar.running_worker("--host=127.0.0.1") as (_, line):
        assert line.startswith("worker-1 runs at http://127.0.0.1:")


def test_a_port_that_is_taken_is_one_line(drakkar: Drakkar) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ended = drakkar("run", "--provider=none", f"--port={port}")

    assert ended.status == 1
    assert f"127.0.0.1:{port}" in ended.error


def test_a_provider_that_refuses_its_options_is_wrong_configuration(drakkar: Drakkar) -> None:
    ended = drakkar("run", "--provider=cardbox", "--port=0")

    assert (ended.status, ended.out) == (2, "")
    assert "dir is missing; name a folder" in ended.error


@any_of_them
def test_a_signal_stops_a_running_worker(number: int, drakkar: Drakkar) -> None:
    with drakkar.running_worker() as (process, _):
        wait_for(lambda: len(drakkar.cards_left()) == 1)
        kill(process, number)
        stopped_well(end_of(process), drakkar)


@pytest.mark.parametrize("step", range(12))
def test_sigterm_stops_it_however_early(step: int, drakkar: Drakkar) -> None:
    delay = step * 0.1 / 12
    process = drakkar.start_worker()
    time.sleep(delay)
    heard = hears_signals(process)
    kill(process, signal.SIGTERM)
    ended = end_of(process)

    # Until our first line runs the signal has its default action, which ends the process as well.
    assert ended.status in ([0] if heard else [0, -signal.SIGTERM])
    assert ended.err == ""
    assert drakkar.cards_left() == []


@any_of_them
@pytest.mark.parametrize("step", range(12))
def test_a_signal_stops_it_at_any_moment_of_its_start(step: int, number: int, drakkar: Drakkar) -> None:
    process = drakkar.start_worker()
    wait_for(lambda: hears_signals(process))
    time.sleep((step + random.random()) * 0.8 / 12)
    kill(process, number)

    stopped_well(end_of(process), drakkar)


@any_of_them
def test_a_signal_stops_it_while_a_provider_is_imported(number: int, drakkar: Drakkar) -> None:
    process = drakkar.start_worker(CARDBOX_IMPORT_SECONDS="1")
    wait_for(lambda: hears_signals(process))
    time.sleep(0.5)
    kill(process, number)

    stopped_well(end_of(process), drakkar)


@any_of_them
@pytest.mark.parametrize("op", ["start", "publish"])
def test_a_signal_stops_it_while_the_store_hangs(op: str, number: int, drakkar: Drakkar) -> None:
    options = json.dumps({f"{op}_seconds": 3600})
    process = drakkar.start_worker("--set=fleet.registry.timeout_seconds=2", options=options)
    wait_for(lambda: has_begun(drakkar, op))
    kill(process, number)
    ended = end_of(process)

    assert ended.status == 0
    assert drakkar.cards_left() == []


@any_of_them
def test_a_second_signal_loses_nothing(number: int, drakkar: Drakkar) -> None:
    with drakkar.running_worker(options='{"withdraw_seconds": 0.5}') as (process, _):
        wait_for(lambda: len(drakkar.cards_left()) == 1)
        kill(process, signal.SIGTERM)
        wait_for(lambda: has_begun(drakkar, "withdraw"))
        kill(process, number)
        stopped_well(end_of(process), drakkar)


def test_a_terminal_that_is_closed_is_a_reason_to_stop(drakkar: Drakkar) -> None:
    command = ["run", "--provider=cardbox", "--worker-name=worker-1", "--port=0", "--log-level=info"]
    environ = drakkar.environ | {"DK_FLEET__REGISTRY__PLUGIN_OPTIONS__DIR": str(drakkar.cards)}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(DRAKKAR, [DRAKKAR, *command], environ)
    wait_for(lambda: len(drakkar.cards_left()) == 1)
    os.close(terminal)  # where its log goes, too
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert drakkar.cards_left() == []


def test_it_outlives_a_terminal_when_it_was_told_so(drakkar: Drakkar) -> None:
    """As `nohup` does it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    process = drakkar.start_worker()
    wait_for(lambda: len(drakkar.cards_left()) == 1)
    kill(process, signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None
    kill(process, signal.SIGTERM)
    stopped_well(end_of(process), drakkar)


@pytest.mark.parametrize("op", ["withdraw", "stop"])
def test_its_stop_is_bounded_when_the_store_hangs(op: str, drakkar: Drakkar) -> None:
    limits = ["--set=fleet.registry.timeout_seconds=1", "--log-level=error"]
    with drakkar.running_worker(*limits, options=json.dumps({f"{op}_seconds": 3600})) as (process, _):
        wait_for(lambda: len(drakkar.cards_left()) == 1)
        kill(process, signal.SIGTERM)
        started = time.monotonic()
        ended = end_of(process)

    assert ended.status == 0
    assert time.monotonic() - started < 50


@pytest.mark.parametrize("delay", [0, 0.2, 0.5, 1])
def test_a_hail_of_signals_changes_nothing(delay: float, drakkar: Drakkar) -> None:
    process = drakkar.start_worker(options='{"withdraw_seconds": 0.2, "stop_seconds": 0.2}')
    wait_for(lambda: hears_signals(process))
    time.sleep(delay)
    while process.poll() is None:
        kill(process, random.choice(ALL))
        time.sleep(0.001)

    stopped_well(end_of(process), drakkar)


def test_a_thread_that_does_not_end_does_not_keep_it(drakkar: Drakkar) -> None:
    with drakkar.running_worker(options='{"thread": true}') as (process, _):
        kill(process, signal.SIGTERM)
        ended = end_of(process)

    assert ended.status == 0
    assert ended.error == (
        "something (threads that are left: endless) did not end in time; leaving without it"
    )
    assert drakkar.cards_left() == []


def test_exit_functions_of_others_run_before_it_ends(drakkar: Drakkar) -> None:
    source = "import atexit, sys; atexit.register(lambda: print('bye', file=sys.stderr)); import cardbox"
    drakkar.install("polite", {"polite": "polite:cardbox.Cardbox"}, {"polite.py": source})

    with drakkar.running_worker("--provider=polite") as (process, _):
        kill(process, signal.SIGTERM)
        ended = end_of(process)

    assert (ended.status, ended.err) == (0, "bye\n")


def test_nothing_that_ends_late_keeps_it(drakkar: Drakkar) -> None:
    # Run when the interpreter takes its modules apart: no timer could end this, and signals are ignored.
    late = "class Late:\n    def __del__(self, sleep=time.sleep): sleep(3600)\nlate = Late()"
    source = f"import time, cardbox\n{late}"
    drakkar.install("late", {"late": "late:cardbox.Cardbox"}, {"late.py": source})

    with drakkar.running_worker("--provider=late") as (process, _):
        kill(process, signal.SIGTERM)
        stopped_well(end_of(process), drakkar)


def test_it_runs_on_when_nobody_reads_its_line(drakkar: Drakkar) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = drakkar.start("run", "--provider=none", "--port=0", "--log-level=info", stdout=writer)
    os.close(writer)
    assert process.stderr is not None
    assert "fleet_registry_started" in process.stderr.readline()
    time.sleep(0.2)
    assert process.poll() is None
    kill(process, signal.SIGTERM)

    assert end_of(process).status == 0


def test_it_keeps_a_signal_that_comes_while_it_reads_its_file(drakkar: Drakkar) -> None:
    pipe = drakkar.folder / "pipe.yaml"
    os.mkfifo(pipe)
    process = drakkar.start("run", "-c", str(pipe))
    wait_for(lambda: hears_signals(process))
    time.sleep(1)  # to be more than likely at it; the promise holds before that as well
    kill(process, signal.SIGTERM)

    assert (end_of(process).status, drakkar.cards_left()) == (0, [])
