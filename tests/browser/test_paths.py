"""What a person does with the pages, with real workers behind them."""

import itertools
import re
import signal
import socket
import time
from collections.abc import Callable
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect
from support.processes import WorkerProcess, wait_for
from support.workers import free_port

Start = Callable[..., list[WorkerProcess]]
Open = Callable[..., Page]

JOBS = {"workers": "indexer,reports"}
WAIT_MS = 30_000
TOKEN = "n0t-a-real-token"

expect.set_options(timeout=WAIT_MS)


def row(page: Page, name: str, table: str = "workers") -> Locator:
    return page.locator(f"table.{table} tbody tr").filter(
        has=page.locator("td.name", has_text=re.compile(f"^{re.escape(name)}$"))
    )


def leader(page: Page) -> str:
    """The worker whose row shows that it leads `indexer`."""
    found = page.locator("table.workers tbody tr").filter(
        has=page.locator(".chip:not(.past)", has_text="indexer")
    )
    expect(found).to_have_count(1)
    return found.locator("td.name").inner_text()


def test_a_leader_dies_and_its_chip_moves_to_another_worker(start: Start, open_page: Open) -> None:
    workers = {worker.name: worker for worker in start("worker-1", "worker-2", "worker-3", settings=JOBS)}
    page = open_page(workers["worker-1"].url)
    for name in workers:
        expect(row(page, name).locator(".liveness")).to_contain_text("online")
    old = leader(page)
    if old == "worker-1":
        page = open_page(workers["worker-2"].url)
    expect(row(page, "indexer-leader", "leases")).to_contain_text(old)

    workers[old].kill()

    expect(row(page, old).locator(".liveness")).to_contain_text("offline")
    expect(row(page, old).locator(".chip.past", has_text="indexer")).to_have_count(1)
    new = leader(page)
    assert new != old
    expect(row(page, "indexer-leader", "leases")).to_contain_text(new)
    expect(page.locator("#facts")).to_contain_text("2 online, 1 offline")

    # What happened is drawn, and listed.
    page.get_by_role("link", name="History").click()
    page.get_by_text("As a list").click()
    for name in (old, new):
        expect(
            page.locator("#timeline li").filter(has_text="indexer").filter(has_text=name)
        ).not_to_have_count(0)
    assert page.locator("#timeline svg .bar").count() >= 2
    expect(page.locator("#timeline details li").first).to_have_text(re.compile(r" \d\d:\d\d:\d\d"))
    # One lease: whoever looks on sees no two leaders, though the card of the dead one stayed.
    told = page.request.get(urljoin(page.url, "api/v1/history")).json()["spans"]
    spans = sorted((s for s in told if s["name"] == "indexer"), key=lambda s: s["from_ts"])
    assert [s["worker"] for s in spans if s["to_ts"] is None] == [new]
    assert all(one["to_ts"] <= later["from_ts"] for one, later in itertools.pairwise(spans))
    expect(page.locator("table.events tbody tr").filter(has_text="crashed").first).to_contain_text(
        "the volume is gone"
    )


