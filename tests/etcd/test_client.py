"""The traps of the client library, each with what it does by itself where that can be shown, and ours."""

import asyncio
import json
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager

import pytest
from drakkar_etcd._answers import CompactedError, EtcdError, UnansweredError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._grant import Grant
from drakkar_etcd._wire import Folder, encoded
from drakkar_etcd.settings import EtcdSettings
from etcd3 import AioClient  # type: ignore[import-untyped]  # it has no types
from support.etcd_servers import Etcd
from support.scripted_server import reply, serving
from support.tcp_proxy import Verb, proxy_to
from support.waiting import until

NOBODY = "http://127.0.0.1:1"


async def opened(*endpoints: str, limit_seconds: float = 10.0) -> EtcdClient:
    client = EtcdClient(EtcdSettings(endpoints=endpoints))
    client.open(limit_seconds)
    return client


@pytest.fixture
async def client(etcd: Etcd) -> AsyncIterator[EtcdClient]:
    client = await opened(etcd.endpoint)
    yield client
    await client.close()


@contextmanager
def silent() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


# --- the constructor ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
async def test_the_library_alone_cannot_be_made_while_the_server_is_down() -> None:
    with pytest.raises(AttributeError, match="server_version_sem"):
        AioClient(port=1)


async def test_it_opens_at_once_without_a_server() -> None:
    with silent() as endpoint:
        began = time.perf_counter()
        client = await opened(endpoint)
        assert (
            time.perf_counter() - began < 0.2
        )  # the library would have waited for 0.3 s, and the loop with it
        await client.close()


async def test_it_opens_twice_and_closes_twice_and_says_when_it_is_closed(etcd: Etcd) -> None:
    client = await opened(etcd.endpoint)
    client.open(5)
    await client.close()
    await client.close()

    with pytest.raises(RuntimeError, match="was stopped"):
        await client.call("/kv/range", {"key": encoded("x")})


# --- answers ------------------------------------------------------------------------------------------------


async def test_it_reads_the_refusals_of_every_version(client: EtcdClient) -> None:
    with pytest.raises(EtcdError, match="requested lease not found") as refused:
        await client.call("/lease/revoke", {"ID": "12345"})

    assert refused.value.code == 5
    assert refused.value.lease_is_gone
    assert not refused.value.unavailable


@pytest.mark.filterwarnings("ignore")
async def test_the_library_alone_cannot_read_the_refusals_of_a_server_of_3_5(etcd: Etcd) -> None:
    library = AioClient(port=etcd.port)
    try:
        with pytest.raises(TypeError if etcd.program == "etcd-3.5" else Exception) as failed:
            await library.lease_revoke(12345)
        assert ("NoneType" in str(failed.value)) == (etcd.program == "etcd-3.5")
    finally:
        await library.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\n<h1>Hm?</h1>\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
)
async def test_it_says_so_when_there_is_no_etcd_at_the_address(answer: bytes) -> None:
    with serving(lambda send: send(answer)) as server:
        client = await opened(server.url.rstrip("/"))
        told = rf"no answer from etcd, {client.endpoint}.*is there an etcd .*fleet\.registry\.etcd\.endpoints"
        with pytest.raises(UnansweredError, match=told):
            await client.call("/kv/range", {"key": encoded("x")})
        await client.close()


async def test_text_of_any_script_is_stored_as_utf8(client: EtcdClient, etcd: Etcd, prefix: str) -> None:
    await client.call("/kv/put", {"key": encoded(prefix), "value": encoded("é漢")})

    assert etcd.get(prefix) is not None
    assert etcd.get(prefix)["value"] == "é漢".encode()  # type: ignore[index]  # looked at in the line above


@pytest.mark.filterwarnings("ignore")
async def test_the_library_alone_stores_text_as_latin_1(etcd: Etcd, prefix: str) -> None:
    library = AioClient(port=etcd.port)
    try:
        await library.put(prefix, "é")
        assert etcd.get(prefix)["value"] == b"\xe9"  # type: ignore[index]  # it was put just now
        with pytest.raises(UnicodeEncodeError):
            await library.put(prefix, "漢")
    finally:
        await library.close()


