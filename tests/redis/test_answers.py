"""Answers that no Redis should give: each is an error or a loss, and never a lease."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_redis._errors import StoreError
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from support.waiting import until

Reply = Callable[[list[bytes]], bytes]
NAME = "gc-leader"
ANSWERED = (b"EVAL", b"EVALSHA", b"SENTINEL", b"CLUSTER", b"SUBSCRIBE")


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def behind_what_was_asked(body: bytes) -> Reply:
    """`body` as the answer of a script to the very call."""
    return lambda command: b"*2\r\n" + bulk(command[-1]) + body


def always(answer: bytes) -> Reply:
    return lambda _: answer


async def _read(reader: asyncio.StreamReader) -> list[bytes]:
    count = int((await reader.readline())[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readline())[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


@asynccontextmanager
async def odd_server(replies: list[Reply]) -> AsyncIterator[str]:
    """The url of a server that answers what matters with the last of `replies`, and says OK to the rest."""
    ends: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.add(writer)
        try:
            while True:
                command = await _read(reader)
                writer.write(replies[-1](command) if command[0].upper() in ANSWERED else b"+OK\r\n")
                await writer.drain()
        except (OSError, EOFError, ValueError):  # the client has left
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for end in ends:
            end.close()
        await server.wait_closed()


@asynccontextmanager
async def backend_at(reply: Reply) -> AsyncIterator[RedisLeases]:
    """A backend whose start went well, with a server that answers so from then on."""
    replies = [behind_what_was_asked(b"*0\r\n")]
    async with odd_server(replies) as url:
        backend = RedisLeases({"url": url})
        await backend.start(make_context("worker-1", timeout_seconds=1))
        replies.append(reply)
        try:
            yield backend
        finally:
            await backend.stop()


REFUSALS = [
    b"-MOVED 1 127.0.0.1:1\r\n",
    b"-ASK 1 127.0.0.1:1\r\n",
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-BUSY Redis is busy running a script\r\n",
    b"-OOM command not allowed when used memory > 'maxmemory'\r\n",
    b"-READONLY You can't write against a read only replica\r\n",
    b"-NOREPLICAS Not enough good replicas to write\r\n",
    b"-MASTERDOWN Link with MASTER is down\r\n",
    b"-CLUSTERDOWN The cluster is down\r\n",
    b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    b"-NOSCRIPT No matching script\r\n",
    b"-\r\n",
]
NO_ANSWERS = [
    b"*0\r\n",
    b"*-1\r\n",
    b"$-1\r\n",
    b"+OK\r\n",
    b":1\r\n",
    b":one\r\n",
    b"*1\r\n:1\r\n",
    b"*2\r\n:1\r\n$1\r\n5\r\n",
    b"$9999999999\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x00\xff\r\n",
]
NO_GRANTS = [
    b"*0\r\n",
    b"$-1\r\n",
    b":1\r\n",
    b"+OK\r\n",
    b"*1\r\n:1\r\n",
    b"*2\r\n:1\r\n$-1\r\n",
    b"*2\r\n:1\r\n$0\r\n\r\n",
    b"*2\r\n:1\r\n$2\r\n-5\r\n",
    b"*2\r\n:1\r\n$3\r\n1_0\r\n",
    b"*2\r\n:1\r\n:5\r\n",
    b"*2\r\n:1\r\n*1\r\n$1\r\n5\r\n",
    b"*2\r\n:1\r\n-ERR nested\r\n",
    b"*2\r\n-ERR nested\r\n$1\r\n5\r\n",
    b"*2\r\n$1\r\n0\r\n$1\r\n5\r\n",
    b"*2\r\n$1\r\n1\r\n$1\r\n5\r\n",
    b"*2\r\n:2\r\n$1\r\n5\r\n",
    b"*2\r\n:-1\r\n$1\r\n5\r\n",
    b"*3\r\n:1\r\n$1\r\n5\r\n$0\r\n\r\n",
    b"*4\r\n:0\r\n$1\r\n5\r\n$0\r\n\r\n$2\r\n10\r\n",
    b"*4\r\n:0\r\n$1\r\n5\r\n$0\r\n\r\n-ERR nested\r\n",
]


@pytest.mark.parametrize("reply", [*REFUSALS, *NO_ANSWERS])
async def test_what_is_no_answer_is_an_error_of_each_call(reply: bytes) -> None:
    lease = Lease(NAME, make_context("worker-1").holder, 5, 20)
    async with backend_at(always(reply)) as backend:
        for call in (backend.acquire(NAME), backend.renew([lease]), backend.release(NAME, 5), backend.list()):
            with pytest.raises((StoreError, TimeoutError)):
                await call


@pytest.mark.parametrize("body", NO_GRANTS)
async def test_what_is_neither_a_grant_nor_a_refusal_is_an_error(body: bytes) -> None:
    async with backend_at(behind_what_was_asked(body)) as backend:
        with pytest.raises(StoreError):
            await backend.acquire(NAME)


@pytest.mark.parametrize("left_ms", [-1, -2, 0, 10**15])
async def test_a_refusal_with_an_odd_time_is_a_refusal(left_ms: int) -> None:
    body = b"*4\r\n:0\r\n$1\r\n5\r\n$10\r\nworker-2/1\r\n:%d\r\n" % left_ms
    async with backend_at(behind_what_was_asked(body)) as backend:
        assert await backend.acquire(NAME) == Held("worker-2/1", max(0, left_ms) / 1000)


@pytest.mark.parametrize(
    "body",
    [b"$-1\r\n", b"*0\r\n", b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n", b":11\r\n", bulk(b"1"), bulk(b"111"), bulk(b"")],
)
async def test_what_does_not_tell_of_every_lease_is_an_error(body: bytes) -> None:
    holder = make_context("worker-1").holder
    leases = [Lease("gc-1", holder, 5, 20), Lease("gc-2", holder, 6, 20)]
    async with backend_at(behind_what_was_asked(body)) as backend:
        with pytest.raises(StoreError):
            await backend.renew(leases)


async def test_a_lease_of_which_the_answer_says_anything_but_that_it_is_kept_is_lost() -> None:
    holder = make_context("worker-1").holder
    leases = [Lease(f"gc-{number}", holder, 5 + number, 20) for number in range(4)]
    async with backend_at(behind_what_was_asked(bulk(b"x01t"))) as backend:
        renewal = await backend.renew(leases)

    assert ([each.name for each in renewal.kept], len(renewal.lost)) == (["gc-2"], 3)


async def test_the_answer_to_another_call_is_not_taken_for_that_to_this_one() -> None:
    """As when a server, or what is between, answers once too often."""
    answers: list[bytes] = []

    def one_behind(command: list[bytes]) -> bytes:
        answers.append(behind_what_was_asked(b"*2\r\n:1\r\n$1\r\n5\r\n")(command))
        return answers[max(0, len(answers) - 2)]

    async with backend_at(one_behind) as backend:
        lease = await backend.acquire("gc-1")
        assert isinstance(lease, Lease)

        with pytest.raises(StoreError, match="something else than was asked"):
            await backend.acquire("gc-2")


@pytest.mark.parametrize("nonsense", [b":1\r\n", b":one\r\n", b"*1\r\n$7\r\nmessage\r\n"])
async def test_a_connection_that_tells_nonsense_is_made_anew(nonsense: bytes) -> None:
    subscribed = 0

    def reply(command: list[bytes]) -> bytes:
        nonlocal subscribed
        if command[0] != b"SUBSCRIBE":
            return behind_what_was_asked(b"*1\r\n*2\r\n$1\r\n5\r\n:20000\r\n")(command)  # held by another
        subscribed += 1
        return b"*3\r\n" + bulk(b"subscribe") + bulk(command[1]) + b":1\r\n" + nonsense

    async with backend_at(reply) as backend:
        waiting = asyncio.create_task(backend.wait([NAME], 60))
        await until(lambda: subscribed > 1)
        waiting.cancel()
        await asyncio.wait({waiting})


NO_PLACES = [b":1\r\n", b"*1\r\n:1\r\n", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"*2\r\n*0\r\n*0\r\n"]


@pytest.mark.parametrize("reply", NO_PLACES)
@pytest.mark.parametrize("kind", ["sentinels", "cluster"])
async def test_who_names_no_server_is_left_for_the_next_and_told_of(kind: str, reply: bytes) -> None:
    async with odd_server([always(reply)]) as url:
        place = url.removeprefix("redis://")
        of_sentinels = {"sentinels": [place], "service_name": "fleet-master"}
        backend = RedisLeases(of_sentinels if kind == "sentinels" else {"url": url, "cluster": True})

        with pytest.raises(StoreError, match=f"no master found .{place}"):
            await backend.start(make_context("worker-1"))
        await backend.stop()


@pytest.mark.parametrize("secret", ["s3cret-pass", 'a"b\\c  d', "pässwörd/1", "x" * 290 + "-the-end"])
@pytest.mark.parametrize("form", ["{}", "AUTH user {}", "(b'{}',)", "{} " * 20])
async def test_a_password_that_comes_back_shows_in_no_error(secret: str, form: str) -> None:
    quoted = [secret, repr(secret.encode())[2:-1], secret.replace("\\", "\\\\").replace('"', '\\"')]
    for text in quoted:
        reply = f"-ERR proxy: {form.replace('{}', text)}\r\n".encode()
        async with odd_server([always(reply)]) as url:
            provider = RedisRegistry({"url": url, "password": secret})
            await provider.start(make_card_context("worker-1"))
            with pytest.raises(StoreError, match="proxy:") as failure:
                await provider.publish(make_card("worker-1"))
            await provider.stop()

        shown = str(failure.value)
        for piece in (text, " ".join(text.split()), text[:200], text[:20]):
            assert piece not in shown
        assert "***" in shown
