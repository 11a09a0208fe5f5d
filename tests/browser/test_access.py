"""For everybody: with a screen reader, a keyboard, little contrast, a phone, without motion."""

import re
from collections.abc import Callable
from typing import Literal

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
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        assert violations(page) == [], scheme


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


def test_a_phone_shows_all_that_a_large_screen_does(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1", settings=JOBS)
    page = open_page(worker.url)
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    line = page.locator("table.workers tbody tr:not(.space)")
    expect(line.locator(".chip").first).to_be_visible()
    for cell in line.locator("td").all():
        expect(cell).to_be_visible()
    expect(line.locator("td.address")).to_have_text(worker.url)


def contrast(one: list[float], other: list[float]) -> float:
    """As the accessibility guidelines define it, 1 to 21."""

    def light(color: list[float]) -> float:
        parts = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (n / 255 for n in color)
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colors_of_the_timeline_are_quiet(
    start: Start, open_page: Open, scheme: Literal["light", "dark"]
) -> None:
    [worker] = start("worker-1")
    page = open_page(worker.url)
    page.emulate_media(color_scheme=scheme)
    names = ["--front", "--back", "--muted", "--bad", *(f"--c{n}" for n in range(8))]
    # As the browser mixes them: a canvas tells any color in red, green and blue.
    read = """names => { const pen = document.createElement('canvas').getContext('2d');
      const style = getComputedStyle(document.documentElement);
      return names.map(name => { pen.fillStyle = style.getPropertyValue(name);
        pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3); }); }"""
    front, back, edge, bad, *bars = page.evaluate(read, names)
    assert contrast(edge, back) >= 3  # what a bar is bounded by
    assert bad[0] > 1.5 * max(bad[1:])  # so this would find a red one
    for color in bars:
        assert contrast(front, color) >= 4.5
        assert color[0] <= 1.1 * max(color[1:])


def test_the_timeline_tells_by_names_who_led(start: Start, open_page: Open) -> None:
    one, *_ = start("worker-1", "worker-2", settings={"workers": "sweeper"})
    wait_for(lambda: all(row.get("leader_for") for row in one.rows().values()), what="leading by both")
    page = open_page(one.url)
    bars = page.locator("#timeline svg .bar")
    legend = page.locator("#timeline .legend li")
    expect(legend).to_have_text([re.compile(".worker-1"), re.compile(".worker-2")])
    keys = legend.locator(".swatch").all_text_contents()
    assert keys == ["A", "B"]
    swatches = "nodes => nodes.map(n => getComputedStyle(n).backgroundColor)"
    fills = "nodes => nodes.map(n => getComputedStyle(n).fill)"
    assert set(bars.evaluate_all(fills)) == set(legend.locator(".swatch").evaluate_all(swatches))
    lanes = page.locator("#timeline svg .free").count()
    assert lanes >= 2
    assert page.locator("#timeline svg .label").all_text_contents()[:lanes] == lanes * ["sweepersweeper"]


def test_a_worker_keeps_its_letter_while_it_is_drawn(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1")
    page = open_page(worker.url)
    told = page.evaluate(
        """async () => {
          const { keys } = await import("/assets/keys.js");
          const keyOf = keys();
          const told = (...workers) =>
            [...keyOf(workers)].map(([worker, { letter, color }]) => worker + letter + color);
          return [told("b", "c"), told("a", "c"), told("c", "d"),
            told(...Array.from({ length: 28 }, (_, n) => String(n + 10))).slice(-3)];
        }"""
    )
    assert told == [["bA0", "cB1"], ["aA0", "cB1"], ["dA0", "cB1"], ["35Z1", "36AA2", "37AB3"]]


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