async def test_a_keep_alive_without_a_ttl_means_that_the_lease_is_gone(
    client: EtcdClient, etcd: Etcd
) -> None:
    grant = Grant(client, 30)
    first = await grant.ensure()
    assert await grant.keep_alive()

    etcd.revoke(first)
    answer = await client.call("/lease/keepalive", {"ID": str(first)})

    assert "TTL" not in answer["result"]  # which is all that etcd says
    assert not await grant.keep_alive()
    assert await grant.ensure() != first


async def test_a_lease_whose_grant_had_no_answer_is_found_again(client: EtcdClient, etcd: Etcd) -> None:
    grant = Grant(client, 30)
    grant.id = 4711
    etcd.call("/lease/grant", {"ID": "4711", "TTL": "30"})

    assert await grant.ensure() == 4711
    assert await grant.keep_alive()


@pytest.mark.parametrize("method", ["call", "watch"])
@pytest.mark.parametrize("cut", [b"x", b"x\n"], ids=["", "in lines"])
async def test_an_answer_without_an_end_is_not_read_to_it(
    method: str, cut: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drakkar_etcd._reading.MAX_ANSWER_BYTES", 300_000)
    sent = 0

    def endless(send: Callable[[bytes], None]) -> None:
        nonlocal sent
        send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            send(1000 * b"x" + cut)
            sent += 1000

    with serving(endless) as server:
        client = await opened(server.url.rstrip("/"))
        asked = client.call("/kv/range", {}) if method == "call" else anext(client.watch({}))
        with pytest.raises((UnansweredError, EtcdError)) as failed:
            await asked
        await client.close()

    assert "300000 bytes" in str(failed.value) or (method, cut) == ("watch", b"x\n")
    assert sent < 50_000_000  # what the kernel took, most of it


async def test_a_watch_is_read_however_its_lines_come() -> None:
    lines = [
        json.dumps({"result": {"header": {"revision": str(number)}}}).encode() for number in range(1, 50)
    ]
    stream = b"\n".join(lines)

    def in_pieces(send: Callable[[bytes], None]) -> None:
        send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(stream)}\r\n\r\n".encode())
        for begin in range(0, len(stream), 37):
            send(stream[begin : begin + 37])
            time.sleep(0.001)

    with serving(in_pieces) as server:
        client = await opened(server.url.rstrip("/"))
        heard = [message async for message in client.watch({"key": encoded("x")})]
        await client.close()

    assert [int(message["header"]["revision"]) for message in heard] == [*range(1, 50)]


# --- time limits and endpoints ------------------------------------------------------------------------------


async def test_a_server_that_says_nothing_costs_the_time_limit() -> None:
    with silent() as endpoint:
        client = await opened(endpoint, limit_seconds=0.3)
        began = time.monotonic()
        with pytest.raises(UnansweredError, match="no answer in time"):
            await client.call("/kv/range", {"key": encoded("x")})
        assert time.monotonic() - began < 5
        await client.close()


async def test_a_failure_names_the_endpoint() -> None:
    client = await opened(NOBODY)
    with pytest.raises(
        UnansweredError, match=r"no answer from etcd, http://127\.0\.0\.1:1: Connection refused$"
    ):
        await client.call("/kv/range", {"key": encoded("x")})
    await client.close()


async def test_a_failure_names_every_endpoint_in_the_order_of_the_settings_each_time() -> None:
    """What does not change is logged once."""
    with silent() as hung:
        client = await opened(NOBODY, hung, "http://127.0.0.2:1", limit_seconds=0.6)
        told = []
        for _ in range(4):
            with pytest.raises(UnansweredError) as failed:
                await client.call("/kv/range", {"key": encoded("x")})
            told.append(str(failed.value))
        await client.close()

    reasons = ("Connection refused", "no answer in time", "Connection refused")
    expected = "; ".join(map(": ".join, zip((NOBODY, hung, "http://127.0.0.2:1"), reasons, strict=True)))
    assert told == 4 * [f"no answer from etcd, {expected}"]


