"""For everybody: with a screen reader, a keyboard, little contrast, a phone, without motion."""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from support.processes import WorkerProcess, wait_for

Start = Callable[..., list[WorkerProcess]]
Open = Callable[..., Page]

JOBS = {"workers": "indexer,sweeper,reports", "cluster_name": "search"}
PHONE = {"width": 360, "height": 740}
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def violations(page: Page) -> list[str]:
    found = Axe().run(page, options=RULES).response["violations"]
    return [f"{one['id']}: {[node['html'][:150] for node in one['nodes']][:3]}" for one in found]


def test_holds_the_rules_of_accessibility(start: Start, open_page: Open) -> None:
    one, two = start("worker-1", "worker-2", settings=JOBS)
    wait_for(lambda: len(one.rows()) == 2)
    page = open_page(one.url)
    two.kill()
    expect(page.locator("table.workers")).to_contain_text("offline")
    expect(page.locator("table.jobs")).to_contain_text("backing off")
    expect(page.locator("table.leases tbody tr:not(.space)")).not_to_have_count(0)
    for path in ("", "history"):
        page.goto(one.url + path)
        expect(page.locator("#timeline svg .bar").first).to_be_visible()
        page.get_by_role("combobox", name="Go to worker").fill("worker")
        expect(page.locator("#switch-list [role=option]")).to_have_count(2)
        for width in (1280, PHONE["width"]):
            page.set_viewport_size({"width": width, "height": 740})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
                assert violations(page) == [], (path, width, scheme)
    one.kill()
    expect(page.locator("#connection")).to_be_visible()
    assert violations(page) == []


def test_the_login_holds_them_too(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1", settings={"ui.auth_token": "n0t-a-real-token"})
    page = open_page(worker.url)
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        assert violations(page) == []


@pytest.mark.parametrize("path", ["", "history"])
def test_nothing_scrolls_sideways_on_a_phone(start: Start, open_page: Open, path: str) -> None:
    [worker] = start("worker-1" + "x" * 60, settings=JOBS, error="no" + "x" * 300)
    page = open_page(worker.url + path)
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    expect(page.locator("#timeline svg .bar").first).to_be_visible()
    expect(page.get_by_text("noxxx").first).to_be_visible()
    boxes = "[...document.querySelectorAll('html, body, .scroll, .strip')]"
    wide = f"{boxes}.filter(n => n.scrollWidth > n.clientWidth + 1).map(n => n.className || n.tagName)"
    assert page.evaluate(wide) == []


def test_everything_is_reached_with_the_keyboard_and_seen_to_be(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1", settings=JOBS)
    page = open_page(worker.url)
    expect(page.locator("table.jobs")).to_contain_text("backing off")
    wanted = page.locator("a:visible, button:visible, input:visible, select:visible, summary:visible").count()
    reached: set[str] = set()
    for _ in range(wanted + 20):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                """() => {
                  const node = document.activeElement;
                  const style = getComputedStyle(node);
                  if (node === document.body) return "";
                  if (style.outlineStyle === "none") throw new Error(node.outerHTML);
                  return node.reached ||= String(Math.random());
                }"""
            )
        )
    assert len(reached - {""}) >= wanted


def test_nothing_moves_for_who_wants_no_motion(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1")
    page = open_page(worker.url)
    page.emulate_media(reduced_motion="reduce")
    expect(page.locator("table.workers tbody tr:not(.space)")).to_have_count(1)
    moving = (
        "[...document.querySelectorAll('*')].filter(n => getComputedStyle(n).transitionDuration !== '0s')"
    )
    assert page.evaluate(f"{moving}.length") == 0
