"""The login: a cookie for who knows the token, patience for who guesses."""

import asyncio
import math
import secrets
from collections.abc import AsyncIterator

import httpx
import pytest
from drakkar.server.login import FREE_GUESSES, MAX_WAIT_SECONDS, TICKET_SECONDS, Patience, Tickets, target
from drakkar.worker import Worker
from support.clock import FakeClock
from support.log import RecordingLogger
from support.scripted import Script
from support.waiting import until
from support.workers import make_worker

TOKEN = "n0t-a-real-token"


@pytest.fixture
def log() -> RecordingLogger:
    return RecordingLogger()


@pytest.fixture
async def worker(script: Script, log: RecordingLogger) -> AsyncIterator[Worker]:
    async with make_worker(log=log, ui__auth_token=TOKEN) as worker:
        yield worker


@pytest.fixture
async def browser(worker: Worker) -> AsyncIterator[httpx.AsyncClient]:
    assert worker.url is not None
    headers = {"Origin": worker.url.rstrip("/")}
    async with httpx.AsyncClient(base_url=worker.url, headers=headers, timeout=10, trust_env=False) as client:
        yield client


async def log_in(browser: httpx.AsyncClient, token: str = TOKEN, after: str = "") -> httpx.Response:
    return await browser.post(f"login?next={after}", data={"token": token})


async def test_who_knows_the_token_gets_in(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("api/v1/workers")).status_code == 401
    answer = await log_in(browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    assert (await browser.get("api/v1/workers")).status_code == 200


async def test_the_cookie_is_none_for_programs_nor_for_other_sites_and_is_not_the_token(
    browser: httpx.AsyncClient,
) -> None:
    cookie = (await log_in(browser)).headers["set-cookie"]
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/", f"max-age={TICKET_SECONDS}"} <= attributes
    assert "secure" not in attributes  # it came over plain HTTP
    assert TOKEN not in cookie


async def test_the_cookie_is_for_tls_alone_where_the_page_came_over_it(
    worker: Worker, browser: httpx.AsyncClient
) -> None:
    origin = f"https://127.0.0.1:{worker.served.port}"
    answer = await browser.post("login", data={"token": TOKEN}, headers={"Origin": origin})
    assert "secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "größe"])
async def test_who_does_not_know_it_does_not(browser: httpx.AsyncClient, token: str) -> None:
    answer = await log_in(browser, token)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("login?failed=wrong")
    assert "set-cookie" not in answer.headers
    assert (await browser.get("api/v1/workers")).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"tokens=" + TOKEN.encode(),
        b"token=a&token=" + TOKEN.encode(),
        b"\xff" * 100,
        b"&" * 8000,
        b"token=" + b"x" * 20_000,
        b'{"token": "' + TOKEN.encode() + b'"}',
    ],
)
async def test_a_form_that_is_none_is_told_so_and_is_no_guess(
    browser: httpx.AsyncClient, body: bytes
) -> None:
    for _ in range(FREE_GUESSES + 2):
        answer = await browser.post("login", content=body)
        assert "set-cookie" not in answer.headers
        assert answer.status_code == 400
        assert answer.json() == {"error": "send a form with the one field 'token', as the page does"}
    assert (await log_in(browser)).headers["location"] == "./"


async def test_who_sent_a_form_that_is_none_by_a_browser_gets_the_form_again(
    browser: httpx.AsyncClient,
) -> None:
    answer = await browser.post("login", data={"token": "x" * 20_000}, headers={"Accept": "text/html,*/*"})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert "That is too long for a token" in answer.text
    assert 'name="token"' in answer.text


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", '<p id="problem" role="alert"></p>'),
        ("failed=wrong&wait=0", ">That is not the token.<"),
        ("failed=wait&wait=8", ">Try again in 8 s.<"),
        ("failed=<b>&wait=<b>", '<p id="wait" class="muted"></p>'),
        ("failed=wait&wait=99999", '<p id="wait" class="muted"></p>'),
    ],
)
async def test_the_form_tells_without_programs_what_went_wrong(
    browser: httpx.AsyncClient, query: str, told: str
) -> None:
    assert told in (await browser.get(f"login?{query}")).text


