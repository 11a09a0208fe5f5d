"""Answers that no etcd should give: each is an error or a loss, and never a lease."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_etcd._answers import EtcdError, UnansweredError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._wire import encoded
from drakkar_etcd.leases import EtcdLeases
from drakkar_etcd.registry import EtcdRegistry
from drakkar_etcd.settings import read_settings
from support.etcd_servers import Etcd
from support.etcd_workers import MakeBackend, Workers
from support.log import RecordingLogger
from support.scripted_server import reply, serving

ONE_SERVER_IN_A_GATE = True
NAME = "gc-leader"
TXN, KEEPALIVE, RANGE, GRANT = "/v3/kv/txn", "/v3/lease/keepalive", "/v3/kv/range", "/v3/lease/grant"
Change = Callable[[Any], Any]
"""What comes in the place of an answer: something for JSON, or bytes as they are."""


class Mangler:
    """A proxy before etcd. What is asked for arrives; what comes back is changed."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.changes: dict[str, Change] = {}
        self.kept: list[Any] = []
        """The answers that were changed, as they were."""

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._target + request.path, data=body) as found,
        ):
            status, answer = found.status, await found.read()
        if (change := self.changes.get(request.path)) is not None:
            sound = json.loads(answer)
            self.kept.append(sound)
            changed = change(copy.deepcopy(sound))
            answer = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        return web.Response(status=status, body=answer)


