"""The page at `/`: whatever stands on a card is text, and only http and https addresses are links.

Trial "A card's text runs in the operator's browser", as far as a page without scripts can show it.
"""

from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from drakkar.fleet.testkit import make_card
from support.scripted import Script, stranger
from support.waiting import until
from support.workers import get, make_worker

VOID = {"meta", "link"}
ALLOWED = {
    "html": {"lang"},
    "meta": {"charset", "name", "content", "http-equiv"},
    "link": {"rel", "href"},
    "a": {"rel", "href"},
    **{tag: set[str]() for tag in ("head", "title", "body", "h1", "table", "thead", "tbody", "tr")},
    **{tag: set[str]() for tag in ("th", "td", "bdi")},
}
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</td></tr></table><script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</bdi></a><a href=javascript:alert(1)>",
    '" onmouseover="alert(1)" \'',
    "' onmouseover='alert(1)' \"",
    "&lt;b&gt; &amp; &#106;avascript:",
    "\u202egnp.exe\u2066\u2067\u061c",
    "<!--",
    "<![CDATA[",
    "\x00\x0b\x1b[31m",
    "{{ 7 * 7 }} ${7 * 7}",
]
NO_LINKS = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "//10.0.0.1/",
    "/api",
    "ftp://10.0.0.1/",
    "http:javascript:alert(1)",
    "\x00http://10.0.0.1/",
    "x",
]


class Page(HTMLParser):
    """The page as a browser would take it apart: strict about what may stand in it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.stylesheets: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], "tags that were not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, f"<{tag}> in the page"
        given = dict(attrs)
        assert set(given) <= ALLOWED[tag], f"<{tag}> has {sorted(given)}"
        if tag == "a":
            self.links.append(given["href"] or "")
        if tag == "link":
            self.stylesheets.append(given["href"] or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")

    @property
    def workers(self) -> dict[str, dict[str, str]]:
        """The cells under the heads of the table, by worker name."""
        heads, *rows = self.rows
        assert all(len(row) == len(heads) for row in rows)
        return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


async def page_beside(script: Script, *fields: dict[str, object], age_seconds: float | None = 1.0) -> Page:
    """The page of a worker beside peers with these fields."""
    cards = [{**make_card(f"worker-{n}"), **some} for n, some in enumerate(fields, 2)]
    script.strangers = [stranger(card, age_seconds) for card in cards]
    async with make_worker("worker-1") as worker:
        await until(lambda: len(worker.peers()) == len(cards))
        answer = await get(worker, "")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return Page(answer.text)


async def test_lists_every_worker(script: Script) -> None:
    page = await page_beside(
        script,
        {
            "cluster": "search",
            "state": "running",
            "version": "2.4.0",
            "features": {"leader_for": ["notify", "gc"]},
            "url": "http://10.0.3.17:8080/",
        },
    )
    assert list(page.workers) == ["worker-2", "worker-1 (this one)"]
    row = page.workers["worker-2"]
    seen = row.pop("Last seen")
    assert seen in {"1 s ago", "2 s ago", "3 s ago"}
    assert row == {
        "Worker": "worker-2",
        "Cluster": "search",
        "State": "running",
        "Liveness": "online",
        "Version": "2.4.0",
        "Leads": "gc, notify",
        "Address": "http://10.0.3.17:8080/",
    }
    assert "http://10.0.3.17:8080/" in page.links


@pytest.mark.parametrize(
    ("age_seconds", "liveness"), [(1.0, "online"), (100.0, "offline"), (None, "unknown")]
)
async def test_says_who_is_online(script: Script, age_seconds: float | None, liveness: str) -> None:
    page = await page_beside(script, {}, age_seconds=age_seconds)
    assert page.workers["worker-2"]["Liveness"] == liveness


@pytest.mark.parametrize("text", HOSTILE)
async def test_shows_what_stands_on_a_card_as_text(script: Script, text: str) -> None:
    page = await page_beside(
        script,
        {
            **dict.fromkeys(("worker", "cluster", "url", "version", "state", "instance"), text),
            "features": {"leader_for": [text]},
        },
    )
    row = next(row for name, row in page.workers.items() if name != "worker-1 (this one)")
    assert [row[key] for key in ("Worker", "Cluster", "State", "Version", "Leads", "Address")] == [text] * 6
    assert len(page.links) == 1  # this worker's own


@pytest.mark.parametrize("url", NO_LINKS)
async def test_links_no_address_but_http_and_https(script: Script, url: str) -> None:
    page = await page_beside(script, {"url": url})
    assert [urlsplit(link).scheme for link in page.links] == ["http"]
    assert page.links[0] == page.workers["worker-1 (this one)"]["Address"]


@pytest.mark.parametrize(
    "url",
    ['https://10.0.0.1/"onmouseover="alert(1)', "http://10.0.0.1/'><script>", "HTTPS://10.0.0.1/?a=1&lt=2"],
)
async def test_links_an_address_with_odd_characters_as_it_is(script: Script, url: str) -> None:
    page = await page_beside(script, {"url": url})
    assert url in page.links
    assert page.workers["worker-2"]["Address"] == url


async def test_cuts_long_text(script: Script) -> None:
    page = await page_beside(script, {"version": "x" * 3000})
    assert page.workers["worker-2"]["Version"] == "x" * 200 + "…"


async def test_keeps_the_direction_of_each_text_to_itself(script: Script) -> None:
    script.strangers = [stranger(make_card("\u202eworker-2", cluster="\u202egnp", version="\u202e1"))]
    async with make_worker() as worker:
        await until(lambda: len(worker.peers()) == 1)
        html = (await get(worker, "")).text
    for text in ("\u202eworker-2", "\u202egnp", "\u202e1"):
        assert f"<bdi>{text}</bdi>" in html


async def test_refers_to_nothing_of_third_parties(script: Script) -> None:
    async with make_worker() as worker:
        answer = await get(worker, "")
        page = Page(answer.text)
        assert page.links == [worker.url]
        assert page.stylesheets == ["style.css"]
        style = await get(worker, "style.css")
        assert style.headers["content-type"].startswith("text/css")
        assert "url(" not in style.text
        assert "@import" not in style.text


@pytest.mark.parametrize("path", ["", "style.css", "api/v1/workers", "healthz", "nowhere", "openapi.json"])
async def test_every_answer_forbids_scripts_framing_and_sniffing(script: Script, path: str) -> None:
    async with make_worker() as worker:
        headers = (await get(worker, path)).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "script-src" not in policy
    assert policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


async def test_shows_a_fleet_of_thousands(script: Script) -> None:
    script.strangers = [stranger(make_card(f"worker-{n}")) for n in range(2, 5001)]
    async with make_worker() as worker:
        await until(lambda: len(worker.peers()) == 4999)
        assert len(Page((await get(worker, "")).text).workers) == 5000
