"""The worker as a library: what it starts, what it leaves alone, and what is left of it afterwards."""

import asyncio
import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from drakkar.errors import ConfigError, UnavailableError
from drakkar.fleet.provider import ProviderConfigError
from drakkar.worker import Worker
from support.clock import FakeClock
from support.log import RecordingLogger
from support.scripted import Script, fails, hangs, scripted_plugin
from support.waiting import until
from support.workers import free_port, get, is_free, make_worker, other_tasks, rows, settings


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted_plugin(tmp_path, monkeypatch) as script:
        yield script


@pytest.fixture(autouse=True)
async def nothing_left(script: Script) -> object:
    """Whatever a test does, no task, thread, card or started provider outlives it."""
    threads = threading.active_count()
    yield
    assert other_tasks() == set()
    assert threading.active_count() <= threads  # one of an earlier test may have ended meanwhile
    assert script.workers() == []
    assert script.calls.count("stop") >= script.calls.count("start")


def has_peers(worker: Worker, number: int) -> bool:
    return len(worker.peers()) == number


# -- as a library


async def test_three_workers_in_one_loop_see_each_other_online(script: Script) -> None:
    names = ["worker-1", "worker-2", "worker-3"]
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(make_worker(name)) for name in names]
        for worker in workers:
            await until(partial(has_peers, worker, 2))
            assert {row["worker_name"]: row["online"] for row in await rows(worker)} == dict.fromkeys(
                names, True
            )
        assert script.workers() == names
        assert len({worker.url for worker in workers}) == 3
    assert script.workers() == []


async def test_the_provider_learns_the_times_that_are_configured(script: Script) -> None:
    async with make_worker(
        "worker-1",
        fleet__registry__offline_after_seconds="41",
        fleet__registry__prune_after_seconds="4100",
        fleet__registry__timeout_seconds="1.5",
    ):
        [ctx] = script.contexts

    assert (ctx.offline_after_seconds, ctx.prune_after_seconds, ctx.timeout_seconds) == (41, 4100, 1.5)


async def test_each_worker_has_metrics_of_its_own(script: Script) -> None:
    def errors(worker: Worker) -> float:
        value = worker.metrics.get_sample_value("drakkar_fleet_registry_errors_total", {"op": "publish"})
        assert value is not None
        return value

    async with make_worker("worker-1") as one:
        script.on["publish"] = fails(OSError("gone"))
        await until(lambda: errors(one) > 0)
        del script.on["publish"]
        async with make_worker("worker-2") as two:
            assert errors(two) == 0


async def test_touches_neither_signal_handlers_nor_logging() -> None:
    names = [None, "drakkar", "uvicorn", "uvicorn.error", "uvicorn.access", "fastapi", "asyncio"]
    own = logging.NullHandler()
    access = logging.getLogger("uvicorn.access")
    access.addHandler(own)  # an embedding program that serves HTTP with uvicorn itself

    def state() -> object:
        loggers = [logging.getLogger(name) for name in names]
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        return handlers, [(log.level, [*log.handlers], log.propagate, log.disabled) for log in loggers]

    before = state()
    try:
        async with make_worker() as worker:
            await get(worker)
            assert state() == before
        assert state() == before
    finally:
        access.removeHandler(own)


async def test_writes_nothing_of_requests_into_the_programs_access_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        async with make_worker() as worker:
            await get(worker)
    assert [record for record in caplog.records if record.name == "uvicorn.access"] == []


async def test_runs_through_its_states(script: Script) -> None:
    gate = asyncio.Event()
    script.on["start"] = gate.wait
    worker = make_worker()
    states = [str(worker.state)]
    starting = asyncio.create_task(worker.start())
    await until(lambda: "start" in script.calls)
    assert (await get(worker, "readyz")).status_code == 503
    gate.set()
    await starting
    states.append(worker.state)
    assert (await get(worker, "readyz")).status_code == 200
    await worker.stop()
    states.append(worker.state)
    assert states == ["starting", "running", "draining"]


