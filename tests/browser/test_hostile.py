"""Trial "A card's text runs in the operator's browser": what others write is shown as text alone."""

import json
from collections.abc import Callable

import pytest
from drakkar.fleet.testkit import make_card
from drakkar_filesystem._card_file import file_name
from playwright.sync_api import Page, expect
from support.processes import Fleet, WorkerProcess, wait_for

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</td></tr></table><script>alert(2)</script>",
    "</script><script>alert(3)</script>",
    "</bdi></a><a href=javascript:alert(4)>",
    '" onmouseover="alert(5)" \'',
    "&lt;b&gt; &amp; &#106;avascript:",
    "\u202egnp.exe\u2066\u2067\u061c",
    "<!--",
    "{{ 7 * 7 }} ${7 * 7}",
    "line\u2028and\u2029paragraph",
    "__proto__",
    "data: x\n\nevent: workers",
]
NO_LINKS = [
    "javascript:alert(1)",
    " javascript:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "//10.0.0.1/",
    "/api",
    "ftp://10.0.0.1/",
    "http:javascript:alert(1)",
    "http://[",
    "http://127.0.0.1:8080@10.0.0.1/",
]
ERROR = "<img src=x onerror=alert(6)> " + "x" * 5000


@pytest.fixture
def page(fleet: Fleet, start: Callable[..., list[WorkerProcess]], open_page: Callable[..., Page]) -> Page:
    fleet.cards.mkdir(parents=True)
    cards = [
        make_card(
            f"{text} {n}",
            cluster=text,
            url=f"http://10.0.0.1/{text}",
            version=text,
            state=text,
            features={"leader_for": [text]},
        )
        for n, text in enumerate(HOSTILE)
    ]
    cards += [make_card(f"linkless-{n}", url=url) for n, url in enumerate(NO_LINKS)]
    for card in cards:
        (fleet.cards / file_name(card["worker"])).write_text(json.dumps(card))
    settings = {"workers": "expiry,reports", "fleet.registry.offline_after_seconds": 3600}
    [worker] = start(
        "worker-1", settings=settings, names=[text for text in HOSTILE if text.isprintable()], error=ERROR
    )
    listed = worker.rows()
    wait_for(lambda: len(worker.rows()) > 1, what="listing the cards")
    listed = worker.rows()
    page = open_page(worker.url)
    expect(page.locator("table.workers tbody tr:not(.space)")).to_have_count(len(listed))
    return page


def test_whatever_stands_on_a_card_is_text(page: Page) -> None:
    names = page.locator("table.workers td.name").all_text_contents()
    shown = [text for text in HOSTILE if any(name.startswith(text) for name in names)]
    assert len(shown) >= 8  # the others are refused as cards
    for text in shown:
        line = page.locator("table.workers tbody tr").filter(has=page.locator("td.name", has_text=text)).first
        assert text in line.locator(".chip bdi").all_text_contents()
        assert text in line.locator("[data-label=Version] bdi").all_text_contents()
    leases = page.locator("table.leases td.name")
    expect(leases.filter(has_text="<img src=x onerror=alert(1)>")).to_have_count(1)
    error = page.locator("table.jobs td.error").filter(has_text="onerror=alert(6)")
    expect(error).to_have_count(1)
    assert len(error.inner_text()) < 400
    page.get_by_role("combobox", name="Go to worker").fill("<img")
    expect(
        page.locator("#switch-list [role=option]").filter(has_text="<img src=x onerror=alert(1)>")
    ).to_have_count(1)
    nothing_foreign(page)
    page.get_by_role("link", name="History").click()
    expect(page.locator("table.events td.error").filter(has_text="onerror=alert(6)")).not_to_have_count(0)
    nothing_foreign(page)


def nothing_foreign(page: Page) -> None:
    """No element, attribute or handler in the page is of a card's making."""
    assert page.locator("img, iframe, object, embed, style, script:not([src]), base").count() == 0
    attributes = (
        "[...document.querySelectorAll('*')].flatMap(n => n.getAttributeNames()).filter(n => /^on/.test(n))"
    )
    assert page.evaluate(attributes) == []
    assert page.evaluate("[...document.links].filter(a => !/^https?:$/.test(a.protocol)).length") == 0


def test_only_http_and_https_are_links(page: Page) -> None:
    lines = page.locator("table.workers tbody tr").filter(has=page.locator("td.name", has_text="linkless-"))
    assert lines.count() >= 6
    assert lines.locator("a").count() == 0
    page.get_by_role("combobox", name="Go to worker").fill("linkless")
    expect(page.locator("#switch-list [role=option]")).to_have_text(["No such worker"])


def test_a_line_of_foreign_text_keeps_its_direction_to_itself(page: Page) -> None:
    turned = page.locator("table.workers td.name bdi").filter(has_text="\u202e")
    assert turned.count() == 1
    assert turned.evaluate("node => getComputedStyle(node).unicodeBidi") == "isolate"
