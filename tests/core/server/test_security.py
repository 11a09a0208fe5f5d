"""Who may read: the token, and the answers without one."""

import secrets
from collections.abc import AsyncIterator

import httpx
import pytest
from drakkar.server.security import OPEN_PATHS
from drakkar.worker import Worker
from support.scripted import Script
from support.workers import get, make_worker

TOKEN = "n0t-a-real-token"
GUARDED = [
    "",
    "history",
    "api/v1/workers",
    "api/v1/identity",
    "api/v1/history",
    "metrics",
    "openapi.json",
    "nowhere",
    "healthz/x",
]


@pytest.fixture
async def worker(script: Script) -> AsyncIterator[Worker]:
    async with make_worker(ui__auth_token=TOKEN) as worker:
        yield worker


async def raw(worker: Worker, authorization: bytes, path: str = "api/v1/workers") -> httpx.Response:
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        return await client.get(f"{worker.url}{path}", headers=[(b"authorization", authorization)])


@pytest.mark.parametrize("path", GUARDED)
async def test_refuses_everything_but_probes_without_the_token(worker: Worker, path: str) -> None:
    answer = await get(worker, path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text


@pytest.mark.parametrize("path", GUARDED)
async def test_lets_everything_pass_with_the_token(worker: Worker, path: str) -> None:
    answer = await get(worker, path, Authorization=f"Bearer {TOKEN}")
    assert answer.status_code == (404 if path in ("nowhere", "healthz/x") else 200)
    assert TOKEN not in answer.text


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
async def test_probes_need_no_token(worker: Worker, path: str) -> None:
    answer = await get(worker, path.lstrip("/"))
    assert answer.status_code == 200
    assert TOKEN not in answer.text


@pytest.mark.parametrize(
    "authorization",
    [
        b"",
        b"Bearer",
        b"Bearer wrong",
        TOKEN.encode(),
        f"Bearer {TOKEN}x".encode(),
        f"Bearer {TOKEN[:-1]}".encode(),
        f"Bearer {TOKEN.upper()}".encode(),
        f"Basic {TOKEN}".encode(),
        "Bearer größe".encode(),
        "Bearer größe".encode("latin-1"),
        b"Bearer \xff\xfe",
        b"Bearer " + b"x" * 10_000,
    ],
)
async def test_refuses_what_is_not_the_token(worker: Worker, authorization: bytes) -> None:
    assert (await raw(worker, authorization)).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_name_of_the_scheme_may_be_in_any_letters(worker: Worker, scheme: str) -> None:
    assert (await raw(worker, f"{scheme} {TOKEN}".encode())).status_code == 200


async def test_an_action_by_the_cookie_must_tell_its_origin(worker: Worker) -> None:
    assert worker.url is not None
    url = f"{worker.url}api/v1/leases/step-down?name=gc"
    action = {"X-Drakkar-Action": "step-down"}
    origin = {"Origin": worker.url.rstrip("/")}
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        await client.post(f"{worker.url}login", data={"token": TOKEN}, headers=origin)
        assert client.cookies
        answer = await client.post(url, headers=action)
        assert answer.status_code == 403
        assert "Origin" in answer.json()["error"]
        # Past the guards: this worker has no leases to give up.
        assert (await client.post(url, headers={**action, **origin})).status_code == 404
        assert (await client.get(f"{worker.url}api/v1/workers")).status_code == 200
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert (await client.post(url, headers={**action, **bearer})).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
async def test_refuses_other_methods_without_the_token_as_well(worker: Worker, method: str) -> None:
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        assert (await client.request(method, f"{worker.url}api/v1/workers")).status_code == 401


@pytest.mark.parametrize("path", ["%68ealthz", "healthz/", "./healthz/../metrics", "healthz%2f..%2fmetrics"])
async def test_a_path_that_only_looks_like_a_probe_opens_nothing(worker: Worker, path: str) -> None:
    answer = await get(worker, path)
    assert answer.status_code in (200, 401)
    assert "drakkar_fleet" not in answer.text


async def test_the_token_in_the_address_opens_nothing(worker: Worker) -> None:
    answer = await get(worker, f"api/v1/workers?token={TOKEN}&access_token={TOKEN}&auth_token={TOKEN}")
    assert answer.status_code == 401


async def test_compares_in_constant_time(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = secrets.compare_digest

    def spy(given: bytes, expected: bytes) -> bool:
        compared.append((given, expected))
        return compare(given, expected)

    monkeypatch.setattr(secrets, "compare_digest", spy)
    await get(worker, Authorization="Bearer wrong")
    assert compared == [(b"wrong", TOKEN.encode())]


async def test_without_a_token_in_the_settings_everybody_may_read(script: Script) -> None:
    async with make_worker() as worker:
        assert (await get(worker)).status_code == 200


async def test_listens_on_loopback_alone_by_default(script: Script) -> None:
    """Trial "Bound to loopback is not protected": by default nobody else can connect."""
    async with make_worker() as worker:
        assert worker.served.ip_address == "127.0.0.1"
        assert worker.url == f"http://127.0.0.1:{worker.served.port}/"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
async def test_refuses_a_page_of_another_origin(script: Script, method: str) -> None:
    """Trial "Bound to loopback is not protected": a form post and a script call from another origin."""
    headers = {"Origin": "http://evil.example", "Content-Type": "application/x-www-form-urlencoded"}
    async with make_worker() as worker, httpx.AsyncClient(timeout=10, trust_env=False) as client:
        for path in GUARDED:
            answer = await client.request(method, f"{worker.url}{path}", headers=headers, content=b"a=b")
            assert answer.status_code == 403, path
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::1", "a b"]
)
async def test_refuses_a_name_that_is_not_its_own(script: Script, host: str) -> None:
    """Trial "Bound to loopback is not protected": a name that a web page has rebound to this address."""
    async with make_worker() as worker:
        answer = await get(worker, Host=host)
        assert answer.status_code in (400, 403)
        assert "worker-1" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8080", "LOCALHOST", "10.0.3.17:80", "[::1]:8080"])
async def test_answers_by_addresses_and_by_its_names(script: Script, host: str) -> None:
    async with make_worker() as worker:
        assert (await get(worker, Host=host)).status_code == 200


async def test_answers_by_the_name_of_its_public_url(script: Script) -> None:
    async with make_worker(ui__public_url="https://Fleet.example.org/w/") as worker:
        url = f"http://127.0.0.1:{worker.served.port}/api/v1/workers"
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            answer = await client.get(url, headers={"Host": "fleet.example.org"})
            assert answer.status_code == 200


async def test_probes_are_answered_by_whatever_name(script: Script) -> None:
    async with make_worker() as worker:
        for path in OPEN_PATHS:
            assert (await get(worker, path[1:], Host="10-0-3-17.pod.example")).status_code == 200


async def test_a_page_of_its_own_origin_may_ask(script: Script) -> None:
    async with make_worker() as worker:
        assert worker.url is not None
        assert (await get(worker, Origin=worker.url.rstrip("/"))).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://fleet.example.org", 200),
        ("http://fleet.example.org", 403),
        ("https://fleet.example.org:8443", 403),
        ("https://fleet.example.org.evil.example", 403),
        ("", 403),
        ("null", 403),
    ],
)
async def test_a_page_at_its_public_url_may_ask_by_a_proxy_that_passes_another_host(
    script: Script, origin: str, status: int
) -> None:
    async with make_worker(ui__public_url="https://Fleet.example.org:443/w/") as worker:
        url = f"http://127.0.0.1:{worker.served.port}/api/v1/workers"
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            assert (await client.get(url, headers={"Origin": origin})).status_code == status
            foreign = {"Origin": origin, "Host": "evil.example"}
            assert (await client.get(url, headers=foreign)).status_code == 403


async def test_an_empty_origin_is_none_of_ours(script: Script) -> None:
    async with make_worker() as worker:
        assert (await get(worker, Origin="")).status_code == 403
