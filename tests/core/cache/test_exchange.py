"""Pulling from peers, sound ones and others: each costs its own time and nothing else."""

import asyncio
import gc
import gzip
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from drakkar.cache.changes import parse_query
from drakkar.cache.exchange import Exchange
from drakkar.cache.rows import Row
from drakkar.clock import SystemClock
from support.caches import NOW_MS, Puller, a_peer, a_row, flush, open_cache, page_of
from support.clock import FakeClock
from support.scripted_server import Reply, Send, Server, reply, serving
from support.workers import free_port

LIMIT_SECONDS = 3.0
MIB = 1024 * 1024


def page(*rows: Row, more: bool = False) -> Reply:
    return reply(page_of(rows, more))


def questions(server: Server) -> list[dict[str, str]]:
    """The parameters of each request that it got."""
    paths = [request.split()[1] for request in server.requests]
    return [{key: values[-1] for key, values in parse_qs(urlsplit(path).query).items()} for path in paths]


async def test_keeps_what_a_peer_has(tmp_path: Path) -> None:
    rows = [
        a_row("a", value='{"b": "\\u00e4"}'),
        a_row("b", NOW_MS + 1, scope="global", expires_at_ms=NOW_MS * 2),
    ]
    with serving(page(*rows)) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url))
            await puller.cycle()
            assert await service.cache.get("a") == {"b": "ä"}
            assert await service.cache.get("b") == "x"
    assert puller.outcomes() == {"ok": 1}
    assert questions(server) == [{"scopes": "cluster,global", "limit": "500"}]
    asked = server.requests[0].lower()
    assert "get /api/v1/peer/cache/changes?" in asked
    assert "accept-encoding: identity" in asked


async def test_reads_page_by_page_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    pages = [
        page(a_row("a"), a_row("b|/ä"), more=True),
        page(a_row("c", NOW_MS + 1)),
        page(a_row("d", NOW_MS + 2)),
    ]
    with serving(*pages) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url), page_size=2)
            await puller.cycle()
            assert await service.cache.get("c") == "x"
            assert await service.cache.get("d") is None
            await puller.cycle()
            assert await service.cache.get("d") == "x"
    assert [(one.get("after_ms"), one.get("after_key"), one["limit"]) for one in questions(server)] == [
        (None, None, "2"),
        (str(NOW_MS), "b|/ä", "2"),
        (str(NOW_MS + 1), "c", "2"),
    ]


async def test_pages_of_one_peer_come_over_one_connection(tmp_path: Path) -> None:
    async with (
        open_cache(tmp_path / "1") as origin,
        open_cache(tmp_path / "2", "worker-2") as service,
    ):
        for number in range(50):
            origin.cache.set(f"k{number}", number, scope="cluster")
        await flush(origin)
        connections = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            with suppress(asyncio.IncompleteReadError):
                while True:
                    request = (await reader.readuntil(b"\r\n\r\n")).decode()
                    query = parse_qs(urlsplit(request.split()[1]).query)
                    body = await origin.changes(
                        parse_query({key: values[-1] for key, values in query.items()})
                    )
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        puller = Puller(service, a_peer(url, "worker-1"), page_size=7)
        await puller.cycle()
        assert await service.cache.get("k49") == 49
        assert (connections, puller.outcomes()) == (1, {"ok": 8})
        server.close()


async def test_the_later_row_stays_whoever_was_asked_first(tmp_path: Path) -> None:
    clock = FakeClock()
    with serving(page(a_row("a", NOW_MS - 5), a_row("b", NOW_MS * 2))) as server:
        async with open_cache(tmp_path, clock=clock) as service:
            clock.step_wall(NOW_MS / 1000 - clock.wall().timestamp())
            service.cache.set("a", "ours")
            service.cache.set("b", "ours")
            await Puller(service, a_peer(server.url)).cycle()
            assert await service.cache.get("a") == "ours"
            assert await service.cache.get("b") == "x"
            service.cache.set("b", "anew")
            await flush(service)
            assert await service.cache.get("b") == "anew"


