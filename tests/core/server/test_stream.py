"""The stream of events: parts, sent when they changed, to readers who come back, are slow or never read."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from drakkar.fleet.testkit import make_card
from drakkar.server import http, stream
from drakkar.server.messages import to_json
from drakkar.server.stream import MAX_STREAMS, number_in
from drakkar.supervisor.fanout import FanOut
from drakkar.supervisor.worker import BackgroundWorker
from drakkar.worker import Worker
from support.log import RecordingLogger
from support.scripted import Script, stranger
from support.supervised import Job
from support.waiting import until
from support.workers import get, make_worker, other_tasks, rows, settings

PARTS = {"workers", "seen", "registry", "supervisor", "history", "leases"}
LIMIT_SECONDS = 20


@dataclass
class Message:
    event: str
    id: str
    data: Any


class Reader:
    """Reads one stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self, event: str = "") -> Message:
        """The next message, or the next one of this kind."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                fields: dict[str, str] = {}
                while line := await anext(self._lines):
                    name, _, value = line.partition(": ")
                    fields[name] = value
                if "event" in fields and event in ("", fields["event"]):
                    return Message(fields["event"], fields.get("id", ""), json.loads(fields["data"]))

    async def until(self, events: set[str]) -> dict[str, Message]:
        """The last message of each kind, as soon as there is one of all of these."""
        found: dict[str, Message] = {}
        while not events <= found.keys():
            message = await self.next()
            found[message.event] = message
        return found


@asynccontextmanager
async def reading(worker: Worker, after: str = "", **headers: str) -> AsyncIterator[Reader]:
    async with (
        httpx.AsyncClient(timeout=LIMIT_SECONDS, trust_env=False) as client,
        client.stream("GET", f"{worker.url}api/v1/events?after={after}", headers=headers) as response,
    ):
        yield Reader(response)


def leading(*workers: BackgroundWorker | FanOut) -> Worker:
    """A worker in whose registry nothing happens."""
    chosen = settings("none", worker_name="worker-1", fleet__registry__refresh_seconds="600")
    return Worker(chosen, workers=workers, environ={}, logger=RecordingLogger())


async def test_begins_with_who_speaks_and_then_sends_every_part(script: Script) -> None:
    script.strangers = [stranger(make_card("worker-2"))]
    async with make_worker() as worker:
        await until(lambda: len(worker.peers()) == 1)
        async with reading(worker) as reader:
            assert reader.response.headers["content-type"] == "text/event-stream; charset=utf-8"
            first = await reader.next()
            assert (first.event, first.id) == ("hello", "")
            assert first.data["instance"] == worker.instance
            assert first.data["login"] is False
            found = await reader.until(PARTS)
        listed = await rows(worker)
    for row in listed:
        del row["last_seen_ts"]
    assert found["workers"].data == {"rows": listed}
    assert found["seen"].data["last_seen_ts"][0] is None  # the worker itself is always just seen
    assert found["seen"].data["last_seen_ts"][1] == pytest.approx(time.time(), abs=LIMIT_SECONDS)
    assert found["registry"].data["registry"]["provider"] == "scripted"
    assert found["supervisor"].data == {"workers": None}
    assert found["leases"].data == {"leases": None}
    assert found["history"].data["events"] == []


async def test_sends_a_part_again_when_it_changed_and_not_otherwise(script: Script) -> None:
    script.strangers = [stranger(make_card("worker-2"))]
    async with make_worker() as worker, reading(worker) as reader:
        await reader.until(PARTS)
        kinds: list[str] = []
        while kinds.count("registry") < 3:  # which is another one after each refresh
            kinds.append((await reader.next()).event)
        assert set(kinds) <= {"registry", "seen", "workers"}
        assert kinds.count("workers") <= 1  # the peer may just have come
        script.strangers.append(stranger(make_card("worker-3")))
        news = await reader.next("workers")
        assert [row["worker_name"] for row in news.data["rows"]] == ["worker-1", "worker-2", "worker-3"]


async def test_who_comes_back_gets_what_it_missed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with leading() as worker:
        async with reading(worker) as reader:
            found = await reader.until(PARTS)
        newest = max(
            (message.id for message in found.values()), key=lambda id: number_in(id, worker.instance)
        )
        monkeypatch.setattr(stream, "BEAT_SECONDS", 0.01)
        for after, headers in ((newest, {}), ("", {"Last-Event-ID": newest})):
            async with reading(worker, after=after, **headers) as reader:
                heard = [(await reader.next()).event]
                while heard[-1] != "beat":
                    heard.append((await reader.next()).event)
            assert set(heard) <= {"hello", "leases", "beat"}  # the leases are read anew for a new reader


@pytest.mark.parametrize("after", ["another.99", "99", ".", "x.y", "another." + "9" * 5000])
async def test_who_comes_from_another_start_gets_everything(script: Script, after: str) -> None:
    async with make_worker() as worker, reading(worker, after=after) as reader:
        await reader.until(PARTS)


async def test_the_numbers_rise(script: Script) -> None:
    async with make_worker() as worker, reading(worker) as reader:
        await reader.next("hello")
        messages = [await reader.next() for _ in range(8)]
    numbers = [number_in(message.id, worker.instance) for message in messages if message.event != "beat"]
    assert numbers == sorted(set(numbers))


async def test_tells_what_background_workers_do_and_what_has_happened() -> None:
    async def fail(_ctx: object) -> None:
        raise RuntimeError("no disk at http://user:hunter2@10.0.0.1/ \udc80")

    steady, failing = Job(), Job(fail)
    async with leading(steady.worker("steady"), failing.worker("failing")) as worker:
        await until(lambda: bool(failing.starts and steady.running))
        async with reading(worker) as reader:
            supervisor = (await reader.next("supervisor")).data
            while len(events := (await reader.next("history")).data["events"]) < 3:
                pass
            while len(held := (await reader.next("leases")).data["leases"] or []) < 1:
                pass
    lanes = {lane["name"]: lane for one in supervisor["workers"] for lane in one["lanes"]}
    assert lanes["steady"]["status"] == "leading"
    assert isinstance(lanes["steady"]["token"], str)
    assert {row["name"] for row in held} >= {"steady-leader"}
    assert all(isinstance(row["token"], str) for row in held)
    [crash, *_] = [event for event in events if event["event"] == "crashed"]
    assert (crash["name"], crash["shard"]) == ("failing", "-")
    assert "no disk" in crash["error"]
    assert "hunter2" not in repr((events, supervisor))
    assert [event["number"] for event in events] == sorted((e["number"] for e in events), reverse=True)


async def test_tells_why_the_registry_fails_and_no_secret(script: Script) -> None:
    def fail() -> None:
        raise OSError("no route to redis://:hunter2@10.0.0.1/")

    async with make_worker() as worker, reading(worker) as reader:
        await reader.until({"registry"})
        script.on["list"] = fail
        while "list" not in (failing := (await reader.next("registry")).data["registry"]["failing"]):
            pass
    assert "no route" in failing["list"]["error"]
    assert "hunter2" not in repr(failing)
    assert failing["list"]["since_ts"] == pytest.approx(time.time(), abs=LIMIT_SECONDS)


async def test_shows_who_led_what(script: Script) -> None:
    card = make_card("worker-2", features={"leader_for": ["gc"]})
    script.strangers = [stranger(card)]
    async with make_worker() as worker, reading(worker) as reader:
        while not (spans := (await reader.next("history")).data["spans"]):
            pass
        assert [(span["name"], span["worker"], span["to_ts"]) for span in spans] == [("gc", "worker-2", None)]
        script.strangers = [stranger(make_card("worker-2", features={"leader_for": []}))]
        [ended] = (await reader.next("history")).data["spans"]
        assert ended["from_ts"] == spans[0]["from_ts"] <= ended["to_ts"]


async def test_beats_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BEAT_SECONDS", 0.01)
    async with leading() as worker, reading(worker) as reader:
        assert (await reader.next("beat")).data["now_ts"] == pytest.approx(time.time(), abs=LIMIT_SECONDS)


async def test_leaves_nothing_behind_when_its_reader_goes(script: Script) -> None:
    async with make_worker() as worker:
        async with reading(worker) as reader:
            await reader.until(PARTS)
        await until(lambda: not [name for name in other_tasks() if "stream" in name or "listing" in name])


async def test_streams_beyond_the_limit_are_refused(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_STREAMS", 2)
    assert MAX_STREAMS >= 16
    async with make_worker() as worker:
        async with reading(worker) as one, reading(worker) as two:
            await one.next("workers")
            await two.next("workers")
            answer = await get(worker, "api/v1/events")
            assert (answer.status_code, "error" in answer.json()) == (503, True)
        await until(lambda: "drakkar event stream" not in other_tasks())
        async with reading(worker) as reader:
            await reader.next("workers")


def one_that_never_reads(worker: Worker) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", worker.served.port))
    client.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


def many() -> Sequence[Any]:
    return [stranger(make_card(f"worker-{n}", version="x" * 500)) for n in range(2, 4001)]


async def test_a_reader_that_takes_nothing_is_dropped(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SLOW_SECONDS", 0.2)
    script.strangers = [*many()]
    async with make_worker() as worker:
        await until(lambda: len(worker.peers()) == len(script.strangers))
        with one_that_never_reads(worker):
            await until(lambda: "drakkar event stream" in other_tasks())
            await until(lambda: "drakkar event stream" not in other_tasks())


async def test_streams_do_not_delay_the_stop(
    script: Script, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trial "Secrets in logs": the open stream does not delay the exit. One that did would use what the
    server gives requests that are under way, which is more here than the test waits."""
    monkeypatch.setattr(http, "_GRACE_SECONDS", 10 * LIMIT_SECONDS)
    script.strangers = [*many()]
    worker = make_worker()
    await worker.start()
    await until(lambda: len(worker.peers()) == len(script.strangers))
    with one_that_never_reads(worker):
        async with reading(worker) as one, reading(worker) as two:
            await one.next("workers")
            await two.next("workers")
            async with asyncio.timeout(LIMIT_SECONDS):
                await worker.stop()
            with pytest.raises(httpx.HTTPError):
                await one.next("never")
    assert other_tasks() == set()
    assert caplog.records == []


def test_any_text_is_one_line_of_ascii() -> None:
    text = "a\nb\r\u2028\u2029\udc80\x00ü</script>"
    line = to_json({"text": text})
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {"text": text}