async def test_shows_draining_to_its_peers_before_the_card_goes(script: Script) -> None:
    async with make_worker("worker-2") as watcher:
        worker = make_worker("worker-1")
        await worker.start()
        await until(lambda: [peer.card["state"] for peer in watcher.peers()] == ["running"])
        gate = asyncio.Event()
        script.on["withdraw"] = gate.wait
        stopping = asyncio.create_task(worker.stop())
        await until(lambda: [peer.card["state"] for peer in watcher.peers()] == ["draining"])
        gate.set()
        await stopping
        assert script.workers() == ["worker-2"]


async def test_answers_requests_until_its_card_is_withdrawn(script: Script) -> None:
    worker = make_worker()
    await worker.start()
    gate = asyncio.Event()
    script.on["withdraw"] = gate.wait
    stopping = asyncio.create_task(worker.stop())
    await until(lambda: "withdraw" in script.calls)
    [row] = await rows(worker)
    assert row["state"] == "draining"
    gate.set()
    await stopping


async def test_refreshes_a_little_early_at_random_so_that_it_keeps_no_step_with_its_heartbeat(
    script: Script,
) -> None:
    """Trial "Two candidates with the same identity both lead": who always reads right after writing never
    sees the card of a second process of its name."""
    clock = FakeClock()
    times: dict[str, list[float]] = {"publish": [], "list": []}
    script.on |= {op: partial(note, clock, times[op]) for op in times}
    periods = {"fleet.registry.heartbeat_seconds": "15", "fleet.registry.refresh_seconds": "15"}
    overrides = {key.replace(".", "__"): text for key, text in periods.items()}
    values = settings(worker_name="worker-1", fleet__registry__offline_after_seconds="30", **overrides)
    async with Worker(values, environ={}, clock=clock, logger=RecordingLogger()):
        await until(lambda: len(times["list"]) == 1)
        await clock.advance(20 * 15)
    beats, reads = (gaps(times[op]) for op in ("publish", "list"))
    assert beats.count(15.0) == 20
    assert all(12 <= gap <= 15 for gap in reads)
    assert len({round(gap, 3) for gap in reads}) > 10


def note(clock: FakeClock, times: list[float]) -> None:
    times.append(clock.elapsed())


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


# -- starting


async def test_cannot_be_started_twice() -> None:
    async with make_worker() as worker:
        with pytest.raises(RuntimeError, match="started once"):
            await worker.start()
        assert (await get(worker)).status_code == 200


async def test_cannot_be_started_again_after_its_stop() -> None:
    async with make_worker() as worker:
        pass
    with pytest.raises(RuntimeError, match="started once"):
        await worker.start()


async def test_cannot_be_started_twice_at_once(script: Script) -> None:
    worker = make_worker()
    first, second = (asyncio.create_task(worker.start()) for _ in range(2))
    with pytest.raises(RuntimeError, match="started once"):
        await second
    await first
    assert script.calls.count("start") == 1
    await worker.stop()


@pytest.mark.parametrize("ticks", range(12))
async def test_a_start_that_is_cancelled_undoes_all_it_did(script: Script, ticks: int) -> None:
    port = free_port()
    script.on["start"] = hangs  # so that it cannot be done before it is cancelled
    starting = asyncio.create_task(make_worker(ui__port=str(port)).start())
    for _ in range(ticks):
        await asyncio.sleep(0)
    assert starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert is_free(port)


async def test_a_start_that_is_cancelled_while_the_store_hangs_undoes_all_it_did(script: Script) -> None:
    port = free_port()
    script.on["start"] = hangs
    starting = asyncio.create_task(make_worker(ui__port=str(port)).start())
    await until(lambda: "start" in script.calls)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert is_free(port)
    assert script.calls == ["start", "stop"]


async def test_a_start_under_a_time_limit_ends_with_it(script: Script) -> None:
    script.on["start"] = hangs
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await make_worker(fleet__registry__timeout_seconds="60").start()