async def test_a_failure_of_many_endpoints_is_a_line_of_sane_length() -> None:
    with serving(
        reply(b'{"code": 14, "message": "' + 5000 * b"x" + b'"}', "503 Service Unavailable")
    ) as server:
        port = server.url.rstrip("/").rpartition(":")[2]
        client = await opened(*(f"http://127.0.0.{number}:{port}" for number in range(1, 31)))
        with pytest.raises(UnansweredError) as failed:
            await client.call("/kv/range", {"key": encoded("x")})
        await client.close()

    assert 1000 < len(str(failed.value)) <= 2000


async def test_the_next_endpoint_is_asked_within_the_call_and_stays(etcd: Etcd) -> None:
    with silent() as hung:
        client = await opened(NOBODY, hung, etcd.endpoint, limit_seconds=1.5)
        await client.call("/kv/range", {"key": encoded("x")})
        assert client.endpoint == etcd.endpoint
        await client.close()


async def test_what_may_not_be_repeated_is_not_sent_a_second_time(etcd: Etcd) -> None:
    with silent() as hung:
        client = await opened(NOBODY, hung, etcd.endpoint, limit_seconds=1.5)
        with pytest.raises(UnansweredError):
            await client.call("/kv/range", {"key": encoded("x")}, repeat=False)
        assert client.endpoint == etcd.endpoint
        await client.close()


async def test_many_watches_leave_room_for_calls(client: EtcdClient, prefix: str) -> None:
    begun = asyncio.Semaphore(0)

    async def watch() -> None:
        async with aclosing(client.watch({"key": encoded(prefix)})) as messages:
            async for _ in messages:
                begun.release()

    watching = [asyncio.create_task(watch()) for _ in range(40)]
    for _ in watching:
        await begun.acquire()
    for _ in range(5):
        await client.call("/kv/range", {"key": encoded("x")})
    for task in watching:
        task.cancel()
    await asyncio.wait(watching)


# --- watches ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
async def test_the_library_alone_loses_events_of_a_burst_or_has_no_watches_at_all(
    client: EtcdClient, etcd: Etcd, prefix: str
) -> None:
    library = AioClient(port=etcd.port)
    heard = 0
    try:
        async with asyncio.timeout(3):
            stream = library.watch_create(prefix)
            await anext(aiter(stream))
            puts = [{"key": encoded(prefix), "value": encoded(str(number))} for number in range(200)]
            await asyncio.gather(*(client.call("/kv/put", put) for put in puts))
            while heard < 200:
                heard += len((await anext(aiter(stream))).events or ())
    except TypeError:  # under aiohttp 3.11 and later
        pass
    except TimeoutError:
        pass
    finally:
        await library.close()

    assert heard < 200


async def test_a_watch_tells_of_every_event_of_a_burst(client: EtcdClient, etcd: Etcd, prefix: str) -> None:
    folder = Folder(f"{prefix}/")
    heard: list[str] = []
    begun = asyncio.Event()

    async def watch() -> None:
        async with aclosing(client.watch(folder.range)) as messages:
            async for message in messages:
                begun.set()
                heard.extend(event["kv"]["key"] for event in message.get("events", ()))

    watching = asyncio.create_task(watch())
    await begun.wait()
    names = [f"é{number}" for number in range(300)]
    await asyncio.gather(
        *(client.call("/kv/put", {"key": folder.key(name), "value": encoded("x")}) for name in names)
    )

    await until(lambda: len(heard) >= 300)
    assert sorted(heard) == sorted(folder.key(name) for name in names)
    watching.cancel()
    await asyncio.wait({watching})


