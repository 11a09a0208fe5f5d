"""Trial "A card's text runs in the operator's browser": what others write is shown as text alone, and as what
it is."""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from drakkar.fleet.testkit import make_card
from playwright.sync_api import Page, expect
from support.hostile_cards import ALIKE, ERROR, HOSTILE, LONG, hostile_cards, long_card, write
from support.processes import Fleet, WorkerProcess, wait_for

DESKTOP = {"width": 1200, "height": 900}
PHONE = {"width": 360, "height": 740}
OUTSIDE = """[...document.querySelectorAll('html, .workers td:not(:empty), #workers .scroll')]
  .filter(n => n.scrollWidth > n.clientWidth + 1).length"""
"""In how many boxes there is more than fits."""


@pytest.fixture
def page(fleet: Fleet, start: Callable[..., list[WorkerProcess]], open_page: Callable[..., Page]) -> Page:
    write(fleet.cards, *hostile_cards(), long_card())
    settings = {"workers": "expiry,reports", "fleet.registry.offline_after_seconds": 3600}
    [worker] = start(
        "worker-1", settings=settings, names=[text for text in HOSTILE if text.isprintable()], error=ERROR
    )
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
    switch = page.get_by_role("combobox", name="Go to worker")
    switch.fill("linkless-0")
    option = page.locator("#switch-list [role=option]")
    expect(option).to_have_text(["linkless-0online · no address to go to"])
    expect(option).to_have_attribute("aria-disabled", "true")
    before = page.url
    switch.press("Enter")
    option.click(force=True)
    assert page.url == before
    switch.fill("no-such-name")
    expect(option).to_have_text(["No such worker"])


def test_no_password_of_an_address_is_shown(page: Page) -> None:
    expect(page.get_by_text("http://***@10.0.0.1/", exact=True)).to_have_count(1)
    expect(page.get_by_text("127.0.0.1:8080@")).to_have_count(0)


def test_a_line_of_foreign_text_keeps_its_direction_to_itself(page: Page) -> None:
    turned = page.locator("table.workers td.name bdi").filter(has_text="gnp.exe")
    assert turned.count() == 1
    assert turned.evaluate("node => getComputedStyle(node).unicodeBidi") == "isolate"


def test_names_that_differ_look_different(page: Page) -> None:
    page.get_by_label("Name", exact=True).fill("tw")
    shown = page.locator("table.workers td.name bdi")
    expect(shown).to_have_count(len(ALIKE) - 1)  # in one of them the two letters are apart
    page.get_by_label("Name", exact=True).fill("w")
    names = [name for name in shown.all_text_contents() if "win" in name or name.startswith("tw")]
    assert sorted(names) == sorted(ALIKE.values())
    switch = page.get_by_role("combobox", name="Go to worker")
    switch.fill("tw")
    options = page.locator("#switch-list [role=option] bdi")
    expect(options).to_have_count(len(ALIKE) - 1)
    assert set(options.all_text_contents()) < set(ALIKE.values())
    switch.press("Escape")
    page.get_by_label("Name", exact=True).fill("")
    page.get_by_text("As a list").click()
    # Nowhere in the page, in what a pointer is told neither.
    texts = """() => [document.title, document.body.textContent,
      ...[...document.querySelectorAll('[title]')].map(n => n.title),
      ...[...document.querySelectorAll('title')].map(n => n.textContent)]"""
    unseen = [char for char in "".join(page.evaluate(texts)) if ord(char) > 127 and not char.isprintable()]
    assert unseen == []


def test_an_escape_is_told_from_a_name_that_is_written_like_one(page: Page) -> None:
    marks = page.locator("table.workers td.name .escape")
    assert "\\u202e" in marks.all_text_contents()
    assert all(mark.startswith(("\\u", "\\\\")) for mark in marks.all_text_contents())
    page.get_by_label("Name", exact=True).fill("tw")
    page.get_by_role("combobox", name="Go to worker").fill("tw")
    page.keyboard.press("ArrowDown")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]}).response["violations"]
        assert [one["id"] for one in found] == []


def test_a_long_text_takes_no_room_from_other_columns(page: Page) -> None:
    page.set_viewport_size({"width": DESKTOP["width"], "height": DESKTOP["height"]})
    field = page.get_by_label("Name", exact=True)
    rows = page.locator("table.workers tbody tr:not(.space)")
    widths = []
    for name in ("worker-1", LONG[:50]):
        field.fill(name)
        expect(rows).to_have_count(1)
        widths.append(page.evaluate("[...document.querySelectorAll('.workers th')].map(n => n.offsetWidth)"))
        assert page.evaluate(OUTSIDE) == 0
    assert widths[0] == widths[1]
    assert rows.locator("td.name").inner_text() == LONG  # all of it
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    assert page.evaluate(OUTSIDE) == 0


def test_a_long_text_is_two_lines_until_it_has_the_focus(
    fleet: Fleet, start: Callable[..., list[WorkerProcess]], open_page: Callable[..., Page]
) -> None:
    write(fleet.cards, make_card("worker-2" + "x" * 100, cluster="c" * 200, version="v" * 200))
    [worker] = start("worker-1", settings={"fleet.registry.offline_after_seconds": 3600})
    wait_for(lambda: len(worker.rows()) == 2, what="listing the card")
    page = open_page(worker.url)
    line = page.locator("table.workers tbody tr").filter(has_text="vvv")
    expect(line).to_have_count(1)
    assert line.evaluate("node => node.offsetHeight") < 70
    version = line.locator("td.version")
    version.hover()
    expect(version).to_have_attribute("title", "v" * 200)
    version.focus()
    whole = "node => node.firstChild.scrollHeight <= node.firstChild.clientHeight + 1"
    assert version.evaluate(whole)
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    page.get_by_role("combobox", name="Go to worker").fill("xxxx")
    option = page.locator("#switch-list [role=option]")
    expect(option).to_have_count(1)
    assert option.evaluate("node => node.offsetHeight") < 70


def test_a_card_of_many_names_leaves_the_others_their_room(
    fleet: Fleet, start: Callable[..., list[WorkerProcess]], open_page: Callable[..., Page]
) -> None:
    many = [f"aa-{n:03}" for n in range(120)]
    write(
        fleet.cards,
        *(make_card(f"worker-{n}", features={"leader_for": many[n:]}) for n in (2, 3)),
        make_card("worker-4", features={"leader_for": ["zz-report"]}),
    )
    settings = {"workers": "indexer", "fleet.registry.offline_after_seconds": 3600}
    [worker] = start("worker-1", settings=settings)
    wait_for(lambda: len(worker.rows()) == 4, what="listing the cards")
    page = open_page(worker.url)
    labels = page.locator("#timeline svg .label")
    expect(labels.filter(has_text="indexer").first).to_be_visible()
    expect(labels.filter(has_text="zz-report").first).to_be_visible()