def test_what_broke_is_shown_with_its_next_start_and_ages_count_on(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1", settings=JOBS)
    page = open_page(worker.url)
    failing = row(page, "reports", "jobs")
    expect(failing.locator(".status")).to_contain_text("backing off")
    expect(failing).to_contain_text("RuntimeError: the volume is gone")
    expect(failing.locator("[data-label='Restart in']")).to_have_text(re.compile(r"\d+ s"))
    since = row(page, "indexer", "jobs").locator("[data-label=For]")
    first = since.inner_text()
    expect(since).not_to_have_text(first)
    expect(page.locator("#facts")).to_contain_text("filesystem, list")


def test_the_switch_goes_to_the_same_page_of_another_worker(start: Start, open_page: Open) -> None:
    one, two = start("worker-1", "worker-2")
    page = open_page(f"{one.url}history")
    switch = page.get_by_role("combobox", name="Go to worker")
    page.keyboard.press("Tab")
    while not switch.evaluate("node => node === document.activeElement"):
        page.keyboard.press("Tab")
    expect(page.locator("#head")).to_contain_text("worker-1")
    wait_for(lambda: two.name in one.rows(), what="seeing the other worker")
    page.keyboard.type("worker-2")
    option = page.locator("#switch-list [role=option]").filter(has_text="worker-2")
    expect(option).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(switch).to_have_attribute("aria-expanded", "false")
    expect(switch).to_have_value("")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(switch).to_have_attribute("aria-activedescendant", option.get_attribute("id") or "")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{two.url}history")
    expect(page.locator("#head")).to_contain_text("worker-2")


def test_a_lost_connection_is_told_and_a_restarted_worker_found_again(start: Start, open_page: Open) -> None:
    settings: dict[str, object] = {**JOBS, "ui.port": free_port()}
    [worker] = start("worker-1", settings=settings)
    page = open_page(worker.url)
    expect(row(page, "worker-1")).to_have_count(1)
    expect(row(page, "indexer-leader", "leases")).to_have_count(1)
    banner = page.locator("#connection")
    expect(banner).to_be_hidden()

    worker.kill()
    expect(banner).to_contain_text(re.compile(r"Connection lost since \d\d:\d\d:\d\d"))
    expect(row(page, "worker-1")).to_have_count(1)  # what was known stays
    old = page.locator("#leases").get_by_text(re.compile(r"This list is from .* not read again yet"))
    expect(old).to_be_visible()
    # What was so then does not look as if it were so now.
    online = row(page, "worker-1").locator(".online")
    color = "node => getComputedStyle(node).color"
    assert online.evaluate(color) == page.locator(".brand + .own").evaluate(color)
    time_here = "async () => (await import('/assets/time.js')).now()"
    then = page.evaluate(time_here)
    waiting = banner.inner_text()
    expect(banner).not_to_have_text(waiting)
    assert page.evaluate(time_here) == then
    expect(page.locator("#timeline svg .axis.end")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    assert page.evaluate("Date.now() / 1000") > then + 1
    banner.get_by_role("button", name="Try now").click()
    expect(banner).to_contain_text("Trying again in")
    note = """() => { const banner = document.getElementById("connection");
      const old = [...document.querySelectorAll("#leases p")].find(p => /not read again/.test(p.textContent));
      new MutationObserver(() => { window.whenBack ??= banner.hidden ? !old.hidden : undefined; })
        .observe(banner, { attributes: true }); }"""
    page.evaluate(note)

    start("worker-1", settings=settings | {"cluster_name": "search"})
    expect(banner).to_be_hidden()
    expect(row(page, "worker-1")).to_contain_text("search")
    assert page.evaluate("window.whenBack") is True  # the list was still marked when the connection was back
    expect(old).to_be_hidden()
    expect(page.locator("#facts")).not_to_contain_text("not read again")


def test_a_worker_that_hangs_is_a_lost_connection_too(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1")
    page = open_page(worker.url)
    expect(row(page, "worker-1")).to_have_count(1)
    worker.send(signal.SIGSTOP)
    expect(page.locator("#connection")).to_contain_text("Connection lost since")
    worker.send(signal.SIGCONT)
    expect(page.locator("#connection")).to_be_hidden()


def test_open_pages_do_not_delay_the_exit(start: Start, open_page: Open) -> None:
    """A request that does not end is given its time at the exit; pages take none of it."""
    [worker] = start("worker-1", settings=JOBS)
    [other] = start("worker-2", settings={**JOBS, "ui.auth_token": TOKEN})
    for path in ("", "history", ""):
        expect(open_page(worker.url + path).locator("#head")).to_contain_text("worker-1")
    parts = urlsplit(other.url)
    host = parts.netloc
    with socket.create_connection((parts.hostname, parts.port)) as client:
        head = (
            "POST /login HTTP/1.1",
            f"Host: {host}",
            f"Origin: http://{host}",
            "Content-Length: 9",
            "",
            "",
        )
        client.sendall("\r\n".join(head).encode() + b"token=")
        other.get("healthz")  # by when it has seen the half of that form
        took = []
        for one in (worker, other):
            one.send(signal.SIGTERM)
            began = time.monotonic()
            one.wait()
            took.append(time.monotonic() - began)
    assert (worker.process.returncode, other.process.returncode) == (0, 0)
    print(f"exit with three pages {took[0]:.2f} s, with a request that does not end {took[1]:.2f} s")
    assert took[0] < took[1] / 2


def test_a_view_is_kept_in_the_address(start: Start, open_page: Open) -> None:
    one, *_ = start("worker-1", "worker-2", "worker-3")
    wait_for(lambda: len(one.rows()) == 3)
    page = open_page(one.url)
    names = page.locator("table.workers td.name")
    expect(names).to_have_text(["worker-1", "worker-2", "worker-3"])
    head = page.get_by_role("columnheader", name="Worker", exact=True)
    head.get_by_role("button").press("Enter")
    head.get_by_role("button").press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(names).to_have_text(["worker-3", "worker-2", "worker-1"])
    page.get_by_label("Cluster").fill("nowhere")
    expect(page.get_by_text("No worker fits the filter.")).to_be_visible()
    page.get_by_label("Cluster").fill("")
    page.get_by_label("Name").fill("R-2")
    page.get_by_label("State").select_option("online")
    expect(names).to_have_text(["worker-2"])

    wanted = urlsplit(page.url).query
    page.get_by_role("link", name="History").click()
    page.wait_for_url(f"{one.url}history?{wanted}")
    page.get_by_role("link", name="Live").click()
    page.wait_for_url(f"{one.url}?{wanted}")

    again = open_page(page.url)
    expect(again.locator("table.workers td.name")).to_have_text(["worker-2"])
    expect(again.get_by_role("columnheader", name="Worker", exact=True)).to_have_attribute(
        "aria-sort", "descending"
    )
    again.get_by_label("Name").fill("")
    expect(again.locator("table.workers td.name")).to_have_text(["worker-3", "worker-2", "worker-1"])


def test_a_view_that_there_is_not_is_dropped_from_the_address(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1")
    page = open_page(f"{worker.url}?state=nonsense&workers-sort=-nonsense&name=worker")
    expect(page.locator("table.workers td.name")).to_have_text(["worker-1"])
    expect(page.get_by_label("State")).to_have_value("")
    assert page.url == f"{worker.url}?name=worker"


def test_who_has_no_token_must_log_in_and_can_log_out(
    start: Start, open_page: Open, context: BrowserContext
) -> None:
    one, two = start("worker-1", "worker-2", settings={"ui.auth_token": TOKEN})
    wait_for(lambda: len(one.rows()) == 2)
    page = open_page(f"{one.url}history?events-sort=-name")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{one.url}history?events-sort=-name")
    expect(page.locator("#head")).to_contain_text("worker-1")
    [cookie] = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    assert TOKEN not in page.content()

    # The ticket is good for the other worker, which has the same token.
    page.goto(two.url)
    expect(row(page, "worker-1")).to_have_count(1)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(two.url)
    expect(page.get_by_label("Token")).to_be_visible()
    for worker in (one, two):
        assert TOKEN not in worker.log.read_text()
        assert cookie["value"] not in worker.log.read_text()


def test_the_login_tells_when_it_may_be_tried_again(start: Start, open_page: Open) -> None:
    [worker] = start("worker-1", settings={"ui.auth_token": TOKEN})
    page = open_page(worker.url)
    for _ in range(4):
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        page.wait_for_url("**/login?failed=wrong*")
    expect(page.get_by_text("You can try again now.")).to_be_visible()


@pytest.mark.parametrize("path", ["", "history", "api/v1/workers"])
def test_a_page_cannot_read_another_worker(start: Start, context: BrowserContext, path: str) -> None:
    one, two = start("worker-1", "worker-2")
    page = context.new_page()  # in which its policy is expected to refuse
    page.goto(one.url)
    read = "url => fetch(url, {mode: 'cors'}).then(answer => answer.status).catch(() => 'refused')"
    assert page.evaluate(read, two.url + path) == "refused"
