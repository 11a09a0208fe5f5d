"""The traps of the client library, and that none of them is left: `TRAP` in `_client.py` names each."""

import asyncio
import gc
import time
import traceback
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from drakkar_consul import _client as consul
from drakkar_consul import _keys as keys
from drakkar_consul._client import ConflictError, ConsulClient, ConsulError
from drakkar_consul.settings import read_settings
from support.consul_servers import NOWHERE, Consul
from support.scripted_server import resetting
from support.tcp_proxy import Verb, proxy_to

TOKEN = "0d0f6e5c-token"


@dataclass
class Scripted:
    """Somebody on a port of this machine who answers requests as told, and remembers them."""

    answers: list[bytes] = field(default_factory=list)
    """The next ones; empty bytes close the connection instead, and without any there is silence."""

    asked: list[str] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                self.asked.append(head)
                if not self.answers:
                    await reader.read()
                if not (answer := self.answers.pop(0)):
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError, IndexError):
            pass
        finally:
            writer.close()


def answer(status: str, body: str = "", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", body]).encode()


@asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[Scripted]:
    made = Scripted([*answers])
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


@asynccontextmanager
async def client_of(
    port: int, *, connections: int = 2, limit_seconds: float = 5, **options: object
) -> AsyncIterator[ConsulClient]:
    client = ConsulClient(read_settings({"address": f"127.0.0.1:{port}", **options}), connections=connections)
    client.limit_seconds = limit_seconds
    try:
        yield client
    finally:
        await client.close()


ENTRY = '[{"Key":"f/a","Value":null,"ModifyIndex":7,"CreateIndex":7,"Flags":0,"LockIndex":0}]'
FOUND = answer("200 OK", ENTRY, X_Consul_Index="7")


async def test_an_environment_variable_does_not_win_over_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSUL_HTTP_ADDR", "http://[::1]:1")
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", "of somebody else")
    monkeypatch.setenv("CONSUL_HTTP_SSL", "true")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with scripted(FOUND) as agent, client_of(agent.port, token=TOKEN) as client:
        await client.get("f/a")

    assert f"X-Consul-Token: {TOKEN}" in agent.asked[0]


async def test_it_warns_of_nothing_and_leaves_nothing_open(server: Consul) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with client_of(server.port) as client:
            await client.tree("nothing/")
        del client
        gc.collect()

    assert [str(warning.message) for warning in caught] == []


async def test_connections_are_used_again_and_never_more_than_allowed(server: Consul, prefix: str) -> None:
    with proxy_to(server.port) as proxy:
        async with client_of(proxy.port, connections=2) as client:
            for _ in range(20):
                await client.get(f"{prefix}/a")
            assert proxy.accepted == 1
            await asyncio.gather(*(client.get(f"{prefix}/a") for _ in range(50)))
            assert proxy.accepted == 2


async def test_a_blocking_query_holds_up_no_other_call(server: Consul, prefix: str) -> None:
    async with client_of(server.port, connections=1) as client:
        await client.transact(keys.put(f"{prefix}/a", b"1", 0))
        index = (await client.tree(f"{prefix}/")).index
        query = asyncio.create_task(client.tree_after(f"{prefix}/", index, 30))
        for _ in range(5):
            await client.get(f"{prefix}/a")
        assert not query.done()
        entry = await client.get(f"{prefix}/a")
        assert entry is not None
        await client.transact(keys.put(entry.key, b"2", entry.index))
        listing = await query

    assert [each.value for each in listing.entries.values()] == [b"2"]
    assert listing.index > index


async def test_a_blocking_query_ends_when_the_agent_says_nothing() -> None:
    async with scripted(FOUND) as agent, client_of(agent.port) as client:
        listing = await client.tree("f/")
        began = time.monotonic()
        with pytest.raises(ConsulError, match="did not answer within"):
            await client.tree_after("f/", listing.index, 1)

    assert time.monotonic() - began < 1 + consul.WAIT_SLACK_SECONDS + 5
    assert "index=7&wait=1s" in agent.asked[1]


async def test_a_call_ends_when_the_agent_says_nothing() -> None:
    async with scripted() as agent, client_of(agent.port, limit_seconds=0.2) as client:
        began = time.monotonic()
        with pytest.raises(ConsulError, match=r"http://127.0.0.1:\d+ did not answer within 0.2 s"):
            await client.get("f/a")

    assert time.monotonic() - began < 5


async def test_a_write_whose_answer_is_lost_is_not_sent_again(server: Consul) -> None:
    name = f"once-{time.monotonic_ns()}"
    with proxy_to(server.port) as proxy:
        async with client_of(proxy.port) as client:
            proxy.set(Verb.LOSE_REPLIES)
            with pytest.raises(ConsulError):
                await client.create_session(name, 10, delete=False)
    made = [session for session in server.sessions() if session["Name"] == name]
    for session in made:
        server.destroy(session["ID"])

    assert len(made) == 1


async def test_a_read_is_asked_once_more_when_the_connection_was_closed() -> None:
    async with scripted(b"", FOUND) as agent, client_of(agent.port) as client:
        assert await client.get("f/a") is not None
    assert len(agent.asked) == 2

    async with scripted(b"", b"", FOUND) as agent, client_of(agent.port) as client:
        with pytest.raises(ConsulError):
            await client.get("f/a")
    assert len(agent.asked) == 2


async def test_a_transaction_is_made_in_the_datacenter_that_is_read(server: Consul, prefix: str) -> None:
    async with client_of(server.port, datacenter="elsewhere") as client:
        with pytest.raises(ConsulError, match="No path to datacenter"):
            await client.transact(keys.put(f"{prefix}/a", b"1", 0))
        with pytest.raises(ConsulError, match="No path to datacenter"):
            await client.create_session("x", 10, delete=False)
    async with client_of(server.port, datacenter="dc1") as client:
        await client.transact(keys.put(f"{prefix}/b", b"1", 0))

    assert server.keys(prefix) == [f"{prefix}/b"]


async def test_a_ttl_that_the_servers_refuse_is_their_error_and_no_assertion(server: Consul) -> None:
    async with client_of(server.port) as client:
        with pytest.raises(ConsulError, match="must be between"):
            await client.create_session("x", 1, delete=False)


async def test_a_redirect_takes_no_token_elsewhere() -> None:
    async with scripted(FOUND) as other:
        moved = answer("301 Moved Permanently", Location=f"http://127.0.0.1:{other.port}/v1/kv/f/a")
        async with scripted(moved) as agent, client_of(agent.port, token=TOKEN) as client:
            with pytest.raises(ConsulError, match="did not answer like an agent of Consul"):
                await client.get("f/a")

    assert other.asked == []


@pytest.mark.parametrize(
    "strange",
    [
        answer("200 OK", "<html>"),
        answer("200 OK", ENTRY),
        answer("200 OK", '[{"Key":"f/a"}]', X_Consul_Index="7"),
        answer("200 OK", "7", X_Consul_Index="7"),
        answer("200 OK", "[" * 100_000, X_Consul_Index="7"),
    ],
    ids=["a page", "no index", "no value", "a number", "too deep"],
)
async def test_what_is_no_answer_of_an_agent_is_an_error(strange: bytes) -> None:
    async with scripted(strange) as agent, client_of(agent.port) as client:
        with pytest.raises(ConsulError, match="did not answer like an agent of Consul"):
            await client.get("f/a")


async def test_a_listing_or_a_refusal_that_is_nested_too_deeply_is_an_error() -> None:
    deep = "[" * 100_000
    listing = answer("200 OK", deep, X_Consul_Index="7")
    async with scripted(listing) as agent, client_of(agent.port) as client:
        with pytest.raises(ConsulError, match="did not answer like an agent of Consul"):
            await client.tree("f/")
    async with scripted(answer("409 Conflict", deep)) as agent, client_of(agent.port) as client:
        with pytest.raises(ConsulError, match="409 "):
            await client.transact(keys.put("f/a", b"", 0))


async def test_a_datacenter_that_the_servers_do_not_know_is_told_with_its_option(server: Consul) -> None:
    client = ConsulClient(read_settings({"address": server.address, "datacenter": "nowhere"}), connections=1)
    try:
        with pytest.raises(
            ConsulError, match=r"No path to datacenter; see fleet\.registry\.consul\.datacenter$"
        ):
            await client.get("drakkar/x")
    finally:
        await client.close()


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consul, "MAX_ANSWER_BYTES", 1000)
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b"[" * 2000
    async with scripted(endless) as agent, client_of(agent.port) as client:
        with pytest.raises(ConsulError, match="did not answer like"):
            await client.get("f/a")


