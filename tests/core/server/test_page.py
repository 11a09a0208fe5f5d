"""The pages as files: what is served, to whom, under which rules. What they do is tested in a browser."""

import re

import pytest
from drakkar.server.page import contents
from drakkar.worker import Worker
from support.repository import CORE
from support.scripted import Script
from support.workers import get, make_worker

FILES = sorted(path.name for path in (CORE.source / "server" / "pages").iterdir())
PAGES = {"": "live.html", "history": "history.html"}
TOKEN = "n0t-a-real-token"


def directives(policy: str) -> dict[str, str]:
    return dict(part.strip().split(" ", 1) for part in policy.split(";"))


@pytest.mark.parametrize("path", PAGES)
async def test_serves_the_pages(script: Script, path: str) -> None:
    async with make_worker() as worker:
        answer = await get(worker, path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.content == contents()[PAGES[path]]


async def test_serves_what_the_pages_are_made_of(script: Script) -> None:
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    async with make_worker() as worker:
        for name in FILES:
            answer = await get(worker, f"assets/{name}")
            if name.endswith(".html"):
                assert answer.status_code == 404
            else:
                assert answer.status_code == 200
                assert answer.headers["content-type"].partition(";")[0] == kinds[name.rpartition(".")[2]]


@pytest.mark.parametrize("name", ["x.js", "..%2fpage.py", "%2e%2e/page.py", "", "live.html", "style.css%00"])
async def test_serves_nothing_else(script: Script, name: str) -> None:
    async with make_worker() as worker:
        assert (await get(worker, f"assets/{name}")).status_code == 404


async def test_what_pages_are_made_of_needs_no_token(script: Script) -> None:
    async with make_worker(ui__auth_token=TOKEN) as worker:
        assert (await get(worker, "assets/style.css")).status_code == 200
        assert (await get(worker, "assets/..%2f..%2fapi/v1/workers")).status_code == 404


@pytest.mark.parametrize("name", FILES)
def test_refers_to_nothing_of_third_parties_and_has_no_code_inline(name: str) -> None:
    text = contents()[name].decode()
    addresses = re.findall(r"https?://[^\s\"']+", text.replace("http://www.w3.org/2000/svg", ""))
    assert addresses == []
    assert not re.search(r"@import|url\(|\bimport\(", text)
    if name.endswith(".html"):
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", text)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_no_program_makes_html_of_text(name: str) -> None:
    text = contents()[name].decode()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setHTML", text
    )


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_small(name: str) -> None:
    assert contents()[name].count(b"\n") <= 200


@pytest.mark.parametrize(
    "path", ["", "history", "assets/live.js", "api/v1/workers", "healthz", "nowhere", "openapi.json"]
)
async def test_every_answer_forbids_foreign_code_framing_and_sniffing(script: Script, path: str) -> None:
    async with make_worker() as worker:
        headers = (await get(worker, path)).headers
    policy = directives(headers["content-security-policy"])
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert {policy[what] for what in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


@pytest.fixture
async def guarded(script: Script) -> Worker:
    return make_worker(ui__auth_token=TOKEN)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "login"),
        ("?name=a%26b&sort=-name", "login?next=%3Fname%3Da%2526b%26sort%3D-name"),
        ("history", "login?next=history"),
    ],
)
async def test_a_browser_without_a_ticket_is_sent_to_the_login(
    guarded: Worker, path: str, target: str
) -> None:
    async with guarded as worker:
        answer = await get(worker, path, Accept="text/html,*/*")
        assert (answer.status_code, answer.headers["location"]) == (303, target)
        assert TOKEN not in answer.text
        assert (await get(worker, "api/v1/workers", Accept="text/html")).status_code == 401