@asynccontextmanager
async def mangling(etcd: Etcd) -> AsyncIterator[tuple[Mangler, str]]:
    mangler = Mangler(etcd.endpoint)
    app = web.Application()
    app.router.add_post("/{path:.*}", mangler.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield mangler, str(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@pytest.fixture
async def mangled(etcd: Etcd, backend: MakeBackend) -> AsyncIterator[tuple[Mangler, EtcdLeases]]:
    """A backend that has started, and what changes its answers from then on."""
    async with mangling(etcd) as (mangler, port):
        yield mangler, await backend("worker-1", f"http://127.0.0.1:{port}", timeout_seconds=2)


async def outcome(backend: EtcdLeases, name: str = NAME) -> Lease | Held | Exception:
    """An error means that nobody knows."""
    try:
        return await backend.acquire(name)
    except Exception as error:  # noqa: BLE001
        return error


def put(*path: str | int, value: object) -> Change:
    """An answer with another value at `path`; `...` takes it away."""

    def change(answer: Any) -> Any:
        *inner, last = path
        at = answer
        for key in inner:
            at = at[key]
        if value is ...:
            del at[last]
        else:
            at[last] = value
        return answer

    return change


MADE = ("responses", 1, "response_range", "kvs", 0)
NO_GRANTS: dict[str, Change] = {
    "nothing": lambda _: {},
    "null": lambda _: None,
    "a list": lambda answer: [answer],
    "no JSON": lambda _: b"<html>",
    "half": lambda answer: json.dumps(answer).encode()[:-5],
    "deep": lambda _: b'{"a":' * 100_000,
    "succeeded as text": put("succeeded", value="false"),
    "succeeded as a number": put("succeeded", value=1),
    "no header": put("header", value=...),
    "no revision": put("header", "revision", value=...),
    "a revision below zero": put("header", "revision", value="-5"),
    "another revision": put("header", "revision", value="5"),
    "a revision that is no number": put("header", "revision", value="five"),
    "a huge revision": put("header", "revision", value="9" * 30),
    "no responses": put("responses", value=...),
    "empty responses": put("responses", value=[]),
    "an error within": put("responses", 1, value={"error": "etcdserver: no space"}),
    "another key": put(*MADE, "key", value=encoded("/elsewhere")),
    "another value": put(*MADE, "value", value=encoded("{}")),
    "another etcd lease": put(*MADE, "lease", value="5"),
    "no etcd lease": put(*MADE, "lease", value=...),
    "another grant": put(*MADE, "create_revision", value="5"),
    "refused all the same": lambda _: {"code": 8, "message": "etcdserver: mvcc: database space exceeded"},
    "refused in depth": lambda _: {"error": {"grpc_code": 14, "message": "etcdserver: no leader"}},
    "a refusal of odd types": lambda _: {"error": ["x"], "code": "one", "message": {"a": 1}},
}


@pytest.mark.parametrize("change", NO_GRANTS.values(), ids=NO_GRANTS)
async def test_what_does_not_show_the_grant_is_an_error(
    change: Change, mangled: tuple[Mangler, EtcdLeases], backend: MakeBackend
) -> None:
    mangler, one = mangled
    mangler.changes[TXN] = change
    assert isinstance(await outcome(one), Exception)

    mangler.changes.clear()
    await one.release(NAME)
    assert isinstance(await outcome(await backend("worker-2")), Lease)


async def test_the_answer_to_another_acquire_is_not_taken_for_that_to_this_one(
    mangled: tuple[Mangler, EtcdLeases],
) -> None:
    mangler, one = mangled
    mangler.changes[TXN] = lambda answer: answer
    assert isinstance(await outcome(one, "gc-1"), Lease)

    mangler.changes[TXN] = lambda _: mangler.kept[0]
    assert isinstance(await outcome(one, "gc-2"), UnansweredError)


async def test_a_refusal_with_a_record_of_ours_from_another_name_is_no_grant(
    mangled: tuple[Mangler, EtcdLeases], backend: MakeBackend
) -> None:
    mangler, one = mangled
    two = await backend("worker-2")
    assert isinstance(await outcome(one, "gc-1"), Lease)
    assert isinstance(await outcome(two, "gc-2"), Lease)
    mangler.changes[TXN] = lambda answer: answer
    assert isinstance(await outcome(one, "gc-1"), Lease)  # by a refusal that shows our own record

    mangler.changes[TXN] = lambda _: mangler.kept[0]
    assert isinstance(await outcome(one, "gc-2"), UnansweredError)


NOT_ALIVE: dict[str, Change] = {
    "nothing": lambda _: {},
    "null": put("result", value=None),
    "a list": put("result", value=[]),
    "another etcd lease": put("result", "ID", value="5"),
    "no etcd lease": put("result", "ID", value=...),
    "no ttl": put("result", "TTL", value=...),
    "a ttl of zero": put("result", "TTL", value="0"),
    "a ttl below zero": put("result", "TTL", value="-1"),
    "a ttl that is no number": put("result", "TTL", value="long"),
    "an error": lambda _: {"error": {"grpc_code": 5, "message": "etcdserver: requested lease not found"}},
}


@pytest.mark.parametrize("change", NOT_ALIVE.values(), ids=NOT_ALIVE)
async def test_what_does_not_show_that_the_etcd_lease_lives_keeps_nothing(
    change: Change, mangled: tuple[Mangler, EtcdLeases]
) -> None:
    mangler, one = mangled
    lease = await one.acquire(NAME)
    assert isinstance(lease, Lease)
    mangler.changes[KEEPALIVE] = change

    assert await kept(one, lease) == []


NOT_THERE: dict[str, Change] = {
    "nothing": lambda _: {},
    "null": put("kvs", value=None),
    "text": put("kvs", value="all"),
    "empty": put("kvs", value=[]),
    "no dictionary": put("kvs", value=[5]),
    "another key": put("kvs", 0, "key", value=encoded("/elsewhere")),
    "no key": put("kvs", 0, "key", value=...),
    "a key of another type": put("kvs", 0, "key", value=[]),
    "another value": put("kvs", 0, "value", value=encoded("{}")),
    "no value": put("kvs", 0, "value", value=...),
    "another etcd lease": put("kvs", 0, "lease", value="5"),
    "no etcd lease": put("kvs", 0, "lease", value=...),
    "another grant": put("kvs", 0, "create_revision", value="5"),
    "no revision": put("kvs", 0, "create_revision", value=...),
}


@pytest.mark.parametrize("change", NOT_THERE.values(), ids=NOT_THERE)
async def test_what_does_not_show_the_record_keeps_nothing(
    change: Change, mangled: tuple[Mangler, EtcdLeases]
) -> None:
    mangler, one = mangled
    lease = await one.acquire(NAME)
    assert isinstance(lease, Lease)
    mangler.changes[RANGE] = change

    assert await kept(one, lease) == []


@pytest.mark.parametrize("change", [lambda _: {}, lambda _: {"ok": True}])
async def test_an_answer_of_nobody_loses_no_lease_and_gives_none_back(
    change: Change, mangled: tuple[Mangler, EtcdLeases]
) -> None:
    mangler, one = mangled
    lease = await one.acquire(NAME)
    assert isinstance(lease, Lease)
    mangler.changes |= {RANGE: change, TXN: change}

    for call in (one.renew([lease]), one.release(NAME, lease.token), one.release(NAME), one.list()):
        with pytest.raises(UnansweredError):
            await call


async def kept(backend: EtcdLeases, lease: Lease) -> list[Lease]:
    try:
        return list((await backend.renew([lease])).kept)
    except Exception:  # noqa: BLE001  then it is not known
        return []


@pytest.mark.parametrize(
    "change",
    [
        put("TTL", value=...),
        put("TTL", value="0"),
        put("TTL", value="-1"),
        put("ID", value="5"),
        lambda _: {},
    ],
)
async def test_an_etcd_lease_of_no_duration_carries_nothing(
    change: Change, etcd: Etcd, options: dict[str, object], backend: MakeBackend
) -> None:
    async with mangling(etcd) as (mangler, port):
        mangler.changes[GRANT] = change
        with pytest.raises(UnansweredError):
            await backend("worker-1", f"http://127.0.0.1:{port}", timeout_seconds=2)


async def test_a_release_that_was_shown_another_key_is_an_error(mangled: tuple[Mangler, EtcdLeases]) -> None:
    """It would leave the lease behind."""
    mangler, one = mangled
    assert isinstance(await one.acquire(NAME), Lease)
    mangler.changes[RANGE] = put("kvs", 0, "key", value=encoded("/elsewhere"))

    with pytest.raises(UnansweredError, match="another key"):
        await one.release(NAME)


@pytest.mark.parametrize("base", [True, -5, 0, 2**53, 10**14, "5", None])
async def test_a_record_with_a_base_that_cannot_be_is_garbage(
    base: object, etcd: Etcd, prefix: str, backend: MakeBackend
) -> None:
    record = json.dumps({"base": base, "holder": "worker-9/1", "ttl": 5})
    one = await backend("worker-1")
    etcd.put(f"{prefix}/leases/{NAME}", record)

    refused = await one.acquire(NAME)

    assert isinstance(refused, Held)
    assert refused.holder is None
    granted = await one.acquire("gc-2")
    assert isinstance(granted, Lease)
    assert granted.token < 2**53


JUNK: list[Any] = [None, True, 5, 1.5, "x", "é", [], [5], [[]], [{}], {}, {"a": 1}, "9" * 5000]
FIELDS: dict[str, list[tuple[str | int, ...]]] = {
    TXN: [
        ("header",),
        ("header", "revision"),
        ("header", "cluster_id"),
        ("succeeded",),
        ("responses",),
        ("responses", 0),
        ("responses", 1, "response_range"),
        ("responses", 1, "response_range", "kvs"),
        MADE,
        *((*MADE, name) for name in ("key", "value", "create_revision", "mod_revision", "lease")),
    ],
    RANGE: [
        ("header",),
        ("header", "revision"),
        ("kvs",),
        ("kvs", 0),
        *(("kvs", 0, name) for name in ("key", "value", "create_revision", "mod_revision", "lease")),
        ("count",),
        ("more",),
    ],
    "/v3/kv/put": [("header",), ("header", "revision")],
    GRANT: [("header",), ("ID",), ("TTL",)],
    KEEPALIVE: [("result",), ("result", "header"), ("result", "ID"), ("result", "TTL")],
    "/v3/lease/timetolive": [("TTL",), ("grantedTTL",)],
}
FIELDS_OF_WATCHES: list[tuple[str | int, ...]] = [
    ("result",),
    ("result", "created"),
    ("result", "canceled"),
    ("result", "header"),
    ("result", "header", "revision"),
    ("result", "events"),
    ("error",),
]


@pytest.mark.parametrize("method", FIELDS)
async def test_no_answer_of_any_shape_is_taken_apart_but_for_what_it_is(
    method: str, etcd: Etcd, prefix: str, workers: Workers
) -> None:
    """Whatever is at the address: what every call raises is of those that it says it does."""
    changes: list[Change] = [partial(_replaced, junk) for junk in JUNK]
    changes += [partial(_put, at, junk) for at in FIELDS[method] for junk in (None, 5, "x", [5])]
    async with mangling(etcd) as (mangler, port):
        options = {"endpoints": [f"http://127.0.0.1:{port}"], "prefix": prefix}
        registry = await workers.registry("worker-1", options)
        leases = await workers.leases("worker-1", options)
        for change in changes:
            await registry.publish(make_card("worker-1"))
            lease = await leases.acquire(NAME)
            assert isinstance(lease, Lease)
            mangler.changes[method] = change
            newcomer = EtcdLeases(options)
            calls = [
                registry.list(),
                registry.publish(make_card("worker-1")),
                leases.renew([lease]),
                leases.acquire("gc-2"),
                leases.list(),
                newcomer.start(make_context("worker-2", "1")),
                leases.release(NAME),
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            await newcomer.stop()
            for answer in answers:
                if isinstance(answer, Exception) and not isinstance(answer, EtcdError | OSError):
                    assert type(answer) is RuntimeError, repr(answer)
                    assert "under every try" in str(answer)
            mangler.changes.clear()
            for name in (NAME, "gc-2"):
                await leases.release(name)


@pytest.mark.parametrize("token", [None, True, 5, "é", "", "a\nb", [], ["x"], {}, ...])
async def test_a_login_that_brings_no_token_is_no_login(token: Any) -> None:
    """The worker starts, says so, and asks again with each call."""
    body = {"header": {"revision": "1"}} | ({} if token is ... else {"token": token})
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response(body)

    shown = await what_is_told(answer)

    assert "is there an etcd at this address? See fleet.registry.etcd.endpoints" in shown
    assert asked[0] == "/v3/auth/authenticate"
    assert len(asked) > 1


async def test_a_watch_of_any_shape_ends_or_goes_on() -> None:
    sound = {"result": {"header": {"revision": "7"}, "created": True}}
    answers = [*JUNK, *(_put(at, junk, sound) for at in FIELDS_OF_WATCHES for junk in JUNK)]
    lines = [b"", b"\n", b"<html>", *(json.dumps(answer).encode() for answer in answers)]
    for each in lines:
        with serving(reply(each)) as server:
            client = EtcdClient(read_settings({"endpoints": server.url.rstrip("/")}))
            client.open(5)
            try:
                async for message in client.watch({"key": encoded("x")}):
                    assert isinstance(message.get("events", []), list)
            except (EtcdError, OSError, aiohttp.ClientError):
                pass
            finally:
                await client.close()


def _replaced(junk: Any, answer: Any) -> Any:
    del answer
    return junk


def _put(at: tuple[str | int, ...], junk: Any, answer: Any) -> Any:
    """The same where there is such a place; where there is none, as it is."""
    try:
        return put(*at, value=junk)(copy.deepcopy(answer))
    except (LookupError, TypeError):
        return answer


@pytest.mark.parametrize("status", [200, 404, 500])
@pytest.mark.parametrize(
    "body",
    [
        {"detail": "no such route"},
        {"error": "no such route"},
        {"error": {"code": "not_found"}},
        {"code": 404, "message": "no such route"},
        {"message": "no such route"},
    ],
)
async def test_the_words_of_another_service_are_not_taken_for_those_of_an_etcd(
    status: int, body: dict[str, Any]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    shown = await what_is_told(answer)

    assert f"status {status} and not what an etcd answers: is there an etcd at this address? See " in shown
    assert "no such route" not in shown


# --- secrets ------------------------------------------------------------------------------------------------

SECRET = 'p"w  é/1'
TOKEN = "SvrTokenQwerty.12"
FORMS = [SECRET, json.dumps(SECRET)[1:-1], repr(SECRET.encode())[2:-1], TOKEN]


@pytest.mark.parametrize("status", [200, 401, 403, 500, 503])
@pytest.mark.parametrize("said", FORMS)
async def test_a_secret_that_comes_back_shows_in_no_error(said: str, status: int) -> None:
    """As from a proxy that shows the request which it did not like, header and body."""

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/authenticate"):
            return web.json_response({"header": {"revision": "1"}, "token": TOKEN})
        return web.json_response({"code": 3, "message": f"proxy: {said}", "error": said}, status=status)

    shown = await what_is_told(answer)

    assert "***" in shown
    assert_hides(shown)


@pytest.mark.parametrize("said", FORMS[:3])
@pytest.mark.parametrize("status", [403, 503])
async def test_a_password_that_a_refused_login_sends_back_shows_in_no_error(said: str, status: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"code": 3, "message": 30 * f"proxy: {said} "}, status=status)

    shown = await what_is_told(answer)

    assert "***" in shown
    assert_hides(shown)


async def test_a_password_in_what_is_no_http_shows_in_no_error() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(f"{SECRET}\r\n\r\n".encode())
        request.transport.close()
        return web.Response()

    shown = await what_is_told(answer)

    assert "***" in shown
    assert_hides(shown)


def assert_hides(shown: str) -> None:
    for form in [*FORMS, *(" ".join(form.split()) for form in FORMS)]:
        assert form not in shown, form


async def what_is_told(answer: Callable[[web.Request], Any]) -> str:
    """All that a log and an error of a provider say whose server answers so."""
    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    log = RecordingLogger()
    login = {"username": "worker", "password": SECRET}
    provider = EtcdRegistry({"endpoints": [f"http://127.0.0.1:{runner.addresses[0][1]}"], **login})
    told: list[object] = []
    try:
        context = make_card_context("worker-1", logger=log)
        for call in (provider.start(context), provider.publish(make_card("worker-1"))):
            try:
                await call
            except (EtcdError, UnansweredError, ValueError) as error:
                told += [error, error.__cause__, error.__context__]
    except RuntimeError:
        pass  # it has not started
    finally:
        await provider.stop()
        await runner.cleanup()
    return " ".join(map(str, [*(value for _, _, fields in log.lines for value in fields.values()), *told]))