# -- stopping


async def test_stopping_twice_is_stopping_once(script: Script) -> None:
    worker = make_worker()
    await worker.start()
    await asyncio.gather(worker.stop(), worker.stop())
    await worker.stop()
    assert [call for call in script.calls if call in ("withdraw", "stop")] == ["withdraw", "stop"]


async def test_every_stop_returns_only_when_the_one_stop_has_ended(script: Script) -> None:
    worker = make_worker()
    await worker.start()
    gate = asyncio.Event()
    script.on["withdraw"] = gate.wait
    stops = [asyncio.create_task(worker.stop()) for _ in range(2)]
    await until(lambda: "withdraw" in script.calls)
    done, _ = await asyncio.wait(stops, timeout=0.05)
    assert not done
    gate.set()
    await asyncio.gather(*stops)


async def test_stopping_before_the_start_prevents_it(script: Script) -> None:
    worker = make_worker()
    await worker.stop()
    with pytest.raises(RuntimeError):
        await worker.start()
    assert script.calls == []


@pytest.mark.parametrize("ticks", range(12))
async def test_a_stop_during_the_start_ends_both(script: Script, ticks: int) -> None:
    port = free_port()
    script.on["start"] = hangs  # so that it cannot be done before the stop
    worker = make_worker(ui__port=str(port))
    starting = asyncio.create_task(worker.start())
    for _ in range(ticks):
        await asyncio.sleep(0)
    await worker.stop()
    with pytest.raises(RuntimeError):
        await starting
    assert worker.state == "draining"
    assert is_free(port)


async def test_a_stop_while_the_start_waits_for_the_store_ends_both(script: Script) -> None:
    script.on["start"] = hangs
    worker = make_worker(fleet__registry__timeout_seconds="60")
    starting = asyncio.create_task(worker.start())
    await until(lambda: "start" in script.calls)
    async with asyncio.timeout(10):
        await worker.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        await starting
    assert script.calls == ["start", "stop"]


async def test_a_stop_right_after_the_store_answered_the_start_leaves_no_card(script: Script) -> None:
    gate = asyncio.Event()
    script.on["start"] = gate.wait
    worker = make_worker()
    starting = asyncio.create_task(worker.start())
    await until(lambda: "start" in script.calls)
    gate.set()
    await asyncio.gather(starting, worker.stop(), return_exceptions=True)
    assert worker.state == "draining"


async def test_a_stop_that_is_cancelled_completes_and_passes_the_cancellation_on(script: Script) -> None:
    port = free_port()
    worker = make_worker(ui__port=str(port))
    await worker.start()
    await until(lambda: script.workers() == ["worker-1"])
    gate = asyncio.Event()
    script.on["withdraw"] = gate.wait
    stopping = asyncio.create_task(worker.stop())
    await until(lambda: "withdraw" in script.calls)
    for _ in range(3):
        stopping.cancel()
        await asyncio.sleep(0.01)
    assert not stopping.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert script.calls[-1] == "stop"
    assert is_free(port)


