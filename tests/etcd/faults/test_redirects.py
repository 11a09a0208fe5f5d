"""A redirect is not followed: what is asked holds the password of the login, or its token."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web
from drakkar.fleet.testkit import make_card
from drakkar_etcd._answers import EtcdError, UnansweredError
from drakkar_etcd._wire import encoded
from support.certificates import Authority
from support.etcd_servers import Etcd
from support.etcd_workers import Workers
from support.log import RecordingLogger

ONE_SERVER_IN_A_GATE = True
LOGIN = {"username": "fleet", "password": "hunter-2"}
TOLD = r"redirects to another address, see fleet\.registry\.etcd\.endpoints"


class Site:
    """Answers each path as a test says, and all others with a redirect; keeps what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, object]] = {}
        self.status = 307
        self.target = ""
        self.asked: list[str] = []

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.text()
        self.asked.append(f"{request.method} {request.path} {dict(request.headers)} {body}")
        if (answer := self.answers.get(request.path)) is not None:
            return web.json_response(answer)
        # As of an etcd in its body, too.
        found = {"header": {"revision": "7"}, "token": "SvrTokenQwerty.12", "TTL": "60", "ID": "5"}
        location = {"Location": f"{self.target}{request.path}"}
        return web.json_response(found, status=self.status, headers=location)


@asynccontextmanager
async def serving(site: Site, tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("logs_in", [True, False], ids=["with a token", "at the login"])
async def test_nothing_goes_where_a_server_of_tls_redirects_to(
    status: int, logs_in: bool, tmp_path: Path, workers: Workers
) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate.cert_file, certificate.key_file)
    first, second, log = Site(), Site(), RecordingLogger()
    if logs_in:
        first.answers["/v3/auth/authenticate"] = {"header": {"revision": "7"}, "token": "SvrTokenQwerty.12"}
    async with serving(second, None) as target, serving(first, tls) as endpoint:
        first.target, first.status = target, status
        options = {"endpoints": [endpoint], "ca_file": authority.ca_file, **LOGIN}
        registry = await workers.registry("worker-1", options, logger=log)
        for call in (registry.list, lambda: registry.publish(make_card("worker-1"))):
            with pytest.raises(UnansweredError, match=TOLD):
                await call()
        with pytest.raises(UnansweredError, match=TOLD):
            await workers.leases("worker-1", options)
        with pytest.raises(EtcdError, match=TOLD):
            await anext(registry._client.watch({"key": encoded("x")}))

    assert second.asked == []
    assert any("hunter-2" in asked for asked in first.asked)
    assert any("SvrTokenQwerty" in asked for asked in first.asked) == logs_in
    assert len(log.named("etcd_unreachable")) == (not logs_in)


async def test_the_next_endpoint_is_asked_and_watched(etcd: Etcd, prefix: str, workers: Workers) -> None:
    first, second = Site(), Site()
    async with serving(second, None) as target, serving(first, None) as endpoint:
        first.target = target
        options = {"endpoints": [endpoint, etcd.endpoint], "prefix": prefix}
        registry = await workers.registry("worker-1", options)
        with suppress(OSError):
            await registry.publish(make_card("worker-1"))
        assert [peer.card["worker"] for peer in await registry.list()] == ["worker-1"]

    assert second.asked == []