@pytest.mark.parametrize(
    "code", ["500 Internal Server Error", "503 Service Unavailable", "429 Too Many Requests"]
)
async def test_an_error_of_the_agent_is_told_in_one_line(code: str) -> None:
    async with scripted(answer(code, "rpc error:\n no leader")) as agent, client_of(agent.port) as client:
        with pytest.raises(ConsulError, match=f"{code[:3]} rpc error: no leader"):
            await client.get("f/a")


@pytest.mark.parametrize(
    ("code", "page", "told"),
    [
        ("401 Unauthorized", "token {} has expired", "token *** has expired"),
        ("403 Forbidden", "Permission denied for {}", "denied for ***; "),
        ("409 Conflict", '{{"Errors": [{{"OpIndex": 0, "What": "Permission denied: {}"}}]}}', "denied: ***;"),
        ("409 Conflict", '{{"Errors": [{{"OpIndex": 0, "What": "{} is stale"}}]}}', "*** is stale"),
        ("429 Too Many Requests", "{} asks too often", "*** asks too often"),
        ("502 Bad Gateway", "." * 290 + "{}", "502 ...."),
    ],
)
async def test_a_token_that_a_proxy_repeats_is_in_no_error(code: str, page: str, told: str) -> None:
    said = answer(code, page.format(TOKEN))
    async with scripted(said) as agent, client_of(agent.port, token=TOKEN) as client:
        with pytest.raises(ConsulError) as failed:
            await client.transact(keys.put("f/a", b"", 0))

    assert told in str(failed.value)
    assert TOKEN[:8] not in "".join(traceback.format_exception(failed.value))