async def test_a_row_of_a_clock_far_ahead_is_kept_and_what_is_set_here_afterwards_wins(
    tmp_path: Path,
) -> None:
    """Who cannot know whose clock is wrong must not leave out what is never offered again."""
    ahead = NOW_MS + 366 * 86_400_000
    with serving(page(a_row("a", ahead)), page()) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url))
            await puller.cycle()
            assert await service.cache.get("a") == "x"
            service.cache.set("a", "y", scope="cluster")
            await flush(service)
            [row] = json.loads(await service.changes(parse_query({"scopes": "cluster"})))["rows"]
    assert row["updated_at_ms"] > ahead
    assert puller.log.named("fleet_peer_rows_rejected") == []


async def test_rows_of_another_scope_or_origin_are_left_and_told_once_a_cycle(tmp_path: Path) -> None:
    rows = [
        a_row("foreign-1", NOW_MS, scope="global", origin_worker_id="worker-3"),
        a_row("foreign-2", NOW_MS + 1, scope="global", origin_worker_id="worker-1"),
        a_row("local", NOW_MS + 2, scope="local"),
        a_row("good", NOW_MS + 3, scope="global"),
        a_row("cluster", NOW_MS + 4),
    ]
    with serving(page(*rows[:2], more=True), page(*rows[2:]), page()) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url, cluster="another"))
            await puller.cycle()
            got = {row.key for row in rows if await service.cache.get(row.key) is not None}
            await puller.cycle()
    assert got == {"good"}
    assert [line["rejected"] for line in puller.log.named("fleet_peer_rows_rejected")] == [
        {"origin": 2, "scope": 2}
    ]
    assert puller.log.level_of("fleet_peer_rows_rejected") == "warning"
    assert questions(server)[-1]["after_key"] == "cluster", "they are not asked for again"


async def test_a_value_that_is_no_json_is_no_value(tmp_path: Path) -> None:
    rows = [a_row("a", value="[" * 100_000), a_row("b", value="NaN"), a_row("c", value="")]
    with serving(page(*rows)) as server:
        async with open_cache(tmp_path) as service:
            await Puller(service, a_peer(server.url)).cycle()
            assert [await service.cache.get(row.key) for row in rows] == [None, None, None]


# -- hostile peers


def silent(send: Send) -> None:
    time.sleep(30)