async def test_a_watch_from_before_a_compaction_says_so(client: EtcdClient, etcd: Etcd, prefix: str) -> None:
    for _ in range(3):
        etcd.put(prefix, "x")
    etcd.compact()

    async def watch() -> None:
        async for _ in client.watch({"key": encoded(prefix), "start_revision": "1"}):
            pass

    with pytest.raises(CompactedError):
        await watch()


@pytest.mark.parametrize("own_limit", [10.0, 0.4], ids=["", "within the limit of whoever asks"])
async def test_a_watch_ends_when_a_call_finds_the_server_hanging(
    etcd: Etcd, prefix: str, own_limit: float
) -> None:
    with proxy_to(etcd.port) as proxy:
        client = await opened(f"http://127.0.0.1:{proxy.port}", limit_seconds=0.5)
        begun = asyncio.Event()

        async def watch() -> None:
            async for _ in client.watch({"key": encoded(prefix)}):
                begun.set()

        watching = asyncio.create_task(watch())
        await begun.wait()
        await client.call("/kv/range", {"key": encoded(prefix)})
        proxy.set(Verb.BLACK_HOLE)
        await asyncio.sleep(0.1)
        assert not watching.done()

        async def ask() -> None:
            async with asyncio.timeout(own_limit):
                await client.call("/kv/range", {"key": encoded(prefix)})

        with pytest.raises(OSError):  # noqa: PT011  which one depends on whose limit ends first
            await ask()

        await asyncio.wait({watching}, timeout=10)
        assert watching.done()
        watching.exception()
        await client.close()


async def test_a_call_that_is_cancelled_at_once_leaves_the_watches_alone(
    client: EtcdClient, prefix: str
) -> None:
    async with aclosing(client.watch({"key": encoded(prefix)})) as messages:
        await anext(messages)
        for turns in range(5):
            asking = asyncio.create_task(client.call("/kv/range", {"key": encoded(prefix)}))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
        await client.call("/kv/put", {"key": encoded(prefix), "value": encoded("x")})

        assert (await anext(messages))["events"]


async def test_a_watch_at_a_server_that_says_nothing_does_not_wait_for_ever() -> None:
    with silent() as endpoint:
        client = await opened(endpoint, limit_seconds=0.3)
        with pytest.raises(TimeoutError):
            await anext(client.watch({"key": encoded("x")}))
        await client.close()


async def test_the_kernel_is_told_to_look_after_the_connection_of_a_watch(
    client: EtcdClient, prefix: str
) -> None:
    async with aclosing(client.watch({"key": encoded(prefix)})) as messages:
        await anext(messages)
        (stream,) = client._streams
        assert stream.connection is not None
        assert stream.connection.transport is not None
        sock = stream.connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


async def test_the_library_alone_takes_away_every_time_limit() -> None:
    limits: list[object] = []

    class Looked(AioClient):  # type: ignore[misc]  # it has no types
        def _retrieve_version(self) -> None: ...
        def _verify_version(self) -> None: ...
        def _get_prefix(self) -> None: ...

        def _post(self, url: str, **kwargs: object) -> None:
            limits.append(kwargs["timeout"])

    library = Looked()
    library.call_rpc("/kv/range", data=b"{}", raw=True)
    await library.close()

    assert limits == [None]  # which means none there, not the default of a session


async def test_an_answer_goes_to_its_own_call_whatever_is_cancelled(client: EtcdClient, prefix: str) -> None:
    folder = Folder(f"{prefix}/")
    for number in range(20):
        await client.call("/kv/put", {"key": folder.key(str(number)), "value": encoded(str(number))})

    async def ask(number: int) -> None:
        answer = await client.call("/kv/range", {"key": folder.key(str(number))})
        assert answer["kvs"][0]["value"] == b64encode(str(number).encode()).decode(), json.dumps(answer)

    tasks = [asyncio.create_task(ask(number % 20)) for number in range(300)]
    for turn, task in enumerate(tasks):
        if turn % 3 == 0:
            await asyncio.sleep(0)
            task.cancel()
    for task in tasks:
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