async def test_a_token_in_an_answer_that_is_none_is_in_no_message() -> None:
    said = f"HTTP/1.1 {TOKEN} is refused\r\n\r\n".encode()
    async with scripted(said) as agent, client_of(agent.port, token=TOKEN) as client:
        with pytest.raises(ConsulError, match=r"\*\*\*") as failed:
            await client.transact(keys.put("f/a", b"", 0))

    assert TOKEN[:8] not in str(failed.value)


async def test_no_answer_is_compressed_for_it(server: Consul, prefix: str) -> None:
    """An agent takes far longer to compress a listing than to send it."""
    for number in range(40):
        server.put(f"{prefix}/{number}", "x" * 500)
    async with client_of(server.port) as client:
        path = f"/v1/kv/{prefix}/"
        headers = await client._http.get(lambda answer: answer.headers, path, [("recurse", "1")])

    assert "Content-Encoding" not in headers


async def test_a_listing_that_is_the_same_is_not_taken_apart_again(server: Consul, prefix: str) -> None:
    server.put(f"{prefix}/a", "1")
    async with client_of(server.port) as client:
        first = await client.tree(f"{prefix}/")
        server.put(f"{prefix}-else", "1")
        again = await client.tree(f"{prefix}/")
        server.put(f"{prefix}/a", "2")
        changed = await client.tree(f"{prefix}/")

    assert again.entries is first.entries
    assert changed.entries[f"{prefix}/a"].value == b"2"