async def test_leaving_the_block_by_an_error_stops_the_worker_and_keeps_the_error(script: Script) -> None:
    async def work() -> None:
        async with make_worker():
            await until(lambda: script.workers() == ["worker-1"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert script.calls[-1] == "stop"


async def test_a_stop_is_bounded_while_the_store_hangs(script: Script) -> None:
    worker = make_worker(fleet__registry__timeout_seconds="0.5")
    await worker.start()
    await until(lambda: "list" in script.calls)
    script.on |= dict.fromkeys(("publish", "list", "withdraw"), hangs)
    async with asyncio.timeout(4 * 0.5 + 10):
        await worker.stop()
    script.store.rows.clear()  # the card could not be taken back


# -- what cannot work


async def test_a_provider_that_does_not_exist_costs_nothing(script: Script) -> None:
    port = free_port()
    with pytest.raises(ConfigError, match=r"'scriptd'.*did you mean 'scripted'"):
        await make_worker(provider="scriptd", ui__port=str(port)).start()
    assert is_free(port)
    assert script.calls == []


async def test_a_configuration_that_the_provider_refuses_at_start_leaves_nothing_behind(
    script: Script,
) -> None:
    port = free_port()
    script.on["start"] = fails(ProviderConfigError("fleet.registry.scripted.script: cannot be used"))
    log = RecordingLogger()
    with pytest.raises(ConfigError, match=r"^fleet\.registry\.scripted\.script: cannot be used$"):
        await make_worker(log=log, ui__port=str(port)).start()
    assert is_free(port)
    assert log.named("fleet_url_is_loopback") == []  # the error alone
    assert script.calls == ["start", "stop"]


async def test_a_port_that_is_taken_is_named(script: Script) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UnavailableError, match=rf"ui\.port.*127\.0\.0\.1:{port}"):
            await make_worker(ui__port=str(port)).start()
    assert script.calls == []


async def test_an_address_of_another_host_is_named(script: Script) -> None:
    with pytest.raises(ConfigError, match=r"ui\.host.*192\.0\.2\.1"):
        await make_worker(ui__host="192.0.2.1").start()
    assert script.calls == []


async def test_a_name_from_the_environment_that_cannot_be_one_leaves_no_port_behind(script: Script) -> None:
    port = free_port()
    worker = Worker(
        settings(ui__port=str(port)), environ={"WORKER_ID": "worker\n1"}, logger=RecordingLogger()
    )
    with pytest.raises(ConfigError, match="WORKER_ID"):
        await worker.start()
    assert is_free(port)


async def test_a_provider_that_cannot_start_costs_the_peers_only(script: Script) -> None:
    log = RecordingLogger()
    script.on["start"] = fails(OSError("no route"))
    async with make_worker(log=log) as worker:
        assert [row["worker_name"] for row in await rows(worker)] == ["worker-1"]
        assert worker.state == "running"
    assert log.named("fleet_registry_start_failed") == [
        {"provider": "scripted", "error": "OSError: no route"}
    ]


# -- without a registry


async def test_without_the_server_there_is_no_port_and_no_registry(script: Script) -> None:
    log = RecordingLogger()
    async with make_worker(log=log, ui__enabled="false") as worker:
        assert worker.url is None
        assert worker.peers() == ()
        assert [row["worker_name"] for row in worker.workers()] == ["worker-1"]
        assert worker.registry_health() is None
    assert [(level, event) for level, event, _ in log.lines] == [("warning", "fleet_registry_disabled_no_ui")]
    assert script.calls == []


async def test_without_the_server_a_provider_that_does_not_exist_is_still_wrong() -> None:
    with pytest.raises(ConfigError, match="no such provider"):
        await make_worker(provider="nowhere", ui__enabled="false").start()


async def test_with_the_provider_of_nobody_it_is_alone_and_well() -> None:
    log = RecordingLogger()
    async with make_worker(provider="none", log=log) as worker:
        assert [row["online"] for row in await rows(worker)] == [True]
    assert [event for _, event, _ in log.lines] == ["fleet_registry_started"]


# -- names and addresses


async def test_two_workers_without_a_name_have_different_ones() -> None:
    async with make_worker("") as one, make_worker("") as two:
        assert one.name != two.name
        assert one.name.startswith(socket.gethostname())


async def test_two_workers_without_a_name_and_a_server_differ_between_processes() -> None:
    async with make_worker("", ui__enabled="false") as worker:
        assert worker.name.startswith(f"{socket.gethostname()}-")


async def test_takes_its_names_from_the_environment() -> None:
    environ = {"POD_NAME": "worker-7", "POD_GROUP": "search"}
    names = settings(worker_name_env="POD_NAME", cluster_name_env="POD_GROUP")
    async with Worker(names, environ=environ, logger=RecordingLogger()) as worker:
        assert (worker.name, worker.cluster) == ("worker-7", "search")


async def test_by_default_it_listens_on_loopback_at_8080_or_the_next_port_that_is_free() -> None:
    try:
        taken: socket.socket | None = socket.create_server(("127.0.0.1", 8080))
    except OSError:
        taken = None  # by somebody else, which is as good
    try:
        async with (
            make_worker("worker-1", ui__port="null") as one,
            make_worker("worker-2", ui__port="null") as two,
        ):
            ports = [worker.served.port for worker in (one, two)]
            assert all(8080 < (port or 0) < 8180 for port in ports)
            assert one.url == f"http://127.0.0.1:{ports[0]}/"
            assert (await get(two)).status_code == 200
    finally:
        if taken is not None:
            taken.close()


async def test_publishes_the_address_with_the_port_that_is_bound(script: Script) -> None:
    async with make_worker() as worker:
        port = worker.served.port
        assert port
        assert worker.url == f"http://127.0.0.1:{port}/"
        await until(lambda: script.workers() == ["worker-1"])
        assert b'"url":"http://127.0.0.1:%d/"' % port in script.store.rows["worker-1"].data


async def test_publishes_the_public_url_where_one_is_set(script: Script) -> None:
    async with make_worker(ui__public_url="https://worker-1.example/drakkar/") as worker:
        assert worker.url == "https://worker-1.example/drakkar/"
        await until(lambda: script.workers() == ["worker-1"])
        assert b'"url":"https://worker-1.example/drakkar/"' in script.store.rows["worker-1"].data


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1", "::1", "localhost"])
async def test_the_address_it_publishes_answers(host: str) -> None:
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    async with make_worker(ui__host=host) as worker:
        assert worker.url is not None
        assert "0.0.0.0" not in worker.url
        assert "[::]" not in worker.url
        assert (await get(worker)).json()[0]["url"] == worker.url
    await asyncio.get_running_loop().shutdown_default_executor()  # the client's, which looked the name up


async def test_puts_an_ipv6_address_in_brackets() -> None:
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")
    async with make_worker(ui__host="::1") as worker:
        assert worker.url == f"http://[::1]:{worker.served.port}/"


@pytest.mark.parametrize(
    ("host", "public_url", "provider", "warned"),
    [
        ("127.0.0.1", "", "scripted", True),
        ("localhost", "", "scripted", True),
        ("127.0.0.1", "http://worker-1.example/", "scripted", False),
        ("0.0.0.0", "", "scripted", False),
        ("127.0.0.1", "", "none", False),
    ],
)
async def test_warns_of_a_loopback_address_where_the_fleet_spans_hosts(
    host: str, public_url: str, provider: str, warned: bool
) -> None:
    log = RecordingLogger()
    async with make_worker(
        provider=provider, log=log, ui__host=host, **({"ui__public_url": public_url} if public_url else {})
    ) as worker:
        urls = [line["url"] for line in log.named("fleet_url_is_loopback")]
        assert urls == ([worker.url] if warned else [])


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


# -- a whole life in a strict interpreter


def test_leaves_no_warning_of_the_interpreter(tmp_path: Path) -> None:
    program = """
import asyncio, gc, urllib.request
from drakkar.settings import load_settings
from drakkar.worker import Worker

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is no fault of ours
    overrides = {"fleet.registry.provider": "none", "ui.port": "0"}
    settings = load_settings(environ={}, overrides=overrides)
    async with Worker(settings, environ={}) as worker:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: urllib.request.urlopen(worker.url + "metrics").read())
    starting = asyncio.create_task(Worker(settings, environ={}).start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    try:
        unknown = load_settings(environ={}, overrides=overrides | {"fleet.registry.provider": "nowhere"})
        await Worker(unknown, environ={}).start()
    except Exception as error:
        print(type(error).__name__)

asyncio.run(main())
gc.collect()
"""
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ConfigError\n", "")