def one_byte_a_second(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for byte in page_of([a_row()]):
        send(bytes([byte]))
        time.sleep(1)


def headers_without_end(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\n")
    while True:
        send(b"X-Header: %s\r\n" % (b"x" * 1000))


def body_without_end(send: Send) -> None:
    send(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"rows":[')
    while True:
        send(b" " * 65536)


def rows_without_end(send: Send) -> None:
    send(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"rows":[')
    number = 0
    while True:
        send(json.dumps(a_row(ms=NOW_MS + number, value="x" * 60_000)._asdict()).encode() + b",")
        number += 1


def sixty_five_mib(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    send(b'{"rows":[')
    for number in range(66 * MIB // 100_000):
        send(
            b"," * bool(number)
            + json.dumps(a_row(ms=NOW_MS + number, value="x" * 100_000)._asdict()).encode()
        )
    send(b'],"more":false}')


def says_sixty_five_mib(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (65 * MIB))
    time.sleep(30)


def one_value_of_sixty_mib(send: Send) -> None:
    send(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"rows":[{"key":"a","value":"')
    for _ in range(60):
        send(b"x" * MIB)


def dense(send: Send) -> None:
    send(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"rows":[{"key":[')
    for _ in range(60):
        send(b"1," * (MIB // 2))


def chunks_of_one_byte(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(100):
        send(b"1\r\n \r\n" * 10_000)
    time.sleep(30)


BOMB = gzip.compress(b'{"rows":[' + b" " * (200 * MIB))
WRONG_LENGTH = page_of([a_row()])

HOSTILE: dict[str, tuple[Reply, str]] = {
    "silent": (silent, "timeout"),
    "chunks of one byte": (chunks_of_one_byte, "timeout"),
    "one byte a second": (one_byte_a_second, "timeout"),
    "headers without end": (headers_without_end, "transport_error"),
    "body without end": (body_without_end, "bad_body"),
    "rows without end": (rows_without_end, "bad_body"),
    "65 MiB": (sixty_five_mib, "bad_body"),
    "says 65 MiB": (says_sixty_five_mib, "bad_body"),
    "one value of 60 MiB": (one_value_of_sixty_mib, "bad_body"),
    "dense": (dense, "bad_body"),
    "wrong order": (page(a_row("a", NOW_MS + 1), a_row("b", NOW_MS)), "bad_body"),
    "more, but nothing": (page(more=True), "bad_body"),
    "truncated": (reply(page_of([a_row()])[:-20]), "bad_body"),
    "no json": (reply(b"<html>"), "bad_body"),
    "deep nesting": (reply(b"[" * 1_000_000), "bad_body"),
    "deep rows": (reply(b'{"rows":' + b'[{"a":' * 500_000), "bad_body"),
    "length too long": (
        lambda send: send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + WRONG_LENGTH),
        "transport_error",
    ),
    "length too short": (
        lambda send: send(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n" + WRONG_LENGTH),
        "bad_body",
    ),
    "length no number": (
        lambda send: send(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n" + WRONG_LENGTH),
        "transport_error",
    ),
    "gzip bomb": (reply(BOMB, "200 OK", "Content-Encoding: gzip"), "bad_body"),
    "no http": (lambda send: send(b"SSH-2.0-OpenSSH\r\n"), "transport_error"),
    "hangs up": (lambda send: None, "transport_error"),
    "not found": (reply(b"{}", "404 Not Found"), "http_error"),
    "failing": (reply(b"{}", "503 Service Unavailable"), "http_error"),
    "no content": (reply(b"", "204 No Content"), "http_error"),
    "needs a token": (reply(b"{}", "401 Unauthorized"), "http_error"),
}


@asynccontextmanager
async def ticking() -> AsyncIterator[tuple[list[float], list[float]]]:
    """By how much the event loop was late, in seconds of processor time: of this process, and of the loop's
    thread. A busy machine holds up everything, but only what computes here holds up the event loop alone.
    What other tests left in memory is not collected meanwhile."""
    late: list[float] = []
    busy: list[float] = []

    async def tick() -> None:
        while True:
            began, began_here = time.process_time(), time.thread_time()
            await asyncio.sleep(0.001)
            late.append(time.process_time() - began)
            busy.append(time.thread_time() - began_here)

    gc.collect()
    gc.freeze()
    task = asyncio.ensure_future(tick())
    try:
        yield late, busy
    finally:
        task.cancel()
        gc.unfreeze()


@pytest.mark.parametrize("kind", ["hangs up", "length too long", "hangs up in its head", "and in a chunk"])
async def test_a_peer_that_dies_in_its_answer_is_told_as_that(tmp_path: Path, kind: str) -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    more: dict[str, Reply] = {
        "hangs up in its head": lambda send: send(head),
        "and in a chunk": lambda send: send(head + b"Transfer-Encoding: chunked\r\n\r\n50\r\n{"),
    }
    answer = more[kind] if kind in more else HOSTILE[kind][0]
    with serving(answer) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url))
            await puller.cycle()
    [line] = puller.log.named("fleet_peer_request_failed")
    assert "closed the connection" in line["error"]


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_peer_costs_its_own_time_and_nothing_else(tmp_path: Path, kind: str) -> None:
    answer, outcome = HOSTILE[kind]
    limit = LIMIT_SECONDS if outcome == "timeout" else 20
    good = page(a_row("good", origin_worker_id="worker-3")), page()
    with serving(answer) as hostile, serving(*good) as sound:
        async with open_cache(tmp_path) as service, ticking() as (late, busy):
            peers = (a_peer(hostile.url), a_peer(sound.url, "worker-3"))
            puller = Puller(service, *peers, timeout_seconds=limit)
            began = time.monotonic()
            await puller.cycle()
            took = time.monotonic() - began
            assert await service.cache.get("good") == "x", "the others get their turn"
            assert await service.cache.get("a") is None
            await puller.cycle(2)
    assert puller.outcomes() == {"ok": 3, outcome: 2}, "it sits out the cycle in between"
    assert took < 20
    assert max(late) < 0.3, "what would hold up the event loop here takes seconds"
    assert max(busy) < 0.05, "the event loop itself does little at once"
    [line] = puller.log.named("fleet_peer_request_failed")
    assert (line["peer"], line["outcome"], line["endpoint"]) == ("worker-2", outcome, "cache_changes")
    assert [(one["skip_cycles"], one["failures"]) for one in puller.log.named("fleet_peer_backoff")] == [
        (1, 1),
        (2, 2),
    ]


@pytest.mark.parametrize("kind", ["gzip bomb", "body without end", "one value of 60 MiB", "dense"])
async def test_a_large_body_takes_little_memory(tmp_path: Path, kind: str) -> None:
    answer, _ = HOSTILE[kind]
    with serving(answer) as server:
        async with open_cache(tmp_path) as service:
            tracemalloc.start()
            async with ticking():
                await Puller(service, a_peer(server.url), timeout_seconds=30).cycle()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert peak < 16 * MIB


async def test_a_compressed_body_is_not_even_read(tmp_path: Path) -> None:
    with serving(reply(page_of([a_row("a")]), "200 OK", "Content-Encoding: gzip")) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url))
            await puller.cycle()
            assert await service.cache.get("a") is None
    assert puller.outcomes() == {"bad_body": 1}


async def test_a_page_that_does_not_move_on_is_refused(tmp_path: Path) -> None:
    with serving(page(a_row("a"), more=True)) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url))
            await puller.cycle()
    assert puller.outcomes() == {"ok": 1, "bad_body": 1}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(tmp_path: Path, status: int) -> None:
    with serving(page(a_row())) as elsewhere:
        moved = reply(b"", f"{status} Moved", f"Location: {elsewhere.url}api/v1/peer/cache/changes")
        with serving(moved) as server:
            async with open_cache(tmp_path) as service:
                puller = Puller(service, a_peer(server.url))
                await puller.cycle()
    assert puller.outcomes() == {"http_error": 1}
    assert elsewhere.requests == []


async def test_no_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(page(a_row())) as server, serving(page()) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with open_cache(tmp_path) as service:
            await Puller(service, a_peer(server.url)).cycle()
            assert await service.cache.get("a") == "x"
    assert proxy.requests == []


@pytest.mark.parametrize("how", ["nobody listens", "full backlog", "no such name"])
async def test_a_peer_that_cannot_be_reached_costs_its_limit(tmp_path: Path, how: str) -> None:
    waiting: list[socket.socket] = []
    with socket.socket() as listener:
        url = f"http://127.0.0.1:{free_port()}/"
        if how == "full backlog":
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            waiting = [socket.socket() for _ in range(4)]
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(listener.getsockname())
        elif how == "no such name":
            url = "http://worker-2.invalid:8080/"
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(url), timeout_seconds=LIMIT_SECONDS)
            began = time.monotonic()
            await puller.cycle()
            assert time.monotonic() - began < LIMIT_SECONDS + 5
        for one in waiting:
            one.close()
    assert len(puller.log.named("fleet_peer_request_failed")) == 1
    assert {*puller.outcomes()} <= {"timeout", "transport_error"}


async def test_a_peer_that_works_again_is_as_any_other(tmp_path: Path) -> None:
    with serving(reply(b"", "500 Oops"), page(a_row("a")), reply(b"", "500 Oops")) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url))
            await puller.cycle(4)
    assert [line["failures"] for line in puller.log.named("fleet_peer_backoff")] == [1, 1]
    assert len(puller.log.named("fleet_peer_request_failed")) == 2


# -- many peers


async def test_no_more_than_so_many_are_asked_at_once(tmp_path: Path) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def slowly(send: Send) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.1)
        with lock:
            now -= 1
        page()(send)

    with serving(slowly) as server:
        async with open_cache(tmp_path) as service:
            peers = [a_peer(server.url, f"worker-{number}") for number in range(9)]
            puller = Puller(service, *peers, max_concurrent_peers=3)
            await puller.cycle()
    assert puller.outcomes() == {"ok": 9}
    assert most == 3


async def test_a_cycle_ends_at_its_deadline_and_the_next_begins_with_who_is_left(tmp_path: Path) -> None:
    with serving(silent) as server, serving(page()) as sound:
        async with open_cache(tmp_path) as service:
            slow = [a_peer(server.url, f"worker-{number}") for number in (2, 3)]
            puller = Puller(
                service,
                *slow,
                a_peer(sound.url, "worker-4"),
                timeout_seconds=60,
                cycle_deadline_seconds=2,
                max_concurrent_peers=1,
            )
            began = time.monotonic()
            await puller.cycle()
            assert time.monotonic() - began < 30
            assert puller.outcomes() == {"timeout": 1}, "what was left is not counted"
            await puller.cycle()
    assert puller.count("ok") == 1


async def test_a_peer_that_hangs_is_told_however_short_the_cycles_are(tmp_path: Path) -> None:
    with serving(silent) as server:
        async with open_cache(tmp_path) as service:
            peer = a_peer(server.url)
            puller = Puller(service, peer, timeout_seconds=5, cycle_deadline_seconds=1)
            await puller.cycle()
    assert puller.outcomes() == {"timeout": 1}
    [line] = puller.log.named("fleet_peer_request_failed")
    assert (line["outcome"], line["error"]) == ("timeout", "no answer within 0.9 s")
    assert len(puller.log.named("fleet_peer_backoff")) == 1


async def test_what_was_read_before_the_deadline_is_kept(tmp_path: Path) -> None:
    with serving(page(a_row("a"), more=True), silent) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url), timeout_seconds=60, cycle_deadline_seconds=1)
            await puller.cycle()
            assert await service.cache.get("a") == "x"
            await puller.cycle()
    assert questions(server)[-1]["after_key"] == "a"


async def test_a_stop_waits_for_no_peer(tmp_path: Path) -> None:
    with serving(silent) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(
                service, a_peer(server.url), clock=SystemClock(), timeout_seconds=60, interval_seconds=0.001
            )
            puller.exchange.start()
            async with asyncio.timeout(10):
                while not server.requests:  # noqa: ASYNC110  a thread has it
                    await asyncio.sleep(0.01)
            began = time.monotonic()
            await puller.exchange.stop()
            assert time.monotonic() - began < 30


# -- peers that begin anew


@pytest.mark.parametrize("kept", [True, False])
async def test_a_peer_that_started_again_with_another_file_is_read_from_the_beginning(
    tmp_path: Path, kept: bool
) -> None:
    features = {"cache": {"cluster": {"ms": NOW_MS, "key": "a"}}}
    again = [a_row("old", NOW_MS - 50, value='"new"')]
    replies = [page(a_row("a")), page(a_row("a"), a_row("b", NOW_MS + 1)) if kept else page(), page(*again)]
    with serving(*replies) as server:
        async with open_cache(tmp_path) as service:
            puller = Puller(service, a_peer(server.url, instance="1", features=features))
            await puller.cycle()
            puller.peers = [a_peer(server.url, instance="2", features=features)]
            await puller.cycle()
            assert await service.cache.get("old") == (None if kept else "new")
            assert await service.cache.get("b") == ("x" if kept else None)
            await puller.cycle()
    asked = [(one.get("after_ms"), one.get("after_key")) for one in questions(server)]
    verified = (str(NOW_MS - 1), "\U0010ffff")
    assert asked == [(None, None), verified] if kept else [(None, None), verified, (None, None)]


async def test_a_failing_disk_is_no_fault_of_the_peer(tmp_path: Path) -> None:
    with serving(page(a_row("a"))) as server:
        async with open_cache(tmp_path) as service:
            store = service._store
            assert store is not None
            puller = Puller(service, a_peer(server.url))
            await service.thread.run(lambda: store._db.execute("PRAGMA query_only = ON"))
            await puller.cycle()
            await service.thread.run(lambda: store._db.execute("PRAGMA query_only = OFF"))
            assert puller.log.lines == []
            await puller.cycle()
            assert await service.cache.get("a") == "x", "it is asked for again"


async def test_a_cycle_that_fails_is_not_the_last(tmp_path: Path) -> None:
    calls = 0

    def peers() -> list[object]:
        nonlocal calls
        calls += 1
        raise ValueError("oops")

    async with open_cache(tmp_path) as service:
        puller = Puller(service, clock=SystemClock(), interval_seconds=0.001)
        exchange: Exchange = puller.exchange
        exchange._peers = peers  # type: ignore[assignment]
        exchange.start()
        async with asyncio.timeout(10):
            while calls < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await exchange.stop()
    assert len(puller.log.named("cache_exchange_failed")) == 1