async def test_two_who_are_told_the_same_at_once_share_what_it_meant(
    server: Consul, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher and a caller: taking a long listing apart twice in one step would stall the event loop."""

    async def slowly(text: str) -> dict[str, keys.Entry]:
        await asyncio.sleep(0.05)
        return await keys.read_entries(text)

    monkeypatch.setattr(consul, "read_entries", slowly)
    server.put(f"{prefix}/a", "1")
    async with client_of(server.port) as client:
        first, second = await asyncio.gather(client.tree(f"{prefix}/"), client.tree(f"{prefix}/"))

    assert first.entries is second.entries
    assert first.entries[f"{prefix}/a"].value == b"1"


async def test_nobody_there_is_an_error_like_any_other() -> None:
    async with scripted() as agent:
        pass
    async with client_of(agent.port) as client:
        with pytest.raises(ConsulError, match=f"127.0.0.1:{agent.port}"):
            await client.get("f/a")


async def test_a_session_is_gone_when_the_servers_say_so_and_not_when_somebody_else_does(
    server: Consul,
) -> None:
    async with client_of(server.port) as client:
        session = await client.create_session("x", 10, delete=False)
        assert await client.renew_session(session)
        await client.destroy_session(session)
        assert not await client.renew_session(session)
    for page in ("no such page", f"Cannot PUT /v1/session/renew/{session}"):
        async with scripted(answer("404 Not Found", page)) as agent, client_of(agent.port) as client:
            with pytest.raises(ConsulError):
                await client.renew_session(session)


async def test_a_transaction_tells_which_condition_did_not_hold(server: Consul, prefix: str) -> None:
    async with client_of(server.port) as client:
        [made] = await client.transact(keys.put(f"{prefix}/a", b"1", 0))
        with pytest.raises(ConflictError) as second:
            await client.transact(
                keys.check_index(made.key, made.index), keys.check_index(made.key, made.index - 1)
            )
        with pytest.raises(ConflictError) as session:
            await client.transact(keys.lock(made.key, NOWHERE, b""))

    assert (second.value.failed(0), second.value.failed(1)) == (False, True)
    assert (second.value.session_is_gone, session.value.session_is_gone) == (False, True)


async def test_an_empty_value_is_empty(server: Consul, prefix: str) -> None:
    server.put(f"{prefix}/a", b"")
    async with client_of(server.port) as client:
        entry = await client.get(f"{prefix}/a")

    assert entry is not None
    assert entry.value == b""


@pytest.mark.parametrize(
    "end", [lambda task: task.cancel(), lambda task: None], ids=["cancelled", "finished"]
)
async def test_no_call_gets_the_answer_of_another(
    server: Consul, prefix: str, end: Callable[[asyncio.Task[object]], object]
) -> None:
    for number in range(4):
        server.put(f"{prefix}/{number}", str(number))
    with proxy_to(server.port) as proxy:
        proxy.set(Verb.DELAY_REPLIES, 0.002)
        async with client_of(proxy.port, connections=2) as client:
            for turn in range(100):
                tasks = [asyncio.create_task(client.get(f"{prefix}/{number}")) for number in range(4)]
                await asyncio.wait(tasks, timeout=0.0005 * (turn % 10))
                end(tasks[turn % 4])
                for number, found in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
                    if not isinstance(found, BaseException):
                        assert found is not None
                        assert found.value == str(number).encode()


async def test_it_can_be_used_again_after_it_was_closed(server: Consul) -> None:
    async with client_of(server.port) as client:
        await client.tree("nothing/")
        await client.close()
        await client.close()
        assert (await client.tree("nothing/")).entries == {}


async def test_a_long_listing_is_read_like_a_short_one(
    server: Consul, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(250):
        server.put(f"{prefix}/{number}", "[{},]" * number)
    server.put(f"{prefix}/%5D%7D,%7B%22", b"")
    async with client_of(server.port) as client, client_of(server.port) as other:
        short = await client.tree(f"{prefix}/")
        monkeypatch.setattr(keys, "LONG_TEXT", 10)
        long = await other.tree(f"{prefix}/")

    assert len(long.entries) == 251
    assert long == short


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1: Connection refused"),
        ("http://no-such-host.invalid", "http://no-such-host.invalid:8500: "),
        ("https://127.0.0.1:{port}", "https://127.0.0.1:{port}: no TLS handshake, is it https:// there? ("),
    ],
)
async def test_what_cannot_be_connected_to_is_told_in_plain_words(
    server: Consul, address: str, told: str
) -> None:
    client = ConsulClient(read_settings({"address": address.format(port=server.port)}), connections=1)
    try:
        with pytest.raises(ConsulError) as failed:
            await client.get("drakkar/x")
    finally:
        await client.close()

    assert str(failed.value).startswith(told.format(port=server.port))
    assert "ssl:" not in str(failed.value)


async def test_a_handshake_that_is_cut_off_is_told_as_none() -> None:
    """So it looks when a server of plain http gives up before its answer could be read."""
    with resetting() as port:
        client = ConsulClient(read_settings({"address": f"https://127.0.0.1:{port}"}), connections=1)
        with pytest.raises(ConsulError, match="no TLS handshake, is it https"):
            await client.get("drakkar/x")
        await client.close()