async def test_a_form_that_does_not_come_is_not_waited_for(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drakkar.server.login.FORM_SECONDS", 0.1)
    host = f"127.0.0.1:{worker.served.port}"
    head = f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 9\r\n\r\ntoken="
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", worker.served.port)
        writer.write(head.encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        await writer.wait_closed()


async def test_a_form_that_is_none_does_not_spare_the_next_guess_its_wait(browser: httpx.AsyncClient) -> None:
    for _ in range(FREE_GUESSES + 1):
        await log_in(browser, "wrong")
    assert (await browser.post("login", content=b"")).status_code == 400
    assert (await log_in(browser)).headers["location"] == "login?failed=wait&wait=1"


async def test_a_browser_that_goes_in_the_middle_of_the_form_is_no_error(
    worker: Worker, browser: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b"token="
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        await browser.post("login", content=half(), headers={"Content-Length": "9"})
    assert (await browser.get("login")).status_code == 200
    await until(lambda: "run_asgi" not in repr(asyncio.all_tasks()))
    assert caplog.records == []


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
@pytest.mark.parametrize("path", ["login", "logout"])
async def test_a_form_of_another_page_is_refused(
    worker: Worker, browser: httpx.AsyncClient, origin: str | None, path: str
) -> None:
    del browser.headers["origin"]
    headers = {} if origin is None else {"Origin": origin}
    answer = await browser.post(path, data={"token": TOKEN}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"].startswith(
        "requests from pages" if origin else "this is the way of browsers"
    )
    assert "set-cookie" not in answer.headers


async def test_a_guess_is_compared_in_constant_time(
    browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = secrets.compare_digest

    def spy(given: bytes, expected: bytes) -> bool:
        compared.append((given, expected))
        return compare(given, expected)

    monkeypatch.setattr(secrets, "compare_digest", spy)
    await log_in(browser, "wrong")
    assert compared == [(b"wrong", TOKEN.encode())]


async def test_guesses_are_slowed_down(browser: httpx.AsyncClient) -> None:
    for _ in range(FREE_GUESSES + 1):
        await log_in(browser, "wrong")
    answer = await log_in(browser)
    assert answer.headers["location"] == "login?failed=wait&wait=1"
    assert "set-cookie" not in answer.headers


async def test_after_the_logout_the_ticket_opens_nothing(browser: httpx.AsyncClient) -> None:
    await log_in(browser)
    ticket = dict(browser.cookies)
    answer = await browser.post("logout")
    assert (answer.status_code, answer.headers["location"]) == (303, "login")
    assert not browser.cookies
    again = await browser.get(
        "api/v1/workers", headers={"Cookie": "; ".join(f"{k}={v}" for k, v in ticket.items())}
    )
    assert again.status_code == 401


async def test_the_logout_ends_the_streams_that_the_ticket_opened(browser: httpx.AsyncClient) -> None:
    await log_in(browser)
    async with browser.stream("GET", "api/v1/events") as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        await browser.post("logout")
        with pytest.raises(httpx.HTTPError):  # it is cut, as at a stop of the worker
            async for _ in lines:
                pass


async def test_nothing_is_logged_of_a_token(browser: httpx.AsyncClient, log: RecordingLogger) -> None:
    await log_in(browser, "a-wrong-token")
    await log_in(browser)
    assert TOKEN not in repr(log.lines)
    assert "a-wrong-token" not in repr(log.lines)


async def test_there_is_no_login_where_there_is_no_token(script: Script) -> None:
    async with make_worker() as worker, httpx.AsyncClient(timeout=10, trust_env=False) as client:
        assert (await client.get(f"{worker.url}login")).status_code == 404


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ("", ""),
        ("history", "history"),
        ("history?name=a%26b", "history?name=a%26b"),
        ("?sort=-name", "?sort=-name"),
        ("//evil.example/", ""),
        ("/\\evil.example", ""),
        ("\\\\evil.example", ""),
        ("https://evil.example/", ""),
        ("javascript:alert(1)", ""),
        ("../api/v1/workers", ""),
        ("http://[", ""),
    ],
)
def test_the_login_leads_to_our_pages_alone(wanted: str, there: str) -> None:
    assert target(wanted) == there


# -- tickets


def test_a_ticket_outlives_a_restart_and_is_good_at_every_worker_with_the_token() -> None:
    clock = FakeClock()
    assert Tickets(TOKEN, clock).holds(Tickets(TOKEN, clock).issue())


def test_a_ticket_ends() -> None:
    clock = FakeClock()
    tickets = Tickets(TOKEN, clock)
    ticket = tickets.issue()
    clock.jump(TICKET_SECONDS - 2)
    assert tickets.holds(ticket)
    clock.jump(3)
    assert not tickets.holds(ticket)


def test_a_ticket_of_another_token_or_by_another_hand_is_none() -> None:
    tickets = Tickets(TOKEN, FakeClock())
    ticket = tickets.issue()
    end, nonce, signature = ticket.split(".")
    assert not tickets.holds(Tickets("another", FakeClock()).issue())
    for forged in (
        f"{int(end) + 1}.{nonce}.{signature}",
        f"{end}.{nonce}x.{signature}",
        f"{end}.{nonce}.",
        signature,
        "",
        "..",
        "9999999999.x.größe\udc80",
    ):
        assert not tickets.holds(forged)


def test_no_two_tickets_are_alike() -> None:
    tickets = Tickets(TOKEN, FakeClock())
    assert tickets.issue() != tickets.issue()


# -- patience


def test_each_further_wrong_guess_costs_twice_the_time() -> None:
    clock = FakeClock()
    patience = Patience(clock)
    waits = []
    for _ in range(FREE_GUESSES + 9):
        patience.wrong("a")
        waits.append(patience.wait_seconds("a"))
    assert waits == [0.0] * FREE_GUESSES + [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert patience.wait_seconds("b") == 0
    clock.jump(MAX_WAIT_SECONDS)
    assert patience.wait_seconds("a") == 0
    patience.right("a")
    patience.wrong("a")
    assert math.isclose(patience.wait_seconds("a"), 0)
